"""The `Storage` protocol on dicts.

One lock guards the dicts and is held only between awaits, so that any event loop and any thread may call. An edit works
on a copy of its thread, which replaces the thread when the edit ends well; meanwhile everything else that changes the
thread waits, and reads see the thread as it was.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

from deltastore.core.counting import count as count_rows
from deltastore.core.counting import count_days
from deltastore.core.edits import LockBounds, ThreadOutline
from deltastore.core.model import (
    Chains,
    CheckpointRow,
    Known,
    ListEntry,
    ListQuery,
    Refusal,
    Save,
    Saved,
    SaveWrites,
    SegmentKind,
    SegmentRow,
    ThreadRef,
)
from deltastore.core.overview import (
    NamespaceEntry,
    ThreadEntry,
    ThreadsQuery,
    namespace_entries,
    thread_entry,
    without_values,
)
from deltastore.core.statistics import Counts, Day
from deltastore.errors import ThreadBusyError
from deltastore.memory.listing import list_entry, matching_checkpoints
from deltastore.memory.staging import MemoryStaging
from deltastore.memory.thread import MemoryEdit, MemoryRepair, MemorySurvey, MemoryThread, run_id_of


class MemoryStorage:
    """Keeps rows in this process; they are gone with the object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._threads: dict[bytes, MemoryThread] = {}
        self._edits: dict[bytes, Future[None]] = {}
        self._tombstones: dict[bytes, tuple[float, bytes]] = {}
        self._staging = MemoryStaging()

    async def setup(self) -> None:
        """Does nothing."""

    async def close(self) -> None:
        """Does nothing; the rows stay readable."""

    async def save(self, save: Save) -> Saved | Refusal:
        """Stores one checkpoint with its segments and metadata."""
        row = save.row
        async with self._no_edit(save.thread.key):
            thread = self._threads.get(save.thread.key)
            parent = _parent_of(thread, row)
            if parent is None and (refusal := self._refusal(thread, save)):
                return refusal
            if thread is not None and row.key in thread.checkpoints:
                return Refusal.EXISTS
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
            return Saved(thread.epoch, new_ids, is_amid_packs=bool(thread.packs_around([row.checkpoint_id])))

    async def save_writes(self, save: SaveWrites) -> Saved | Refusal:
        """Stores the writes of one `put_writes` call."""
        async with self._no_edit(save.thread.key):
            thread = self._threads.get(save.thread.key)
            if refusal := self._refusal(thread, save):
                return refusal
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
            repeating = (SegmentKind.WRITES, SegmentKind.PACK)
            repeated = {each for row in found if row.kind in repeating for each in row.references}
            more = thread.found(sorted(repeated - set(segment_ids)))
            return found + [row for row in more if row not in found]

    async def list_checkpoints(self, query: ListQuery) -> list[ListEntry]:
        """One page of visible checkpoints, newest first (see `ListCursor` for the order)."""
        with self._lock:
            matching = [each for thread in self._threads.values() for each in matching_checkpoints(thread, query)]
            matching.sort(key=lambda each: each[0], reverse=True)
            return [list_entry(thread, row) for _, thread, row in matching[: query.limit]]

    async def delete_thread(self, thread_key: bytes) -> None:
        """Removes every row of the thread, and remembers that. No such thread: nothing happens."""
        async with self._no_edit(thread_key):
            self._delete(thread_key)

    async def extend_deletion(self, thread_key: bytes, checkpoint_id: bytes) -> bool:
        """Takes note that a checkpoint was not saved; whether its thread was deleted and is not there."""
        with self._lock:
            if thread_key not in self._tombstones:
                return False
            deleted_at, through = self._tombstones[thread_key]
            self._tombstones[thread_key] = deleted_at, max(through, checkpoint_id)
            return thread_key not in self._threads

    async def forget_deletion(self, thread_key: bytes) -> bool:
        """Forgets that the thread was deleted; whether it was known to be."""
        with self._lock:
            return self._tombstones.pop(thread_key, None) is not None

    async def forget_deletions(self, older_than_seconds: float) -> None:
        """Forgets all deletions that are older than this."""
        with self._lock:
            for key, (deleted_at, _) in [*self._tombstones.items()]:
                if deleted_at < time.time() - older_than_seconds:
                    del self._tombstones[key]

    async def pin(self, thread_key: bytes, pinned: bool) -> bool:
        """Sets or takes away the mark that exempts a thread from retention. False if there is no such thread."""
        async with self._no_edit(thread_key):
            if thread_key in self._threads:
                self._threads[thread_key].pinned = pinned
            return thread_key in self._threads

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
                if any(run_id_of(metadata) in run_ids for metadata in thread.metadata.values())
            ]

    async def list_threads(self, after: bytes, limit: int) -> list[ThreadRef]:
        """Threads with a key larger than `after`, in the order of their keys."""
        with self._lock:
            return [self._threads[key].ref for key in sorted(key for key in self._threads if key > after)[:limit]]

    async def survey_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Keys larger than `after` under which anything is stored, in order."""
        return [thread.key for thread in await self.list_threads(after, limit)]

    async def count(self, days: Sequence[tuple[int, bytes]], limit: int) -> Counts:
        """Counts everything."""
        with self._lock:
            return count_rows(list(self._threads.values()), days, limit)

    async def count_days(self, thread_key: bytes, days: Sequence[tuple[int, bytes]]) -> tuple[Day, ...]:
        """What each day brought to one thread."""
        with self._lock:
            thread = self._threads.get(thread_key)
            return count_days([] if thread is None else [thread], days)

    @asynccontextmanager
    async def survey(self, thread_key: bytes) -> AsyncIterator[MemorySurvey]:
        """Reads all rows under a key as of one moment."""
        with self._lock:
            thread = self._threads.get(thread_key)
            survey = MemorySurvey(thread_key, thread and thread.edited())
        yield survey

    async def newest_threads(self, query: ThreadsQuery) -> list[ThreadEntry]:
        """One page of threads, newest first, with their heads."""
        with self._lock:
            entries = (
                thread_entry(each.bare_entry(), each.checkpoints.values(), each.metadata, query)
                for each in self._threads.values()
            )
            found = [entry for entry in entries if entry is not None and (entry.pinned or not query.pinned)]
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

    async def outline_threads(self, after: bytes, limit: int) -> list[ThreadOutline]:
        """A page of threads as `list_threads`, with the keys of their checkpoints."""
        with self._lock:
            threads = [self._threads[key] for key in sorted(key for key in self._threads if key > after)[:limit]]
            return [
                ThreadOutline(
                    thread.ref,
                    thread.pinned,
                    thread.created_seconds,
                    tuple((*row.key, row.hidden) for row in thread.checkpoints.values()),
                )
                for thread in threads
            ]

    @asynccontextmanager
    async def view(self, thread_key: bytes) -> AsyncIterator[MemoryEdit]:
        """Opens the thread for reading, as of one moment."""
        with self._lock:
            thread = self._threads.get(thread_key)
            view = MemoryEdit(thread and thread.edited(), self._numbers)
        yield view

    def staging(self) -> MemoryStaging:
        """Where parts of threads are kept until these are whole."""
        return self._staging

    @asynccontextmanager
    async def repair(self, thread_key: bytes) -> AsyncIterator[MemoryRepair]:
        """Opens the thread for a repair."""
        async with self.edit(thread_key) as edit:
            yield MemoryRepair(thread_key, edit)

    @asynccontextmanager
    async def edit(self, thread_key: bytes, bounds: LockBounds | None = None) -> AsyncIterator[MemoryEdit]:
        """Opens the thread for exclusive changes; they are kept if the edit ends without an error."""
        edit = await self._begin_edit(thread_key, bounds)
        try:
            yield edit
        except BaseException:
            self._end_edit(thread_key, None)
            raise
        self._end_edit(thread_key, edit)

    async def _begin_edit(self, thread_key: bytes, bounds: LockBounds | None) -> MemoryEdit:
        try:
            async with asyncio.timeout(None if bounds is None else bounds.wait_ms / 1000), self._no_edit(thread_key):
                self._edits[thread_key] = Future()
                thread = self._threads.get(thread_key)
                return MemoryEdit(thread and thread.edited(), self._numbers)
        except TimeoutError as error:
            raise ThreadBusyError(f"the thread with key {thread_key.hex()} is in use by others") from error

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

    def _end_edit(self, thread_key: bytes, edit: MemoryEdit | None) -> None:
        with self._lock:
            if edit is not None and edit.is_removed:
                self._delete(thread_key)
            elif edit is not None and edit.thread is not None:
                self._threads[thread_key] = edit.thread
            if edit is not None and edit.is_unstaged:
                self._staging.drop_now(thread_key)
            self._edits.pop(thread_key).set_result(None)

    def _delete(self, thread_key: bytes) -> None:
        thread = self._threads.pop(thread_key, None)
        largest_id = b"" if thread is None else thread.largest_id()
        if largest_id:
            _, before = self._tombstones.get(thread_key, (0.0, b""))
            self._tombstones[thread_key] = time.time(), max(before, largest_id)

    def _refusal(self, thread: MemoryThread | None, save: Save | SaveWrites) -> Refusal | None:
        """Whether a save names a checkpoint of a deleted thread, and has no parent that is there."""
        tombstone = self._tombstones.get(save.thread.key)
        parent_id = save.row.parent_id if isinstance(save, Save) else None
        if tombstone is None:
            return None
        if parent_id is not None and (thread is None or parent_id <= tombstone[1]):
            return Refusal.DELETED
        if thread is not None or save.held_id is None:
            return None
        return Refusal.DELETED if save.held_id <= tombstone[1] else Refusal.EARLY

    def _is_current(self, thread: MemoryThread | None, epoch: int | None) -> bool:
        return epoch is None or (thread is not None and thread.epoch == epoch)

    def _create(self, ref: ThreadRef) -> MemoryThread:
        return self._threads.setdefault(ref.key, MemoryThread(ref, next(self._numbers)))


def _chain(thread: MemoryThread, row: CheckpointRow, ends: Collection[bytes]) -> Iterator[CheckpointRow]:
    """The row and its ancestors back to the anchor or the first of `ends`, as far as their depths fit."""
    yield row
    while row.depth > 0 and row.parent_id is not None and row.checkpoint_id not in ends:
        parent = thread.checkpoints.get((row.namespace, row.parent_id))
        if parent is None or parent.depth != row.depth - 1:
            return
        row = parent
        yield row


def _parent_of(thread: MemoryThread | None, row: CheckpointRow) -> CheckpointRow | None:
    """The row of a checkpoint's parent."""
    return None if thread is None or row.parent_id is None else thread.checkpoints.get((row.namespace, row.parent_id))


def _segments_of(thread: MemoryThread, rows: dict[tuple[str, bytes], CheckpointRow]) -> Iterator[SegmentRow]:
    """What the rows name, the writes to them, and packs that may hold such writes."""
    named = set(map(thread.holders(), (number for row in rows.values() for number in row.segments)))
    named |= {pack.segment_id for pack in thread.packs_around(checkpoint_id for _, checkpoint_id in rows)}
    for number, segment in thread.segments.items():
        is_write = segment.kind is SegmentKind.WRITES and (segment.namespace, segment.checkpoint_id) in rows
        if number in named or is_write:
            yield segment
