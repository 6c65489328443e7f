"""Storage in dicts: for users' unit tests, and as the model that PostgreSQL's storage is compared with.

One lock guards the dicts and is held only between awaits, so that any event loop and any thread may call. An edit works
on a copy of its thread, which replaces the thread when the edit ends well; meanwhile everything else that changes the
thread waits, and reads see the thread as it was.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

from deltastore.core.containment import contains
from deltastore.core.model import (
    Chains,
    CheckpointRow,
    Known,
    ListCursor,
    ListEntry,
    ListQuery,
    MetadataRow,
    NewRows,
    NewSegment,
    Refusal,
    RowUpdate,
    Save,
    Saved,
    SaveWrites,
    SegmentKind,
    SegmentRow,
    ThreadChanges,
    ThreadRef,
    ThreadRows,
)
from deltastore.core.overview import (
    NamespaceEntry,
    ThreadEntry,
    ThreadsQuery,
    namespace_entries,
    thread_entry,
    without_values,
)
from deltastore.core.survey import ThreadRow, ThreadSurvey, head_of
from deltastore.errors import BrokenChainError

_Key = TypeVar("_Key")
_Row = TypeVar("_Row")


@dataclass
class _Thread:
    """All rows of one thread."""

    ref: ThreadRef
    epoch: int
    checkpoints: dict[tuple[str, bytes], CheckpointRow] = field(default_factory=dict)
    segments: dict[int, SegmentRow] = field(default_factory=dict)
    metadata: dict[int, MetadataRow] = field(default_factory=dict)

    def copy(self, ref: ThreadRef, epoch: int) -> _Thread:
        return _Thread(ref, epoch, dict(self.checkpoints), dict(self.segments), dict(self.metadata))

    def writes(self, namespace: str, checkpoint_id: bytes | None) -> list[SegmentRow]:
        return [
            segment
            for segment in self.segments.values()
            if segment.kind is SegmentKind.WRITES
            and (segment.namespace, segment.checkpoint_id) == (namespace, checkpoint_id)
        ]

    def add_segment(self, number: int, namespace: str, checkpoint_id: bytes, new: NewSegment) -> int:
        self.segments[number] = SegmentRow(number, new.kind, namespace, checkpoint_id, new.payload, new.references)
        return number

    def found(self, segment_ids: Sequence[int]) -> list[SegmentRow]:
        return [self.segments[number] for number in dict.fromkeys(segment_ids) if number in self.segments]


class MemoryStorage:
    """Keeps rows in this process; they are gone with the object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._threads: dict[bytes, _Thread] = {}
        self._edits: dict[bytes, Future[None]] = {}

    async def setup(self) -> None:
        """Does nothing."""

    async def close(self) -> None:
        """Does nothing; the rows stay readable."""

    async def save(self, save: Save) -> Saved | Refusal:
        """Stores one checkpoint with its segments and metadata."""
        row = save.row
        async with self._no_edit(save.thread.key):
            thread = self._threads.get(save.thread.key)
            if thread is not None and row.key in thread.checkpoints:
                return Refusal.EXISTS
            parent = _parent_of(thread, row)
            if row.depth > 0 and (parent is None or parent.depth != row.depth - 1):
                return Refusal.STALE
            expected, found = save.parent_writes, thread.writes(row.namespace, row.parent_id) if thread else []
            if not self._is_current(thread, save.epoch) or (expected is not None and expected != len(found)):
                return Refusal.STALE
            thread = thread or self._create(save.thread)
            new_ids = tuple(
                thread.add_segment(next(self._numbers), row.namespace, row.checkpoint_id, new)
                for new in save.new_segments
            )
            if save.metadata is not None:
                thread.metadata.setdefault(save.metadata.metadata_id, save.metadata)
            thread.checkpoints[row.key] = replace(
                row,
                segments=new_ids + row.segments,
                orphaned=row.orphaned or (parent is not None and parent.hidden),
            )
            return Saved(thread.epoch, new_ids)

    async def save_writes(self, save: SaveWrites) -> Saved | Refusal:
        """Stores the writes of one `put_writes` call."""
        async with self._no_edit(save.thread.key):
            thread = self._threads.get(save.thread.key)
            if not self._is_current(thread, save.epoch):
                return Refusal.STALE
            thread = thread or self._create(save.thread)
            number = thread.add_segment(next(self._numbers), save.namespace, save.checkpoint_id, save.segment)
            return Saved(thread.epoch, (number,))

    async def load_chains(
        self, thread_key: bytes, namespace: str, checkpoint_ids: Sequence[bytes] | None, known: Known | None = None
    ) -> Chains | None:
        """Rows to rebuild the given checkpoints, or with None the head (largest visible id) of the namespace."""
        with self._lock:
            thread = self._threads.get(thread_key)
            if thread is None:
                return None
            if checkpoint_ids is None:
                checkpoint_ids = sorted(
                    (key for space, key in thread.checkpoints if space == namespace
                     and not thread.checkpoints[space, key].hidden), reverse=True
                )[:1]  # fmt: skip
            wanted = (thread.checkpoints.get((namespace, key)) for key in dict.fromkeys(checkpoint_ids))
            found = [row for row in wanted if row is not None]
            targets = [row for row in found if not row.hidden]
            ends = known.checkpoint_ids if known is not None and known.epoch == thread.epoch else ()
            rows = {row.key: row for each in found for row in _chain(thread, each, ends)}
            return Chains(
                thread=thread.ref,
                epoch=thread.epoch,
                targets=tuple(row.checkpoint_id for row in targets),
                rows=tuple(rows.values()),
                segments=tuple(_segments_of(thread, rows)),
                metadata=tuple(
                    thread.metadata[number]
                    for number in dict.fromkeys(row.metadata_id for row in targets)
                    if number in thread.metadata
                ),
            )

    async def load_segments(self, thread_key: bytes, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads; those that do not exist are left out."""
        with self._lock:
            thread = self._threads.get(thread_key)
            if thread is None:
                return []
            found = thread.found(segment_ids)
            repeated = {each for row in found if row.kind is SegmentKind.WRITES for each in row.references}
            return found + thread.found(sorted(repeated - set(segment_ids)))

    async def list_checkpoints(self, query: ListQuery) -> list[ListEntry]:
        """One page of visible checkpoints, newest first (see `ListCursor` for the order)."""
        with self._lock:
            matching = [each for thread in self._threads.values() for each in _matching(thread, query)]
            matching.sort(key=lambda each: each[0], reverse=True)
            return [_entry(thread, row) for _, thread, row in matching[: query.limit]]

    async def delete_thread(self, thread_key: bytes) -> None:
        """Removes every row of the thread. No such thread: nothing happens."""
        async with self._no_edit(thread_key):
            self._threads.pop(thread_key, None)

    async def copy_thread(self, source_key: bytes, target: ThreadRef) -> bool:
        """Copies all rows of a thread, consistent as of one moment. False if the target has rows already."""
        with self._lock:
            if target.key in self._threads:
                return False
            if source_key in self._threads:
                self._threads[target.key] = self._threads[source_key].copy(target, next(self._numbers))
            return True

    async def find_runs(self, run_ids: Sequence[str]) -> list[bytes]:
        """Keys of the threads that have a metadata document with one of these run ids."""
        with self._lock:
            return [
                key
                for key, thread in self._threads.items()
                if any(_run_id(metadata) in run_ids for metadata in thread.metadata.values())
            ]

    async def list_threads(self, after: bytes, limit: int) -> list[ThreadRef]:
        """Threads with a key larger than `after`, in the order of their keys."""
        with self._lock:
            return [self._threads[key].ref for key in sorted(key for key in self._threads if key > after)[:limit]]

    async def survey_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Keys larger than `after` under which anything is stored, in order."""
        return [thread.key for thread in await self.list_threads(after, limit)]

    @asynccontextmanager
    async def survey(self, thread_key: bytes) -> AsyncIterator[_MemorySurvey]:
        """Reads all rows under a key as of one moment."""
        with self._lock:
            thread = self._threads.get(thread_key)
            survey = _MemorySurvey(thread_key, thread and thread.copy(thread.ref, thread.epoch))
        yield survey

    async def newest_threads(self, query: ThreadsQuery) -> list[ThreadEntry]:
        """One page of threads, newest first, with their heads."""
        with self._lock:
            entries = (
                thread_entry(each.ref, each.checkpoints.values(), each.metadata, query)
                for each in self._threads.values()
            )
            found = [entry for entry in entries if entry is not None]
        return sorted(found, key=lambda entry: entry.cursor, reverse=True)[: query.limit]

    async def load_structures(
        self, thread_key: bytes, namespace: str, checkpoint_ids: Sequence[bytes]
    ) -> Chains | None:
        """Rows to rebuild the given checkpoints without their values."""
        chains = await self.load_chains(thread_key, namespace, checkpoint_ids)
        return None if chains is None else without_values(chains)

    async def namespaces(self, thread_key: bytes, after: str | None, limit: int) -> list[NamespaceEntry]:
        """The first namespaces of a thread behind a name."""
        with self._lock:
            thread = self._threads.get(thread_key)
            return [] if thread is None else namespace_entries(thread.checkpoints.values(), after, limit)

    @asynccontextmanager
    async def edit(self, thread_key: bytes) -> AsyncIterator[_MemoryEdit]:
        """Opens the thread for exclusive changes; they are kept if the edit ends without an error."""
        async with self._no_edit(thread_key):
            done: Future[None] = Future()
            self._edits[thread_key] = done
            thread = self._threads.get(thread_key)
            edit = _MemoryEdit(thread and thread.copy(thread.ref, thread.epoch), self._numbers)
        try:
            yield edit
        except BaseException:
            self._end_edit(thread_key, None, removed=False)
            raise
        self._end_edit(thread_key, edit.thread, removed=thread is not None and edit.thread is None)

    @asynccontextmanager
    async def _no_edit(self, thread_key: bytes) -> AsyncIterator[None]:
        """Waits until nobody edits the thread, and holds the lock; no await inside."""
        while True:
            with self._lock:
                editing = self._edits.get(thread_key)
                if editing is None:
                    yield
                    return
            await asyncio.shield(asyncio.wrap_future(editing))

    def _end_edit(self, thread_key: bytes, edited: _Thread | None, *, removed: bool) -> None:
        with self._lock:
            if edited is not None:
                self._threads[thread_key] = edited
            elif removed:
                del self._threads[thread_key]
            self._edits.pop(thread_key).set_result(None)

    def _is_current(self, thread: _Thread | None, epoch: int | None) -> bool:
        return epoch is None or (thread is not None and thread.epoch == epoch)

    def _create(self, ref: ThreadRef) -> _Thread:
        return self._threads.setdefault(ref.key, _Thread(ref, next(self._numbers)))


class _MemorySurvey:
    """The rows of one thread, None if there is no such thread."""

    def __init__(self, thread_key: bytes, thread: _Thread | None) -> None:
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
        )

    async def payloads(self, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads."""
        return self._thread.found(segment_ids) if self._thread else []


class _MemoryEdit:
    """The thread of one `edit`: a copy, None if there is no such thread."""

    def __init__(self, thread: _Thread | None, numbers: Iterator[int]) -> None:
        self.thread = thread
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
                segment if segment.kind is SegmentKind.PAGES else replace(segment, payload=b"")
                for segment in self.thread.segments.values()
            ),
            metadata=tuple((number, _run_id(metadata)) for number, metadata in self.thread.metadata.items()),
        )

    async def segments(self, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads; those that do not exist are left out."""
        return self.thread.found(segment_ids) if self.thread else []

    async def documents(self, metadata_ids: Sequence[int]) -> list[MetadataRow]:
        """Metadata documents; those that do not exist are left out."""
        stored = self.thread.metadata if self.thread else {}
        return [stored[number] for number in dict.fromkeys(metadata_ids) if number in stored]

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
        _drop(thread.metadata, changes.delete_metadata)
        if changes.removes:
            thread.epoch = next(self._numbers)

    async def remove(self) -> None:
        """Removes the thread when the edit ends."""
        self.thread = None

    async def restart(self, thread: ThreadRef) -> None:
        """Begins the thread anew, in the copy."""
        self.thread = _Thread(thread, next(self._numbers))

    async def numbers(self, count: int) -> Sequence[int]:
        """New segment ids."""
        return [next(self._numbers) for _ in range(count)]

    async def insert(self, rows: NewRows) -> None:
        """Adds rows to the copy."""
        assert self.thread is not None
        self.thread.checkpoints.update({row.key: row for row in rows.checkpoints})
        self.thread.segments.update({segment.segment_id: segment for segment in rows.segments})
        self.thread.metadata.update({metadata.metadata_id: metadata for metadata in rows.metadata})

    def _update(self, thread: _Thread, update: RowUpdate) -> None:
        row = update.row
        new_ids = tuple(thread.add_segment(next(self._numbers), *row.key, new) for new in update.new_segments)
        if row.key in thread.checkpoints:
            thread.checkpoints[row.key] = replace(row, segments=new_ids + row.segments)


def _drop(rows: dict[_Key, _Row], keys: Iterable[_Key]) -> None:
    for key in keys:
        rows.pop(key, None)


def _chain(thread: _Thread, row: CheckpointRow, ends: Collection[bytes]) -> Iterator[CheckpointRow]:
    """The row and its ancestors back to the anchor or the first of `ends`, as far as their depths fit."""
    yield row
    while row.depth > 0 and row.parent_id is not None and row.checkpoint_id not in ends:
        parent = thread.checkpoints.get((row.namespace, row.parent_id))
        if parent is None or parent.depth != row.depth - 1:
            return
        row = parent
        yield row


def _parent_of(thread: _Thread | None, row: CheckpointRow) -> CheckpointRow | None:
    """The row of a checkpoint's parent."""
    return None if thread is None or row.parent_id is None else thread.checkpoints.get((row.namespace, row.parent_id))


def _segments_of(thread: _Thread, rows: dict[tuple[str, bytes], CheckpointRow]) -> Iterator[SegmentRow]:
    """What the rows name and the writes to them."""
    named = {number for row in rows.values() for number in row.segments}
    for number, segment in thread.segments.items():
        is_write = segment.kind is SegmentKind.WRITES and (segment.namespace, segment.checkpoint_id) in rows
        if number in named or is_write:
            yield segment


def _matching(thread: _Thread, query: ListQuery) -> Iterator[tuple[ListCursor, _Thread, CheckpointRow]]:
    """The thread's checkpoints that the query asks for, with their places in the listing."""
    if query.thread_key is not None and query.thread_key != thread.ref.key:
        return
    for row in thread.checkpoints.values():
        cursor = ListCursor(row.checkpoint_id, thread.ref.key, row.namespace)
        if (
            not row.hidden
            and query.namespace in (None, row.namespace)
            and query.checkpoint_id in (None, row.checkpoint_id)
            and (query.before is None or row.checkpoint_id < query.before)
            and (query.cursor is None or cursor < query.cursor)
            and (query.document is None or _describes(thread.metadata.get(row.metadata_id), query.document))
        ):
            yield cursor, thread, row


def _describes(metadata: MetadataRow | None, document: str) -> bool:
    return metadata is not None and contains(metadata.document, document)


def _entry(thread: _Thread, row: CheckpointRow) -> ListEntry:
    metadata = thread.metadata.get(row.metadata_id)
    if metadata is None:
        raise BrokenChainError(f"metadata of a checkpoint of thread {thread.ref.thread_id!r} is missing")
    return ListEntry(thread.ref, row, metadata)


def _run_id(metadata: MetadataRow) -> str | None:
    """What PostgreSQL's `document ->> 'run_id'` gives."""
    run_id = json.loads(metadata.document).get("run_id")
    return run_id if run_id is None or isinstance(run_id, str) else json.dumps(run_id)
