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

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import TypeVar

from deltastore.cache import Cache
from deltastore.core import metadata as metadatas
from deltastore.core.chain import describe
from deltastore.core.frame import Cipher, unseal
from deltastore.core.identifiers import THREAD_KEY_BYTES
from deltastore.core.model import (
    CheckpointRow,
    LockBounds,
    RowUpdate,
    SegmentKind,
    ThreadChanges,
    ThreadOutline,
    ThreadRef,
    ThreadRows,
)
from deltastore.core.payload import checkpoint_binding, unpack_volatile
from deltastore.core.retained import RetentionFailure, RetentionReport, Tally
from deltastore.core.retention import Decision, Facts, RetentionPolicy, decide, id_seconds, timestamp_seconds
from deltastore.core.sweep import RowKey, changed_marks, supported, sweep, thin
from deltastore.errors import BrokenChainError, DatabaseUnavailableError, SchemaVersionError, ThreadBusyError
from deltastore.loaded import MISSING_HINT
from deltastore.options import EngineOptions
from deltastore.storage import Storage, ThreadEdit, ThreadView
from deltastore.structure import Structure, anchored, drafted_references, read_structure, renumbered

T = TypeVar("T")

THREADS_PER_PAGE = 100
UNLOCKED_ATTEMPTS = 4
STATEMENT_MS = 10_000
SHORT_WAIT, LONG_WAIT = LockBounds(20, STATEMENT_MS), LockBounds(1000, STATEMENT_MS)
OFF_LOOP_ROWS = 200
"""Threads with more rows than this are computed in a thread, so that the event loop goes on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with one thread.

    Attributes:
        rule: The position of the rule that decided, or None.
        decision: What is to go.
        changes: What follows from it, unless the whole thread goes.
        freed_bytes: Payloads that go, less what is written in their place.
    """

    rule: int | None
    decision: Decision
    changes: ThreadChanges
    freed_bytes: int

    def __bool__(self) -> bool:
        return self.decision.whole_thread or bool(self.changes)


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
        one = _Pass(self, policy, cipher, dry_run, time() if now_seconds is None else now_seconds)
        await one.run()
        return one.tally.report(policy, dry_run=dry_run, elapsed_seconds=monotonic() - one.started)

    def choose(self, policy: RetentionPolicy, cipher: Cipher | None, *, now_seconds: float | None = None) -> Choice:
        """Which threads a pass would delete as a whole, for who wants to do something else with them."""
        return Choice(_Pass(self, policy, cipher, True, time() if now_seconds is None else now_seconds))

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
    policy: RetentionPolicy
    cipher: Cipher | None
    dry_run: bool
    now_seconds: float
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
            await self.retention.storage.forget_deletions(self.policy.remember_deletions_seconds)

    async def candidates(self) -> AsyncIterator[ThreadRef]:
        """The threads that are worth a closer look."""
        async for outline in self.retention.outlines():
            self.tally.seen += 1
            if outline.pinned:
                self.tally.pinned += 1
            elif self._may_concern(outline):
                yield outline.thread

    def _may_concern(self, outline: ThreadOutline) -> bool:
        """Whether some rule may remove something, or something hidden may go."""
        times = {(namespace, each): id_seconds(each) for namespace, each, hidden in outline.checkpoints if not hidden}
        facts = Facts(times, outline.created_seconds)
        if any(hidden and not self._is_young(each) for _, each, hidden in outline.checkpoints):
            return True
        has_unknown = None in times.values()
        rules = self.policy.rules
        return any(decide(rule, facts, self.now_seconds) or (has_unknown and rule.has_ages) for rule in rules)

    def _is_young(self, checkpoint_id: bytes) -> bool:
        seconds = id_seconds(checkpoint_id)
        return seconds is not None and self.now_seconds - seconds < self.policy.grace_seconds

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
                rows = await view.rows()
                plan = await self._plan(view, rows)
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
            plan = await self._plan(edit, await edit.rows())
            if plan:
                await _change(edit, plan)
        self._released(thread, held)
        return plan

    def _released(self, thread: ThreadRef, held: float) -> None:
        self.tally.lock_ms_max = max(self.tally.lock_ms_max, (monotonic() - held) * 1000)
        self.retention.cache.forget(thread.key)

    async def _plan(self, view: ThreadView, rows: ThreadRows | None) -> Plan | None:
        """What is to be done with a thread; None if there is none, or if it is pinned."""
        if rows is None or rows.pinned:
            return None
        position, decision = await self.decide(view, rows)
        if decision.whole_thread:
            ids = [segment.segment_id for segment in rows.segments], [each for each, _ in rows.metadata]
            freed_bytes = sum(len(row.payload) for row in rows.checkpoints) + await view.payload_bytes(*ids)
            return Plan(position if decision.checkpoints else None, decision, ThreadChanges(), freed_bytes)
        if position is None:
            return None
        changes = await self._changes(view, rows, decision)
        removed_bytes = await view.payload_bytes(changes.delete_segments, changes.delete_metadata) if changes else 0
        return Plan(position, decision, changes, removed_bytes + _row_bytes(rows, changes))

    async def decide(self, view: ThreadView, rows: ThreadRows) -> tuple[int | None, Decision]:
        """The rule that decides about a thread, and what is to go."""
        visible = [row for row in rows.checkpoints if not row.hidden]
        position = await self._rule_of(view, rows, visible)
        rule = None if position is None else self.policy.rules[position]
        times = {row.key: id_seconds(row.checkpoint_id) for row in visible}
        if rule is not None and rule.has_ages and None in times.values():
            times |= await self._times_in_headers(view, rows, [row for row in visible if times[row.key] is None])
        return position, decide(rule, Facts(times, rows.created_seconds), self.now_seconds)

    async def _rule_of(self, view: ThreadView, rows: ThreadRows, visible: Sequence[CheckpointRow]) -> int | None:
        if not visible or not self.policy.has_filters:
            return 0
        first = min(row.namespace for row in visible)
        head = max((row for row in visible if row.namespace == first), key=lambda row: row.checkpoint_id)
        documents = await view.documents([head.metadata_id])
        if not documents:
            where = describe(rows.thread, head.namespace, head.checkpoint_id)
            raise BrokenChainError(f"{where}: its metadata is missing", hint=MISSING_HINT)
        plain = unseal(head.payload, associated=checkpoint_binding(head), cipher=self.cipher)
        return self.policy.rule_of({**json.loads(documents[0].document), **metadatas.join(unpack_volatile(plain), {})})

    async def _times_in_headers(
        self, view: ThreadView, rows: ThreadRows, unknown: Sequence[CheckpointRow]
    ) -> dict[RowKey, float | None]:
        structure = await self._structure(view, rows, unknown)

        def times() -> dict[RowKey, float | None]:
            return {row.key: timestamp_seconds(_timestamp(structure, row)) for row in unknown}

        return await _run(len(rows.checkpoints), times)

    async def _changes(self, view: ThreadView, rows: ThreadRows, decision: Decision) -> ThreadChanges:
        """What makes the decision true, and leaves nothing that no visible checkpoint or guest needs."""
        thinned = thin(rows.checkpoints, set(decision.checkpoints))
        guests = self._guests(thinned)
        if not decision and all(not row.hidden or row.key in guests for row in thinned.values()):
            return ThreadChanges()
        anchors = [row for row in rows.checkpoints if row.depth > 0 and thinned[row.key].depth == 0]
        structure = await self._structure(view, rows, anchors)
        awaited = self._awaited(rows)
        return await _run(len(rows.checkpoints), lambda: _changes(structure, thinned, guests, awaited, self.cipher))

    def _guests(self, thinned: Mapping[RowKey, CheckpointRow]) -> set[RowKey]:
        """Hidden rows that a run may be building on: young, and nothing builds on them yet."""
        parents = {(row.namespace, row.parent_id) for row in thinned.values()}
        return {
            key
            for key, row in thinned.items()
            if row.hidden and key not in parents and self._is_young(row.checkpoint_id)
        }

    def _awaited(self, rows: ThreadRows) -> set[int]:
        """Writes whose checkpoint may be under way."""
        stored = {row.key for row in rows.checkpoints}
        return {
            segment.segment_id
            for segment in rows.segments
            if segment.kind is SegmentKind.WRITES
            and (segment.namespace, segment.checkpoint_id) not in stored
            and self._is_young(segment.checkpoint_id)
        }

    async def _structure(self, view: ThreadView, rows: ThreadRows, folded: Iterable[CheckpointRow]) -> Structure:
        return await read_structure(view, rows, folded, self.retention.options.ignored_channels, self.cipher)


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
        _, decision = await self._pass.decide(view, rows)
        return decision.whole_thread and bool(decision.checkpoints)


