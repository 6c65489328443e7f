"""What the places in piece lists lead to: segments and items that are there, missing, or cannot be read.

Places are checked once, where a row brings them; so a sound thread costs one look at each place, and only a thread with
something bad in it has its states searched for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deltastore.core.findings import Fault, Kind, shown
from deltastore.core.model import index_of, segment_of
from deltastore.core.opened import OpenedRow
from deltastore.core.opening import Opening
from deltastore.core.payload import Anchor
from deltastore.core.pieces import PieceList
from deltastore.core.state import State
from deltastore.core.sweep import RowKey


@dataclass(slots=True)
class Needs:
    """Knows what is missing.

    Attributes:
        opening: The opened rows; faults are added to it.
        bad: Segments that are missing or do not open.
        missing: Those of them that are not there.
    """

    opening: Opening
    bad: dict[int, Fault] = field(default_factory=dict)
    missing: dict[int, Fault] = field(default_factory=dict)
    _checked: set[int | bytes] = field(default_factory=set)

    def note_damaged(self) -> None:
        """Takes note of the segments that do not open, or of which there are different copies."""
        for segment_id, segment in self.opening.segments.items():
            if (fault := segment.fault or segment.twin) is not None:
                self.bad[segment_id] = fault

    def check_row(self, opened: OpenedRow) -> None:
        """Notes missing segments and items among the places that a row brings."""
        assert opened.payload is not None
        body = opened.payload.body
        if isinstance(body, Anchor):
            lists = [value.pieces for value in body.values.values()]
            lists += [history.seed.pieces for history in body.histories.values() if history.seed is not None]
        else:
            lists = [run.pieces for each in body.sets for run in each.script if run.pieces is not None]
        name = f"checkpoint {shown(opened.row.checkpoint_id)}"
        for pieces in lists:
            self.check_places(pieces, name, opened.row.key)
        if isinstance(body, Anchor):
            for history in body.histories.values():
                self._check_writes(history.writes, name, opened.row.key)

    def check_places(self, pieces: PieceList, name: str, key: RowKey) -> None:
        """Notes missing segments and items in a piece list that a row brings."""
        unchecked = set(pieces.places) - self._checked
        self._checked |= unchecked
        for place in unchecked:
            if isinstance(place, bytes):
                continue
            segment = self.opening.segments.get(segment_of(place))
            if segment is None:
                self._miss(segment_of(place), name, key)
            elif segment.fault is None and index_of(place) >= len(segment.marks):
                detail = f"segment {segment_of(place)} has {len(segment.marks)} items, item {index_of(place)} is named"
                self.opening.bad_items[place] = self.opening.fault(Kind.MISSING, name, detail, key)

    def _check_writes(self, places: PieceList, name: str, key: RowKey) -> None:
        """Notes missing segments and writes in a history."""
        for segment_id in places.segment_ids() - self.opening.segments.keys():
            self._miss(segment_id, name, key)
        for place in places.places:
            segment = self.opening.segments.get(segment_of(place)) if isinstance(place, int) else None
            if segment is None or segment.fault is not None:
                continue
            count = 0 if segment.writes is None else len(segment.writes.writes)
            if isinstance(place, int) and index_of(place) >= count:
                detail = f"segment {segment.head.segment_id} has {count} writes, write {index_of(place)} is named"
                self.bad[segment.head.segment_id] = self.opening.fault(Kind.MISSING, name, detail, key)

    def faults_in(self, pieces: PieceList) -> set[Fault]:
        """What keeps the items of a piece list from being read."""
        faults: set[Fault] = set()
        if self.bad:
            faults |= {self.bad[each] for each in self.bad.keys() & pieces.segment_ids()}
        if self.opening.bad_items:
            faults |= {self.opening.bad_items[each] for each in self.opening.bad_items.keys() & set(pieces.places)}
        return faults

    def faults_of(self, state: State) -> set[Fault]:
        """What keeps the values of a state from being read."""
        faults: set[Fault] = set()
        for value in state.values.values():
            faults |= self.faults_in(value.pieces)
        if self.opening.bad_items:
            extra = self.opening.bad_items.keys() & set(state.header.extra.values())
            faults |= {self.opening.bad_items[each] for each in extra}
        return faults

    def faults_of_writes(self, places: PieceList) -> set[Fault]:
        """What keeps the items of the writes at these places from being read."""
        faults: set[Fault] = set()
        for place in places.places:
            segment = self.opening.segments.get(segment_of(place)) if isinstance(place, int) else None
            writes = () if segment is None or segment.writes is None else segment.writes.writes
            if isinstance(place, int) and index_of(place) < len(writes):
                faults |= self.faults_in(writes[index_of(place)].pieces)
        return faults

    def _miss(self, segment_id: int, name: str, key: RowKey) -> Fault:
        """The fault of a segment that is not there: that of the pack which must hold it, if there is one."""
        if (fault := self.opening.packs.fault_of(segment_id)) is not None:
            self.bad[segment_id] = fault
            return fault
        if segment_id not in self.missing:
            detail = f"it is missing; {name} needs it"
            fault = self.opening.fault(Kind.MISSING, f"segment {segment_id}", detail, key)
            self.missing[segment_id] = self.bad[segment_id] = fault
        return self.missing[segment_id]
