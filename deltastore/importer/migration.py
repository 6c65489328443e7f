"""Moving threads from a source into deltastore.

Each thread lands in one transaction: it is there whole, or not at all. So a run that was killed leaves nothing half,
and the next one goes on with the threads that are missing. Rows are handed to the transaction as they are made, so a
thread of any size takes little memory.

A large thread (`PartLimits`) would have to be read from its beginning each time. So its rows are staged first, in
parts, each in a transaction of its own: bytes in a table that no reader looks at (`storage.Staging`, `parts.py`). When
all are there, one transaction makes the thread of them and removes them; the rows are deltas, so that is short against
the reading. After a kill the next run rebuilds what the first one knew from the parts (`replay.py`) and asks the source
for the rest. Parts that do not fit the source any more are made anew. A thread with parts goes on in parts, whatever
the limits are now. Pending writes without a checkpoint are not staged: they are read in the end.

A thread that is there already is left alone; a later pass with `since_last` looks at it too. It is imported anew, in
the same way, if the source has more than the target, and the target nothing that the source does not have. A thread
that went on in the target is never touched. With `latest_only` a thread is pruned before anyone sees it.

A thread that cannot be read exactly is reported and skipped. What ends a run is the database, or being cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from deltastore.conversion import validate
from deltastore.core.model import ThreadRef
from deltastore.errors import (
    DatabaseUnavailableError,
    DeltastoreError,
    InvalidConfigError,
    SchemaVersionError,
    StoredDataError,
    ThreadBusyError,
)
from deltastore.importer.builder import Numbers
from deltastore.importer.existing import Standing, heads, standing
from deltastore.importer.landing import Landing, PartLimits, Target, Visibility, landing_of
from deltastore.importer.parts import Parts, resume
from deltastore.importer.replay import Replay
from deltastore.importer.report import Outcome, Report, Status
from deltastore.importer.source import Node, OpenThread, SkipThread, Source, ThreadShape
from deltastore.importer.tree import order_of
from deltastore.importer.verify import Verifier, Verify, chosen
from deltastore.storage import ThreadEdit, ThreadView
from deltastore.structure import read_rows

STALE_SECONDS = 24 * 3600.0
"""Parts of a thread that the source does not have are removed when nobody added to them for so long."""

NO_CHECKPOINT = "the source has no checkpoint of this thread"


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
        limits: When a thread lands in parts.
    """

    thread_ids: Sequence[str] | None = None
    prefix: str = ""
    newer_than: str | None = None
    latest_only: bool = False
    since_last: bool = False
    verify: Verify = "sample"
    workers: int = 2
    limits: PartLimits = field(default_factory=PartLimits)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InvalidConfigError(f"workers must be at least 1, got {self.workers}")
        if self.verify not in ("sample", "full", "none"):
            raise InvalidConfigError(f"verify must be sample, full or none, got {self.verify!r}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be moved of one thread: all checkpoints in order, of which readers will see the wanted ones."""

    thread: ThreadRef
    shape: ThreadShape
    order: Sequence[Node]
    wanted: Mapping[tuple[str, str], Node]


LANDING = frozenset({Status.IMPORTED, Status.CAUGHT_UP})
"""What becomes of threads that are written."""


async def outcome_of(thread_id: str, work: Awaitable[Outcome]) -> Outcome:
    """What became of a thread: what it raised is its outcome, unless it would end every thread alike.

    Raises:
        DatabaseUnavailableError: One of the databases is away.
        SchemaVersionError: The target's schema is of another version.
    """
    try:
        return await work
    except ThreadBusyError as busy:
        return Outcome(thread_id, Status.FAILED, str(busy))
    except (DatabaseUnavailableError, SchemaVersionError):
        raise
    except SkipThread as reason:
        return Outcome(thread_id, Status.FAILED, str(reason))
    except Exception as error:  # noqa: BLE001 - one thread's trouble must not end the run
        return Outcome(thread_id, Status.FAILED, f"{type(error).__name__}: {error}")


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
        staged: Keys of the threads that had parts when the run began.
    """

    source: Source
    target: Target
    verifier: Verifier
    options: Options = field(default_factory=Options)
    progress: Callable[[Outcome], None] = lambda _: None
    advance: Callable[[int], None] = lambda _: None
    staged: set[bytes] = field(default_factory=set)

    async def run(self) -> Report:
        """Moves all threads.

        Raises:
            DatabaseError: One of the databases is away or refuses; threads that landed stay.
            InvalidConfigError: The source cannot list its threads.
        """
        report = Report()
        self.staged.update(each.thread.key for each in await self.target.engine.storage.staging().threads())
        queue: asyncio.Queue[str | None] = asyncio.Queue(2 * self.options.workers)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.options.workers):
                    group.create_task(self._work(queue, report))
                async for thread_id in self.thread_ids():
                    await queue.put(thread_id)
                for _ in range(self.options.workers):
                    await queue.put(None)
        except* DeltastoreError as group_error:
            raise group_error.exceptions[0] from None
        await self._drop_stale(report)
        return report

    async def thread_ids(self) -> AsyncIterator[str]:
        """The ids of the threads that the options ask for."""
        if self.options.thread_ids is not None:
            for thread_id in self.options.thread_ids:
                if thread_id.startswith(self.options.prefix):
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
        return await outcome_of(thread_id, self._opened(thread_id))

    async def _opened(self, thread_id: str) -> Outcome:
        thread = validate.thread(thread_id)
        if not self.options.since_last and await self._is_there(thread):
            return Outcome(thread_id, Status.PRESENT)
        async with self.source.open(thread_id) as opened:
            return await self._move(thread, opened)

    async def _is_there(self, thread: ThreadRef) -> bool:
        return await self.target.engine.storage.load_chains(thread.key, "", []) is not None

    async def _move(self, thread: ThreadRef, opened: OpenThread) -> Outcome:
        shape = await opened.shape()
        newer_than = self.options.newer_than
        if newer_than is not None and (shape.newest or "") <= newer_than:
            return Outcome(thread.thread_id, Status.FILTERED)
        order = order_of(shape.nodes)
        if not order:
            raise SkipThread(NO_CHECKPOINT)
        wanted = {node.key: node for node in order}
        if self.options.latest_only:
            wanted = heads(wanted)
        plan = Plan(thread, shape, order, wanted)
        if thread.key in self.staged or self.options.limits.are_reached(shape):
            return await self._move_in_parts(plan, opened)
        landing = landing_of(thread, self.target, order, self.advance)
        async with self.target.engine.storage.edit(thread.key) as edit:
            status, reason = await self._standing(edit, plan)
            if status in LANDING:
                await self._land(edit, plan, opened, landing, None)
        return await self._landed(plan, opened, landing, status, reason)

    async def _move_in_parts(self, plan: Plan, opened: OpenThread) -> Outcome:
        storage, key = self.target.engine.storage, plan.thread.key
        async with storage.view(key) as view:
            status, reason = await self._standing(view, plan)
        if status not in LANDING:
            await storage.staging().drop(key)
            return await self._left_alone(plan, opened, status, reason)
        parts, landing = await self._stage(plan, opened)
        async with storage.edit(key) as edit:
            status, reason = await self._standing(edit, plan)
            if status in LANDING:
                await self._land(edit, plan, opened, landing, parts)
            await edit.unstage()
        return await self._landed(plan, opened, landing, status, reason)

    async def _stage(self, plan: Plan, opened: OpenThread) -> tuple[Parts, Landing]:
        """Adds the parts that are missing."""
        storage, target, thread = self.target.engine.storage, self.target, plan.thread

        async def take_numbers(count: int) -> Sequence[int]:
            async with storage.edit(thread.key) as edit:
                return await edit.numbers(count)

        ignored = target.engine.options.ignored_channels
        parts, replay, before, dropped = await resume(
            storage.staging(), thread, lambda: Replay(thread, plan.shape, ignored, target.cipher)
        )
        landing = landing_of(thread, target, plan.order, self.advance, replay)
        landing.limits, landing.before = self.options.limits, before
        landing.builder.numbers = Numbers(take_numbers)
        if dropped is not None:
            landing.notes.append(f"some of its staged parts were made anew: {dropped}")
        async for rows in landing.checkpoints(opened):
            await parts.add(rows)
        return parts, landing

    async def _standing(self, view: ThreadView, plan: Plan) -> tuple[Status, str]:
        """What is to become of a thread, and why."""
        rows = await read_rows(view, self.target.cipher)
        if rows is None:
            return Status.IMPORTED, ""
        found, reason = await standing(view, rows, plan.shape, plan.wanted, self.target.cipher)
        if found is Standing.BEHIND:
            return Status.CAUGHT_UP, ""
        return (Status.PRESENT if found is Standing.SAME else Status.DIVERGED), reason

    async def _land(
        self, edit: ThreadEdit, plan: Plan, opened: OpenThread, landing: Landing, parts: Parts | None
    ) -> None:
        """Makes the thread, of its parts or right from the source."""
        await edit.restart(plan.thread)
        landing.builder.numbers = Numbers(edit.numbers)
        visibility = Visibility(plan.wanted.keys(), len(plan.order))
        async for rows in landing.checkpoints(opened) if parts is None else parts.all():
            await edit.insert(visibility.marked(rows))
        await edit.insert(await landing.orphans(opened))
        if self.options.latest_only:
            await self.target.engine.maintenance.keep_latest_in(edit, self.target.cipher)

    async def _landed(self, plan: Plan, opened: OpenThread, landing: Landing, status: Status, reason: str) -> Outcome:
        """The outcome of a thread, which is compared first if it was written."""
        if status not in LANDING:
            return await self._left_alone(plan, opened, status, reason)
        thread = plan.thread
        self.target.engine.cache.forget(thread.key)
        compared = chosen(list(plan.wanted.values()), self.options.verify)
        try:
            await self.verifier.verify(thread, opened, compared, plan.order, is_cut_off=self.options.latest_only)
        except Exception as error:
            failed = await self._failed(plan, error)
            if isinstance(error, DatabaseUnavailableError | SchemaVersionError):
                raise
            raise failed from error
        self.target.engine.cache.forget(thread.key)
        return Outcome(
            thread.thread_id,
            status,
            notes=tuple(landing.notes),
            checkpoints=len(plan.wanted),
            verified=len(compared),
            source_bytes=plan.shape.source_bytes,
            target_bytes=landing.builder.payload_bytes,
        )

    async def _left_alone(self, plan: Plan, opened: OpenThread, status: Status, reason: str) -> Outcome:
        """The outcome of a thread that is not written. One that is the same is compared, if all is to be proved."""
        thread, options = plan.thread, self.options
        if status is not Status.PRESENT or options.verify != "full" or options.latest_only:
            return Outcome(thread.thread_id, status, reason)
        try:
            await self.verifier.verify(thread, opened, plan.order, plan.order)
        except SkipThread as difference:
            reason = f"it has the checkpoints and pending writes of the source, but {difference}"
            return Outcome(thread.thread_id, Status.DIVERGED, reason)
        finally:
            self.target.engine.cache.forget(thread.key)
        return Outcome(thread.thread_id, status, checkpoints=len(plan.order), verified=len(plan.order))

    async def _failed(self, plan: Plan, error: Exception) -> SkipThread:
        """Removes a thread whose copy is not proved, unless it went on in the target since it landed."""
        found = str(error) if isinstance(error, SkipThread) else f"{type(error).__name__}: {error}"
        try:
            async with self.target.engine.storage.edit(plan.thread.key) as edit:
                status, reason = await self._standing(edit, plan)
                if status is not Status.DIVERGED:
                    await edit.remove()
        except StoredDataError as unreadable:
            return SkipThread(f"its copy stays unproved, as it cannot be read: delete it in the target ({unreadable})")
        self.target.engine.cache.forget(plan.thread.key)
        if status is Status.DIVERGED:
            return SkipThread(f"it went on in the target while it was compared ({reason}): {found}")
        return SkipThread(f"verification failed, the target's copy was removed: {found}")

    async def _drop_stale(self, report: Report) -> None:
        """Removes parts that no run will go on with."""
        staging = self.target.engine.storage.staging()
        for staged in await staging.threads():
            thread = staged.thread
            if staged.idle_seconds < STALE_SECONDS:
                continue
            if await self._is_there(thread) or not await self._is_in_source(thread.thread_id):
                await staging.drop(thread.key)
                report.dropped.append(thread.thread_id)

    async def _is_in_source(self, thread_id: str) -> bool:
        try:
            async with self.source.open(thread_id) as opened:
                return bool((await opened.shape()).nodes)
        except SkipThread:
            return True
