"""Anchors compared with what their parent's chain gives.

Where a channel's version is the parent's, its value or history must be too. Not compared is what may differ: channels
with another version, and channels that the checkpoint says were updated. (Nor are anchors right behind an anchor, where
there is no chain to rebuild from, and where the parent may have been replaced, which leaves its children as they were.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deltastore.core.header import same
from deltastore.core.model import index_of, segment_of
from deltastore.core.opening import Opening
from deltastore.core.pieces import PieceList
from deltastore.core.state import State


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares states by their items, wherever those are kept."""

    opening: Opening

    def differing(self, state: State, parent: State) -> Iterator[str]:
        """Channels that have the parent's version and something else than the parent."""
        updated = state.header.updated if isinstance(state.header.updated, list) else ()
        for channel, version in state.header.versions.items():
            before = parent.header.versions.get(channel)
            comparable = channel not in updated and before is not None and same(before, version)
            if comparable and self._differs(channel, state, parent):
                yield channel

    def _differs(self, channel: str, state: State, parent: State) -> bool:
        now, before = state.values.get(channel), parent.values.get(channel)
        if now is not None and before is not None:
            return now.kind != before.kind or not self._are_same(now.pieces, before.pieces)
        grown, had = state.histories.get(channel), parent.histories.get(channel)
        if now is None and before is not None:
            return grown is None or grown.seed is None or not self._are_same(grown.seed.pieces, before.pieces)
        if now is None and had is not None:
            return grown is None or grown.writes.places[: len(had.writes.places)] != had.writes.places
        return False

    def _are_same(self, left: PieceList, right: PieceList) -> bool:
        """Whether two piece lists hold the same items under the same keys, wherever they are kept."""
        if left.places == right.places and left.keys == right.keys:
            return True
        if (left.keys or None) != (right.keys or None) or len(left.places) != len(right.places):
            return False
        return all(self._mark(one) == self._mark(other) for one, other in zip(left.places, right.places, strict=True))

    def _mark(self, place: int | bytes) -> int | None:
        if isinstance(place, bytes):
            return hash(place)
        segment = self.opening.segments.get(segment_of(place))
        marks = () if segment is None else segment.marks
        return marks[index_of(place)] if index_of(place) < len(marks) else None
