"""One thread in dicts, and what an edit does to a copy of it."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

from deltastore.core.edits import NewRows, RowUpdate, ThreadChanges, ThreadRows
from deltastore.core.model import CheckpointRow, MetadataRow, NewSegment, SegmentKind, SegmentRow, ThreadRef
from deltastore.core.overview import ThreadEntry
from deltastore.core.survey import Repairs, ThreadRow, ThreadSurvey, head_of

_Key = TypeVar("_Key")
_Row = TypeVar("_Row")
_WITH_STRUCTURE = (SegmentKind.PAGES, SegmentKind.PACK)


@dataclass
class MemoryThread:
    """All rows of one thread."""

    ref: ThreadRef
    epoch: int
    checkpoints: dict[tuple[str, bytes], CheckpointRow] = field(default_factory=dict)
    segments: dict[int, SegmentRow] = field(default_factory=dict)
    metadata: dict[int, MetadataRow] = field(default_factory=dict)
    quarantine: list[CheckpointRow | SegmentRow | MetadataRow] = field(default_factory=list)
    pinned: bool = False
    created_seconds: float = field(default_factory=time.time, compare=False)

    def copy(self, ref: ThreadRef, epoch: int) -> MemoryThread:
        """The same rows as another thread."""
        return MemoryThread(ref, epoch, dict(self.checkpoints), dict(self.segments), dict(self.metadata))

    def edited(self) -> MemoryThread:
        """A copy that may take the thread's place."""
        return replace(
            self.copy(self.ref, self.epoch),
            quarantine=[*self.quarantine],
            pinned=self.pinned,
            created_seconds=self.created_seconds,
        )

    def bare_entry(self) -> ThreadEntry:
        """What a list says of the thread, without its checkpoints."""
        return ThreadEntry(self.ref, datetime.fromtimestamp(self.created_seconds, UTC), self.pinned, b"", None)

    def largest_id(self) -> bytes:
        """The largest checkpoint id that a run may hold."""
        ids = [checkpoint_id for _, checkpoint_id in self.checkpoints]
        return max(ids + [segment.checkpoint_id for segment in self.segments.values()], default=b"")

    def writes(self, namespace: str, checkpoint_id: bytes | None) -> list[SegmentRow]:
        """The writes to a checkpoint."""
        return [
            segment
            for segment in self.segments.values()
            if segment.kind is SegmentKind.WRITES
            and (segment.namespace, segment.checkpoint_id) == (namespace, checkpoint_id)
        ]

    def add_segment(self, number: int, namespace: str, checkpoint_id: bytes, new: NewSegment) -> int:
        """Adds a segment; its id again."""
        self.segments[number] = SegmentRow(number, new.kind, namespace, checkpoint_id, new.payload, new.references)
        return number

    def found(self, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Those of the segments that are there; for one in a pack, the pack."""
        stored = map(self.holders(), segment_ids)
        return [self.segments[number] for number in dict.fromkeys(stored) if number in self.segments]

    def holders(self) -> Callable[[int], int]:
        """A function from the id of a segment to that of the row that it is in: a pack, or its own."""
        packs = sorted(pack.segment_id for pack in self.packs())

        def holder(segment_id: int) -> int:
            position = bisect_left(packs, segment_id)
            return packs[position] if position < len(packs) else segment_id

        return holder

    def packs(self) -> list[SegmentRow]:
        """Its packs."""
        return [segment for segment in self.segments.values() if segment.kind is SegmentKind.PACK]

    def packs_around(self, checkpoint_ids: Iterable[bytes]) -> list[SegmentRow]:
        """The packs that may hold writes to one of the checkpoints."""
        ids = list(checkpoint_ids)
        return [
            pack
            for pack in self.packs()
            if any((pack.first_checkpoint_id or b"") <= each <= pack.checkpoint_id for each in ids)
        ]


class MemorySurvey:
    """The rows of one thread, None if there is no such thread."""

    def __init__(self, thread_key: bytes, thread: MemoryThread | None) -> None:
        self._key = thread_key
        self._thread = thread

    async def rows(self) -> ThreadSurvey:
        """All rows, segments without their payloads."""
        thread = self._thread
        if thread is None:
            return ThreadSurvey(self._key, (), (), (), ())
        return ThreadSurvey(
            self._key,
            (ThreadRow(thread.ref.thread_id, thread.epoch),),
            tuple(thread.checkpoints.values()),
            tuple(map(head_of, thread.segments.values())),
            tuple(thread.metadata.values()),
            len(thread.quarantine),
        )

    async def payloads(self, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads."""
        return self._thread.found(segment_ids) if self._thread else []


class MemoryEdit:
    """The thread of one `edit`: a copy, None if there is no such thread."""

    def __init__(self, thread: MemoryThread | None, numbers: Iterator[int]) -> None:
        self.thread = thread
        self.is_removed = False
        self.is_unstaged = False
        self._numbers = numbers

    async def rows(self) -> ThreadRows | None:
        """The whole structure of the thread, or None if there is no such thread."""
        if self.thread is None:
            return None
        return ThreadRows(
            thread=self.thread.ref,
            epoch=self.thread.epoch,
            checkpoints=tuple(self.thread.checkpoints.values()),
            segments=tuple(
                segment if segment.kind in _WITH_STRUCTURE else replace(segment, payload=b"")
                for segment in self.thread.segments.values()
            ),
            metadata=tuple((number, run_id_of(metadata)) for number, metadata in self.thread.metadata.items()),
            pinned=self.thread.pinned,
            created_seconds=self.thread.created_seconds,
        )

    async def segments(self, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads; those that do not exist are left out."""
        return self.thread.found(segment_ids) if self.thread else []

    async def documents(self, metadata_ids: Sequence[int]) -> list[MetadataRow]:
        """Metadata documents; those that do not exist are left out."""
        stored = self.thread.metadata if self.thread else {}
        return [stored[number] for number in dict.fromkeys(metadata_ids) if number in stored]

    async def quarantined(self) -> int:
        """How many rows of the thread a repair took out."""
        return len(self.thread.quarantine) if self.thread else 0

    async def payload_bytes(self, segment_ids: Sequence[int], metadata_ids: Sequence[int]) -> int:
        """The size of the payloads of segments and metadata documents, all together."""
        if self.thread is None:
            return 0
        payloads = [segment.payload for segment in self.thread.found(segment_ids)]
        payloads += [self.thread.metadata[each].payload for each in {*metadata_ids} & self.thread.metadata.keys()]
        return sum(map(len, payloads))

    async def is_still(self, rows: ThreadRows) -> bool:
        """Whether the thread is what it was when `rows` were read."""
        now = await self.rows()
        return (
            now is not None
            and now.stored_ids == rows.stored_ids
            and replace(now, segments=()) == replace(rows, segments=())
        )

    async def remove(self) -> None:
        """Removes the thread when the edit ends."""
        self.is_removed = True

    async def apply(self, changes: ThreadChanges) -> None:
        """Makes the changes in the copy."""
        thread = self.thread
        if thread is None or not changes:
            return
        for metadata in changes.new_metadata:
            thread.metadata.setdefault(metadata.metadata_id, metadata)
        for update in changes.updates:
            self._update(thread, update)
        for namespace, checkpoint_id, hidden, orphaned in changes.marks:
            if stored := thread.checkpoints.get((namespace, checkpoint_id)):
                thread.checkpoints[stored.key] = replace(stored, hidden=hidden, orphaned=orphaned)
        _drop(thread.checkpoints, changes.delete_checkpoints)
        _drop(thread.segments, changes.delete_segments)
        thread.segments.update({pack.segment_id: pack for pack in changes.packs})
        _drop(thread.metadata, changes.delete_metadata)
        if changes.removes:
            thread.epoch = next(self._numbers)

    def renew(self) -> None:
        """Gives the thread a new epoch."""
        if self.thread is not None:
            self.thread.epoch = next(self._numbers)

    async def restart(self, thread: ThreadRef) -> None:
        """Begins the thread anew, in the copy."""
        self.thread = MemoryThread(thread, next(self._numbers), pinned=self.thread is not None and self.thread.pinned)

    async def numbers(self, count: int) -> Sequence[int]:
        """New segment ids."""
        return [next(self._numbers) for _ in range(count)]

    async def insert(self, rows: NewRows) -> None:
        """Adds rows to the copy."""
        assert self.thread is not None
        self.thread.checkpoints.update({row.key: row for row in rows.checkpoints})
        self.thread.segments.update({segment.segment_id: segment for segment in rows.segments})
        self.thread.metadata.update({metadata.metadata_id: metadata for metadata in rows.metadata})

    async def unstage(self) -> None:
        """Removes what is staged of the thread when the edit ends."""
        self.is_unstaged = True

    def _update(self, thread: MemoryThread, update: RowUpdate) -> None:
        row = update.row
        new_ids = tuple(thread.add_segment(next(self._numbers), *row.key, new) for new in update.new_segments)
        if row.key in thread.checkpoints:
            thread.checkpoints[row.key] = replace(row, segments=new_ids + row.segments)


class MemoryRepair(MemorySurvey):
    """The thread of one `repair`. Copies of rows do not occur here."""

    def __init__(self, thread_key: bytes, edit: MemoryEdit) -> None:
        super().__init__(thread_key, edit.thread)
        self._edit = edit

    async def apply(self, repairs: Repairs) -> None:
        """Makes the repairs in the copy."""
        thread = self._edit.thread
        if thread is None:
            return
        for removal in repairs.removals:
            gone: list[CheckpointRow | SegmentRow | MetadataRow | None] = []
            if removal.checkpoint is not None:
                gone.append(thread.checkpoints.pop(removal.checkpoint, None))
            if removal.segment_id is not None:
                gone.append(thread.segments.pop(removal.segment_id, None))
            if removal.metadata_id is not None:
                gone.append(thread.metadata.pop(removal.metadata_id, None))
            thread.quarantine += [row for row in gone if row is not None]
        for metadata_id, document in repairs.documents:
            if stored := thread.metadata.get(metadata_id):
                thread.metadata[metadata_id] = replace(stored, document=document)
        await self._edit.apply(repairs.changes)
        self._edit.renew()


def _drop(rows: dict[_Key, _Row], keys: Iterable[_Key]) -> None:
    for key in keys:
        rows.pop(key, None)


def run_id_of(metadata: MetadataRow) -> str | None:
    """What PostgreSQL's `document ->> 'run_id'` gives."""
    run_id = json.loads(metadata.document).get("run_id")
    return run_id if run_id is None or isinstance(run_id, str) else json.dumps(run_id)
