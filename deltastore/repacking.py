"""Compaction of a thread: its segments re-packed into large ones, in place.

1. The structure and the segments that are not in packs yet are read as of one moment, without a lock.
2. They are compressed together and read back, in a thread of their own, so that the event loop goes on.
3. Under the thread's lock, for as long as it takes to prove that nothing has changed and to exchange rows: segments
   out, packs in. The epoch moves on, so that a save that counted the parent's writes counts again; ids stay.

No checkpoint is rewritten, and whatever ends a run, at any moment, the thread is as it was or as it is to be. A large
thread takes several rounds, each with the oldest segments that are left, so that memory is bounded.

A second run finds nothing to do. What came since is packed by the next one, together with the last pack as long as
that one is small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from deltastore.cache import Cache
from deltastore.core.chain import open_plain
from deltastore.core.compacted import CompactedThread, Compaction
from deltastore.core.edits import LockBounds, ThreadChanges, ThreadRows
from deltastore.core.frame import Cipher, declared_bytes
from deltastore.core.model import SegmentKind, SegmentRow, ThreadRef
from deltastore.core.packing import grouped, has_room, open_pack, seal_pack, unpacked, unpacked_rows
from deltastore.errors import BrokenChainError, ThreadBusyError
from deltastore.loaded import MISSING_HINT
from deltastore.storage import Storage, ThreadView

ATTEMPTS = 4
BATCH_SEGMENTS = 500
FIRST_BATCH_SEGMENTS = 8
ROUND_BYTES = 64 * 1024 * 1024
"""Plain bytes after which a round ends."""

ROW_BYTES = 100
"""About what a row costs besides its payload: header, keys and index entries."""

BOUNDS = LockBounds(wait_ms=1000, statement_ms=60_000)

Wanted = Callable[[ThreadView, ThreadRows], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class _Round:
    """What one round does: the rows that go, and the packs that come."""

    rows: ThreadRows
    gone: Sequence[SegmentRow] = ()
    packs: tuple[SegmentRow, ...] = ()

    @property
    def before_bytes(self) -> int:
        return sum(len(row.payload) for row in self.gone)

    @property
    def after_bytes(self) -> int:
        return sum(len(pack.payload) for pack in self.packs)

    @property
    def is_worth_it(self) -> bool:
        """Whether the thread gets smaller by it."""
        freed_rows = len(self.gone) - len(self.packs)
        return self.before_bytes + ROW_BYTES * freed_rows > self.after_bytes

    @property
    def changes(self) -> ThreadChanges:
        gone = tuple(row.segment_id for row in self.gone)
        return ThreadChanges(delete_segments=gone, packs=self.packs)

    def outcome(self, status: Compaction) -> CompactedThread:
        counts = len(self.gone), len(self.packs), self.before_bytes, self.after_bytes
        return CompactedThread(self.rows.thread.thread_id, status, "", *counts)


@dataclass(frozen=True, slots=True)
class Repacking:
    """Compacts threads.

    Attributes:
        storage: Where they are.
        cache: What is remembered of them.
    """

    storage: Storage
    cache: Cache

    async def compact(
        self, thread: ThreadRef, cipher: Cipher | None, wanted: Wanted | None = None, *, dry_run: bool = False
    ) -> CompactedThread:
        """Compacts one thread.

        Args:
            thread: The thread.
            cipher: Opens and seals ciphered payloads.
            wanted: Asked about the thread as it is when it is read: whether it is still to be compacted. None for yes.
            dry_run: Change nothing; the outcome says what would become of it (of a large one, in the first round).

        Returns:
            What became of it; all rounds together.

        Raises:
            ThreadBusyError: It is written to or held by others all the time.
            StoredDataError: It is damaged.
            UnserializableValueError: A segment is too large to be packed.
            DatabaseError: The database is away; the thread is as it was, or compacted.
        """
        total = CompactedThread(thread.thread_id, Compaction.UNCHANGED)
        while True:
            outcome = await self._round(thread, cipher, wanted, dry_run)
            if outcome.status is not Compaction.COMPACTED:
                return total if total.segments else outcome
            total = _sum(total, outcome)

    async def _round(
        self, thread: ThreadRef, cipher: Cipher | None, wanted: Wanted | None, dry_run: bool
    ) -> CompactedThread:
        """One round, tried again while others write to the thread."""
        for _ in range(ATTEMPTS):
            async with self.storage.view(thread.key) as view:
                rows = await view.rows()
                if rows is None:
                    return CompactedThread(thread.thread_id, Compaction.MISSING, "there is no such thread")
                if wanted is not None and not await wanted(view, unpacked_rows(rows, cipher)):
                    return CompactedThread(rows.thread.thread_id, Compaction.KEPT)
                gone = await self._chosen(view, rows)
            planned = _Round(rows, gone, await asyncio.to_thread(_packs, rows.thread, gone, cipher))
            if not gone or not planned.is_worth_it:
                return CompactedThread(rows.thread.thread_id, Compaction.UNCHANGED)
            if dry_run:
                return planned.outcome(Compaction.COUNTED)
            async with self.storage.edit(thread.key, BOUNDS) as edit:
                is_done = await edit.is_still(rows)
                if is_done:
                    await edit.apply(planned.changes)
            if is_done:
                self.cache.forget(thread.key)
                return planned.outcome(Compaction.COMPACTED)
        raise ThreadBusyError(
            f"thread {thread.thread_id!r} was not compacted: it was written to during each of {ATTEMPTS} attempts",
            hint="run it again when nobody works on the thread",
        )

    async def _chosen(self, view: ThreadView, rows: ThreadRows) -> list[SegmentRow]:
        """The rows of this round with their payloads, by id: the oldest ones that are not packed, and a small pack."""
        packs = sorted((row for row in rows.segments if row.kind is SegmentKind.PACK), key=lambda row: row.segment_id)
        loose = sorted(row.segment_id for row in rows.segments if row.kind is not SegmentKind.PACK)
        chosen: list[SegmentRow] = []
        if loose and packs and has_room(packs[-1]):
            chosen.append(packs[-1])
        at, plain_bytes, batch_segments = 0, 0, min(FIRST_BATCH_SEGMENTS, BATCH_SEGMENTS)
        while at < len(loose) and plain_bytes <= ROUND_BYTES:
            batch = loose[at : at + batch_segments]
            found = {row.segment_id: row for row in await view.segments(batch)}
            if missing := [each for each in batch if each not in found]:
                raise BrokenChainError(
                    f"thread {rows.thread.thread_id!r}: segments {missing} are missing", hint=MISSING_HINT
                )
            chosen += [found[each] for each in batch]
            batch_bytes = 1 + sum(declared_bytes(found[each].payload) for each in batch)
            at, plain_bytes = at + len(batch), plain_bytes + batch_bytes
            batch_segments = max(1, min(2 * batch_segments, BATCH_SEGMENTS, ROUND_BYTES * len(batch) // batch_bytes))
        return chosen


def _packs(thread: ThreadRef, rows: Sequence[SegmentRow], cipher: Cipher | None) -> tuple[SegmentRow, ...]:
    """The rows as packs. Raises `StoredDataError`, `UnserializableValueError`."""
    plain = (
        row if row.pack_id is not None else replace(row, payload=open_plain(thread, row, cipher))
        for row in unpacked(thread, rows, cipher)
    )
    return tuple(_proved_pack(group, cipher) for group in grouped(plain))


def _proved_pack(segments: Sequence[SegmentRow], cipher: Cipher | None) -> SegmentRow:
    """A pack that was read back: the rows that it replaces are deleted. Raises as `seal_pack` and `open_pack`."""
    pack = seal_pack(segments, cipher)
    if open_pack(pack, cipher) != tuple(replace(segment, pack_id=pack.segment_id) for segment in segments):
        raise AssertionError("a pack does not hold what was packed: a defect of deltastore")
    return pack


def _sum(total: CompactedThread, outcome: CompactedThread) -> CompactedThread:
    """Both together, with the last one's status."""
    return replace(
        outcome,
        segments=total.segments + outcome.segments,
        packs=total.packs + outcome.packs,
        before_bytes=total.before_bytes + outcome.before_bytes,
        after_bytes=total.after_bytes + outcome.after_bytes,
    )
