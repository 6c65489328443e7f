"""Moving threads from a source into deltastore.

Each thread lands in one transaction: it is there whole, or not at all. So a run that was killed leaves nothing half,
and the next one goes on with the threads that are missing. Rows are handed to the transaction as they are made, so a
thread of any size takes little memory; deltas are so much smaller than what they come from that no thread is too large.

A thread that is there already is left alone; a later pass with `since_last` looks at it too. It is imported anew, again
in one transaction, if the source has more than the target, and the target nothing that the source does not have. A
thread that went on in the target is never touched.

A thread that cannot be read exactly is reported and skipped. What ends a run is the database, or being cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from deltastore.conversion import validate
from deltastore.core.codec import Codec
from deltastore.core.frame import Cipher
from deltastore.core.model import CheckpointRow, NewRows, ThreadRef
from deltastore.engine import Engine
from deltastore.errors import (
    DatabaseError,
    DatabaseUnavailableError,
    InvalidConfigError,
    SchemaVersionError,
    StoredDataError,
)
from deltastore.importer.builder import Numbers, TakeNumbers, ThreadBuilder
from deltastore.importer.existing import Standing, heads, standing
from deltastore.importer.report import Outcome, Report, Status
from deltastore.importer.source import Node, OpenThread, SkipThread, Source, ThreadShape
from deltastore.importer.tree import Ancestors, order_of
from deltastore.importer.verify import Verifier, Verify, chosen

BATCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Options:
    """What to migrate, and how.

    Attributes:
        thread_ids: Only these threads; None for all.
        prefix: Only threads whose id begins with this.
        newer_than: Only threads with a checkpoint newer than this time, in ISO form.
        latest_only: Only the newest checkpoint of each namespace stays visible.
        since_last: Look at threads that are in the target already, and catch up.
        verify: Which checkpoints to load from both sides and compare.
        workers: How many threads at the same time.
    """

    thread_ids: Sequence[str] | None = None
    prefix: str = ""
    newer_than: str | None = None
    latest_only: bool = False
    since_last: bool = False
    verify: Verify = "sample"
    workers: int = 2

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InvalidConfigError(f"workers must be at least 1, got {self.workers}")
        if self.verify not in ("sample", "full", "none"):
            raise InvalidConfigError(f"verify must be sample, full or none, got {self.verify!r}")


@dataclass(frozen=True, slots=True)
class Target:
    """Where threads go.

    Attributes:
        engine: Over the target's storage, with the options that the saver will have.
        codec: The saver's.
        cipher: The saver's, if it encrypts.
    """

    engine: Engine
    codec: Codec
    cipher: Cipher | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    """One run.

    Attributes:
        source: Where threads come from.
        target: Where they go.
        verifier: Compares both.
        options: What to migrate, and how.
        progress: Told each thread's outcome when it is done.
        advance: Told how many source bytes were read since it was last told.
    """

    source: Source
    target: Target
    verifier: Verifier
    options: Options = field(default_factory=Options)
    progress: Callable[[Outcome], None] = lambda _: None
    advance: Callable[[int], None] = lambda _: None

    async def run(self) -> Report:
        """Moves all threads.

        Raises:
            DatabaseError: One of the databases is away or refuses; threads that landed stay.
        """
        report = Report()
        queue: asyncio.Queue[str | None] = asyncio.Queue(2 * self.options.workers)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.options.workers):
                    group.create_task(self._work(queue, report))
                async for thread_id in self.thread_ids():
                    await queue.put(thread_id)
                for _ in range(self.options.workers):
                    await queue.put(None)
        except* DatabaseError as group_error:
            raise group_error.exceptions[0] from None
        return report

    async def thread_ids(self) -> AsyncIterator[str]:
        """The ids of the threads that the options ask for."""
        if self.options.thread_ids is not None:
            for thread_id in self.options.thread_ids:
                yield thread_id
            return
        async with aclosing(self.source.threads()) as found:  # type: ignore[type-var]
            async for thread_id in found:
                if thread_id.startswith(self.options.prefix):
                    yield thread_id

    async def _work(self, queue: asyncio.Queue[str | None], report: Report) -> None:
        while (thread_id := await queue.get()) is not None:
            outcome = await self.move(thread_id)
            report.add(outcome)
            self.progress(outcome)

    async def move(self, thread_id: str) -> Outcome:
        """Moves one thread. Raises what would end every thread alike; everything else that happens is the outcome.

        Raises:
            DatabaseUnavailableError: One of the databases is away.
            SchemaVersionError: The target's schema is of another version.
        """
        try:
            thread = validate.thread(thread_id)
            if not self.options.since_last and await self._is_there(thread):
                return Outcome(thread_id, Status.PRESENT)
            async with self.source.open(thread_id) as opened:
                return await self._move(thread, opened)
        except (DatabaseUnavailableError, SchemaVersionError):
            raise
        except SkipThread as reason:
            return Outcome(thread_id, Status.FAILED, str(reason))
        except Exception as error:  # noqa: BLE001 - one thread's trouble must not end the run
            return Outcome(thread_id, Status.FAILED, f"{type(error).__name__}: {error}")

    async def _is_there(self, thread: ThreadRef) -> bool:
        return await self.target.engine.storage.load_chains(thread.key, "", []) is not None

    async def _move(self, thread: ThreadRef, opened: OpenThread) -> Outcome:
        shape = await opened.shape()
        newer_than = self.options.newer_than
        if newer_than is not None and (shape.newest or "") <= newer_than:
            return Outcome(thread.thread_id, Status.FILTERED)
        order = order_of(shape.nodes)
        if not order:
            return Outcome(thread.thread_id, Status.FAILED, "the source has no checkpoint of this thread")
        outcome = Outcome(thread.thread_id, Status.IMPORTED, checkpoints=len(order), source_bytes=shape.source_bytes)
        wanted = {node.key: node for node in order}
        if self.options.latest_only:
            wanted = heads(wanted)
        async with self.target.engine.storage.edit(thread.key) as edit:
            rows = await edit.rows()
            if rows is not None:
                found, reason = await standing(edit, rows, shape, wanted, self.target.cipher)
                if found is not Standing.BEHIND:
                    status = Status.PRESENT if found is Standing.SAME else Status.DIVERGED
                    return Outcome(thread.thread_id, status, reason)
                outcome = replace(outcome, status=Status.CAUGHT_UP)
            await edit.restart(thread)
            landing = Landing(thread, self.target, edit.numbers, order, wanted.keys(), self.advance)
            async for batch in landing.batches(opened):
                await edit.insert(batch)
        self.target.engine.cache.forget(thread.key)
        if self.options.latest_only:
            await self.target.engine.maintenance.keep_latest(thread.key, self.target.cipher)
        compared = chosen(list(wanted.values()), self.options.verify)
        try:
            await self.verifier.verify(thread, opened, compared, is_cut_off=self.options.latest_only)
        except (SkipThread, StoredDataError) as error:
            raise await self._failed(thread, shape, wanted, error) from error
        self.target.engine.cache.forget(thread.key)
        return replace(
            outcome,
            checkpoints=len(wanted),
            verified=len(compared),
            target_bytes=landing.builder.payload_bytes,
            notes=tuple(landing.notes),
        )

    async def _failed(
        self, thread: ThreadRef, shape: ThreadShape, wanted: Mapping[tuple[str, str], Node], error: Exception
    ) -> SkipThread:
        """Removes a thread whose copy is wrong, unless it went on in the target since it landed."""
        async with self.target.engine.storage.edit(thread.key) as edit:
            rows = await edit.rows()
            if rows is not None:
                found, reason = await standing(edit, rows, shape, wanted, self.target.cipher)
                if found is Standing.DIVERGED:
                    return SkipThread(f"it went on in the target while it was compared ({reason}): {error}")
        await self.target.engine.maintenance.delete_thread(thread.key)
        return SkipThread(f"verification failed, the target's copy was removed: {error}")


class Landing:
    """The rows of one thread, in batches.

    Args:
        thread: The thread.
        target: Where it goes.
        take_numbers: Gives segment ids.
        order: Its checkpoints.
        visible: Which of them readers will see.
        advance: Told how many source bytes were read.
    """

    def __init__(
        self,
        thread: ThreadRef,
        target: Target,
        take_numbers: TakeNumbers,
        order: Sequence[Node],
        visible: Collection[tuple[str, str]],
        advance: Callable[[int], None],
    ) -> None:
        self.notes: list[str] = []
        self.builder = ThreadBuilder(
            thread, target.codec, target.cipher, target.engine.options, Numbers(take_numbers), Ancestors(order)
        )
        self._order = order
        self._advance = advance
        shown = {(validate.namespace(name), validate.checkpoint_key(key)) for name, key in visible}
        self._shown = None if len(shown) == len(order) else shown

    async def batches(self, opened: OpenThread) -> AsyncIterator[NewRows]:
        """Reads the thread. Raises `SkipThread` and `CallerError`."""
        async for checkpoint in opened.checkpoints(self._order):
            await self.builder.add(checkpoint)
            self._advance(checkpoint.source_bytes)
            if self.builder.waiting_bytes > BATCH_BYTES:
                yield self._rows()
        async for node, writes in opened.orphans():
            await self.builder.add_writes(node, writes)
            self.notes.append(
                f"namespace {node.namespace!r}: {len(writes)} pending writes to checkpoint {node.checkpoint_id!r}, "
                "which does not exist; they were taken over"
            )
        yield self._rows()

    def _rows(self) -> NewRows:
        rows = self.builder.take_rows()
        if self._shown is None:
            return rows
        return replace(rows, checkpoints=tuple(self._marked(row) for row in rows.checkpoints))

    def _marked(self, row: CheckpointRow) -> CheckpointRow:
        shown = self._shown or set()
        orphaned = row.parent_id is not None and (row.namespace, row.parent_id) not in shown
        return replace(row, hidden=row.key not in shown, orphaned=orphaned)
