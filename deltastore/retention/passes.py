"""Applies a retention policy to all threads: hide, then sweep, one thread after the other.

A pass reads the keys of all checkpoints, page by page in the order of the thread keys, and takes a closer look at the
threads that a rule may concern. For each of them:

1. its structure is read as of one moment, without a lock;
2. what is to go is decided (`core/retention.py`), and all that follows from it is computed: survivors whose parent goes
   become anchors, so that no survivor needs what is hidden, and what nobody needs is removed;
3. the thread is locked, for as long as it takes to prove that it has not changed, and to apply what was computed.

A dry run does 1 and 2, so it foretells exactly what a run does. Where the thread changed meanwhile, all begins again;
after some attempts everything is done under the lock. A thread that others hold is passed over and tried again at the
end. Nothing is remembered between passes, each begins at a random key, and a thread where nothing is left to do is not
locked: so the next pass goes on where one was stopped, and several at once share the work.

A save that finds its thread changed loads again and goes on; one whose parent went may fail. So the newest checkpoint
of a branch that goes while it is young is hidden but stays, with its chain, as a *guest*: a run is perhaps building on
it. A later pass removes it.

A thread that cannot be read exactly is left as it is and reported, and so is one that cannot be changed in time.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import monotonic, time

from deltastore.cache import Cache
from deltastore.core.edits import LockBounds, ThreadOutline, ThreadRows
from deltastore.core.frame import Cipher
from deltastore.core.identifiers import THREAD_KEY_BYTES
from deltastore.core.model import ThreadRef
from deltastore.core.retained import RetentionFailure, RetentionReport, Tally
from deltastore.core.retention import RetentionPolicy
from deltastore.errors import DatabaseUnavailableError, SchemaVersionError, ThreadBusyError
from deltastore.options import EngineOptions
from deltastore.retention.planning import Plan, Planner
from deltastore.storage import Storage, ThreadEdit, ThreadView
from deltastore.structure import read_rows

THREADS_PER_PAGE = 100
UNLOCKED_ATTEMPTS = 4
STATEMENT_MS = 10_000
SHORT_WAIT, LONG_WAIT = LockBounds(20, STATEMENT_MS), LockBounds(1000, STATEMENT_MS)


@dataclass(frozen=True, slots=True)
class Retention:
    """Applies policies to the threads of a storage."""

    storage: Storage
    cache: Cache
    options: EngineOptions

    async def retain(
        self, policy: RetentionPolicy, cipher: Cipher | None, *, dry_run: bool = False, now_seconds: float | None = None
    ) -> RetentionReport:
        """One pass over all threads.

        Args:
            policy: What is to stay.
            cipher: Opens and seals ciphered payloads.
            dry_run: Only say what would be done.
            now_seconds: The time that ages are counted to, in seconds since 1970; None for the time of the call.

        Raises:
            DatabaseUnavailableError: The database is away. What was done until then stays.
            SchemaVersionError: The schema is of another version.
        """
        one = _Pass(self, self._planner(policy, cipher, now_seconds), dry_run)
        await one.run()
        return one.tally.report(policy, dry_run=dry_run, elapsed_seconds=monotonic() - one.started)

    def choose(self, policy: RetentionPolicy, cipher: Cipher | None, *, now_seconds: float | None = None) -> Choice:
        """Which threads a pass would delete as a whole, for who wants to do something else with them."""
        return Choice(_Pass(self, self._planner(policy, cipher, now_seconds), dry_run=True))

    def _planner(self, policy: RetentionPolicy, cipher: Cipher | None, now_seconds: float | None) -> Planner:
        return Planner(policy, cipher, time() if now_seconds is None else now_seconds, self.options.ignored_channels)

    async def outlines(self) -> AsyncIterator[ThreadOutline]:
        """All threads, from a random place in the order of their keys around to it."""
        start = secrets.token_bytes(THREAD_KEY_BYTES)
        for first, last in ((start, None), (b"", start)):
            after = first
            while page := await self.storage.outline_threads(after, THREADS_PER_PAGE):
                for outline in page:
                    if last is not None and outline.thread.key > last:
                        return
                    yield outline
                after = page[-1].thread.key


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass: what it was asked for, and what it has found."""

    retention: Retention
    planner: Planner
    dry_run: bool
    tally: Tally = field(default_factory=Tally)
    started: float = field(default_factory=monotonic)

    async def run(self) -> None:
        """Looks at every thread, then again at those that others held."""
        async for thread in self.candidates():
            await self._look_at(thread, SHORT_WAIT)
        waiting = [*self.tally.busy]
        self.tally.busy.clear()
        for thread in waiting:
            await self._look_at(thread, LONG_WAIT)
        if not self.dry_run:
            await self.retention.storage.forget_deletions(self.planner.policy.remember_deletions_seconds)

    async def candidates(self) -> AsyncIterator[ThreadRef]:
        """The threads that are worth a closer look."""
        async for outline in self.retention.outlines():
            self.tally.seen += 1
            if outline.pinned:
                self.tally.pinned += 1
            elif await self.planner.concerns(outline, self.retention.storage):
                yield outline.thread

    async def _look_at(self, thread: ThreadRef, bounds: LockBounds) -> None:
        """Does what is to be done with one thread; its trouble does not end the pass."""
        try:
            plan = await self._apply(thread, bounds)
        except ThreadBusyError:
            self.tally.busy.append(thread)
        except (DatabaseUnavailableError, SchemaVersionError):
            raise
        except Exception as error:  # noqa: BLE001 - one thread's trouble must not end the pass
            self.tally.failures.append(RetentionFailure(thread.thread_id, f"{type(error).__name__}: {error}"))
        else:
            if plan:
                self.tally.add(plan.rule, plan.decision, plan.freed_bytes)

    async def _apply(self, thread: ThreadRef, bounds: LockBounds) -> Plan | None:
        storage = self.retention.storage
        for _ in range(UNLOCKED_ATTEMPTS):
            async with storage.view(thread.key) as view:
                rows = await read_rows(view, self.planner.cipher)
                plan = await self.planner.plan(view, rows)
            if self.dry_run or rows is None or not plan:
                return plan
            async with storage.edit(thread.key, bounds) as edit:
                held = monotonic()
                is_done = await edit.is_still(rows)
                if is_done:
                    await _change(edit, plan)
            self._released(thread, held)
            if is_done:
                return plan
        async with storage.edit(thread.key, bounds) as edit:
            held = monotonic()
            plan = await self.planner.plan(edit, await read_rows(edit, self.planner.cipher))
            if plan:
                await _change(edit, plan)
        self._released(thread, held)
        return plan

    def _released(self, thread: ThreadRef, held: float) -> None:
        self.tally.lock_ms_max = max(self.tally.lock_ms_max, (monotonic() - held) * 1000)
        self.retention.cache.forget(thread.key)


@dataclass(frozen=True, slots=True)
class Choice:
    """Threads that a policy would delete as a whole. Made by `Retention.choose`."""

    _pass: _Pass

    def candidates(self) -> AsyncIterator[ThreadRef]:
        """Threads that may be among them; `includes` is sure."""
        return self._pass.candidates()

    async def includes(self, view: ThreadView, rows: ThreadRows) -> bool:
        """Whether the thread, as it is seen here, would be deleted as a whole; not if it never got a checkpoint.

        Raises:
            StoredDataError: The thread cannot be read.
        """
        if rows.pinned:
            return False
        _, decision = await self._pass.planner.decide(view, rows)
        return decision.whole_thread and bool(decision.checkpoints)


async def _change(edit: ThreadEdit, plan: Plan) -> None:
    if plan.decision.whole_thread:
        await edit.remove()
    else:
        await edit.apply(plan.changes)
