"""Rows of a thread as verification finds them: as far as they open.

What is in a pack that does not open is not known. But there are no segments between packs, so the id of a segment
tells which pack it must be in; and a load of a checkpoint opens every pack whose range of checkpoint ids has one of its
chain.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from dataclasses import dataclass, field

from deltastore.core.findings import Fault
from deltastore.core.model import CheckpointRow
from deltastore.core.payload import CheckpointPayload
from deltastore.core.pieces import PieceList
from deltastore.core.survey import SegmentHead
from deltastore.core.writes import OpenSegment


@dataclass(slots=True)
class OpenedSegment:
    """A segment as far as it opens.

    Attributes:
        head: The segment.
        fault: Why it does not open; None if it does.
        twin: That there are other copies, of which this is the sound one.
        marks: What tells its items apart: 64 bits each, valid in this process only.
        writes: Its writes, without items.
        page: Its pieces, if it is a page.
    """

    head: SegmentHead
    fault: Fault | None = None
    twin: Fault | None = None
    marks: array[int] = field(default_factory=lambda: array("q"))
    writes: OpenSegment | None = None
    page: PieceList | None = None


@dataclass(slots=True)
class OpenedRow:
    """A checkpoint as far as it opens.

    Attributes:
        stored: The row as it is stored.
        row: The row with the columns that its payload was made for.
        payload: Its payload, or None if it does not open.
        faults: What is wrong with it, or with the pages that it names.
        metadata_fault: What is wrong with its metadata.
    """

    stored: CheckpointRow
    row: CheckpointRow
    payload: CheckpointPayload | None = None
    faults: list[Fault] = field(default_factory=list)
    metadata_fault: Fault | None = None


@dataclass(slots=True)
class OpenedPack:
    """A pack as far as it opens.

    Attributes:
        segment_id: Its id, the largest of those that it holds.
        first: The smallest checkpoint id that it holds, as far as it is known.
        last: The largest one.
        fault: Why it does not open; None if it does.
        trouble: What else keeps loads from using it: other copies, or a wrong range.
    """

    segment_id: int
    first: bytes
    last: bytes
    fault: Fault | None = None
    trouble: Fault | None = None


@dataclass(slots=True)
class OpenedPacks:
    """All packs of a thread."""

    packs: dict[int, OpenedPack] = field(default_factory=dict)
    _ids: list[int] = field(default_factory=list)

    def add(self, pack: OpenedPack) -> None:
        """Adds a pack."""
        self.packs[pack.segment_id] = pack
        insort(self._ids, pack.segment_id)

    def fault_of(self, segment_id: int) -> Fault | None:
        """Why a segment that was not found is not there: the fault of the pack that must hold it, if it has one."""
        position = bisect_left(self._ids, segment_id)
        return self.packs[self._ids[position]].fault if position < len(self._ids) else None

    def damaged_around(self, checkpoint_id: bytes) -> set[Fault]:
        """Faults of packs that do not open and may hold writes to a checkpoint."""
        return {
            pack.fault
            for pack in self.packs.values()
            if pack.fault is not None and pack.first <= checkpoint_id <= pack.last
        }

    def faults_around(self, checkpoint_id: bytes) -> set[Fault]:
        """Everything that is wrong with packs that a load opens for a checkpoint."""
        troubles = {
            pack.trouble
            for pack in self.packs.values()
            if pack.trouble is not None and pack.first <= checkpoint_id <= pack.last
        }
        return troubles | self.damaged_around(checkpoint_id)
