"""Pending writes: what one `put_writes` call stored, and what many calls mean together.

Each call is one segment, written once. Calls are never merged when they are stored: what counts is decided when they
are read, in the order of their segment ids, by the rule that the stock savers follow:

- an ordinary write (index 0 and up): the first one for its task and index counts, later ones are ignored;
- a special write (negative index: error, scheduled, interrupt, resume): the last one counts.

So storing the same call twice, as a retry after a lost answer does, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from deltastore.core.model import location
from deltastore.core.pieces import PieceList


class Write(NamedTuple):
    """One write of a task.

    Attributes:
        task_id: The task's id.
        task_path: The task's path, sorted by in byte order.
        index: Its place among the task's writes, or a negative number for a special write.
        channel: The channel.
        kind: How the value was taken apart (`codec.ValueKind`).
        pieces: The value's items.
    """

    task_id: str
    task_path: str
    index: int  # type: ignore[assignment]  # a write is never searched as a tuple
    channel: str
    kind: int
    pieces: PieceList

    @property
    def sort_key(self) -> tuple[str, str, int]:
        """LangGraph's `writes_sort_key`: the order in which live execution applies the writes of a super-step."""
        return self.task_path, self.task_id, self.index


class OpenSegment(NamedTuple):
    """A segment, opened: the items that it holds and, for writes, the writes of its call; for a page, its pieces.

    `is_packed` says that it comes out of a pack (`packing.py`).
    """

    segment_id: int
    items: Sequence[bytes]
    writes: tuple[Write, ...] = ()
    page: PieceList | None = None
    is_packed: bool = False

    @property
    def size_bytes(self) -> int:
        """The size of its items."""
        return sum(map(len, self.items))


class StoredWrite(NamedTuple):
    """A write that counts. `place` is where it is: a location whose index is the write's position in its segment."""

    place: int
    write: Write


def effective(segments: Iterable[OpenSegment]) -> list[StoredWrite]:
    """The writes that count, in `sort_key` order."""
    counted: dict[tuple[str, int], StoredWrite] = {}
    for segment in sorted(segments, key=lambda each: each.segment_id):
        for position, write in enumerate(segment.writes):
            key = write.task_id, write.index
            if write.index < 0 or key not in counted:
                counted[key] = StoredWrite(location(segment.segment_id, position), write)
    return sorted(counted.values(), key=lambda stored: stored.write.sort_key)


def by_channel(writes: Iterable[StoredWrite], ignored: frozenset[str]) -> dict[str, list[int]]:
    """Places of ordinary writes by channel, in order, without the channels that never have a value."""
    places: dict[str, list[int]] = {}
    for stored in writes:
        if stored.write.index >= 0 and stored.write.channel not in ignored:
            places.setdefault(stored.write.channel, []).append(stored.place)
    return places