def _changes(
    structure: Structure,
    thinned: Mapping[RowKey, CheckpointRow],
    guests: set[RowKey],
    awaited: set[int],
    cipher: Cipher | None,
) -> ThreadChanges:
    rows = structure.rows
    needed_rows = {key: replace(row, hidden=row.hidden and key not in guests) for key, row in thinned.items()}
    kept = supported(needed_rows)
    updates: list[RowUpdate] = []
    needed: dict[RowKey, set[int]] = {}
    for stored in rows.checkpoints:
        row = thinned[stored.key]
        if stored.key not in kept or row.depth == stored.depth:
            continue
        if row.depth == 0:
            update, drafted = anchored(structure, stored, row, cipher)
            updates.append(update)
            needed[stored.key] = drafted_references(drafted)
        else:
            updates.append(renumbered(stored, row, cipher))
    needed |= structure.needs(kept - needed.keys())
    swept = sweep(needed_rows, needed, rows.segments, [each for each, _ in rows.metadata], rows.epoch, awaited)
    marks = {key: (row.hidden, row.orphaned) for key, row in thinned.items()}
    return replace(changed_marks(rows, marks, swept), updates=tuple(updates))


async def _change(edit: ThreadEdit, plan: Plan) -> None:
    if plan.decision.whole_thread:
        await edit.remove()
    else:
        await edit.apply(plan.changes)


def _row_bytes(rows: ThreadRows, changes: ThreadChanges) -> int:
    """Payloads of rows that go or are rewritten, less what is written."""
    stored = {row.key: len(row.payload) for row in rows.checkpoints}
    written = [update.row.payload for update in changes.updates]
    written += [segment.payload for update in changes.updates for segment in update.new_segments]
    gone = [*changes.delete_checkpoints, *(update.row.key for update in changes.updates)]
    return sum(stored[key] for key in gone) - sum(map(len, written))


def _timestamp(structure: Structure, row: CheckpointRow) -> str | None:
    return structure.chains[row.namespace].state(row.checkpoint_id).header.timestamp


async def _run(rows: int, function: Callable[[], T]) -> T:
    """Calls a function, in a thread if there is much to compute."""
    return await asyncio.to_thread(function) if rows > OFF_LOOP_ROWS else function()
