"""What retention does with one thread, computed from what is read of it; nothing is changed here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from deltastore.core import metadata as metadatas
from deltastore.core.chain import describe
from deltastore.core.edits import RowUpdate, ThreadChanges, ThreadOutline, ThreadRows
from deltastore.core.frame import Cipher, unseal
from deltastore.core.model import CheckpointRow, ListQuery, MetadataRow, SegmentKind
from deltastore.core.payload import checkpoint_binding, unpack_volatile
from deltastore.core.retention import Decision, Facts, RetentionPolicy, decide, id_seconds, timestamp_seconds
from deltastore.core.sweep import RowKey, changed_marks, supported, sweep, thin
from deltastore.errors import BrokenChainError, StoredDataError
from deltastore.loaded import MISSING_HINT
from deltastore.storage import Storage, ThreadView
from deltastore.structure import Structure, anchored, drafted_references, read_structure, renumbered

T = TypeVar("T")

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
class Planner:
    """Decides about threads by one policy, at one time.

    Attributes:
        policy: What is to stay.
        cipher: Opens and seals ciphered payloads.
        now_seconds: The time that ages are counted to.
        ignored: Channels that never get a history.
    """

    policy: RetentionPolicy
    cipher: Cipher | None
    now_seconds: float
    ignored: frozenset[str]

    async def concerns(self, outline: ThreadOutline, storage: Storage) -> bool:
        """Whether a thread is worth a closer look: its rule removes something, or something hidden may go.

        The metadata of its head is looked at only if that depends on which rule it is.
        """
        times = {(namespace, each): id_seconds(each) for namespace, each, hidden in outline.checkpoints if not hidden}
        facts = Facts(times, outline.created_seconds)
        has_unknown = None in times.values()
        answers = [
            bool(decide(rule, facts, self.now_seconds)) or (has_unknown and rule.has_ages) for rule in self.policy.rules
        ]
        if any(hidden and not self._is_young(each) for _, each, hidden in outline.checkpoints):
            return True
        if not any(answers) or not self.policy.has_filters or not times:
            return any(answers)
        head = ListQuery(outline.thread.key, min(namespace for namespace, _ in times), limit=1)
        try:
            entries = await storage.list_checkpoints(head)
            position = self._rule_for(entries[0].row, entries[0].metadata) if entries else None
        except StoredDataError:
            return True  # the closer look says what is wrong
        return position is not None and answers[position]

    def _is_young(self, checkpoint_id: bytes) -> bool:
        seconds = id_seconds(checkpoint_id)
        return seconds is not None and self.now_seconds - seconds < self.policy.grace_seconds

    async def plan(self, view: ThreadView, rows: ThreadRows | None) -> Plan | None:
        """What is to be done with a thread; None if there is none, or if it is pinned."""
        if rows is None or rows.pinned:
            return None
        position, decision = await self.decide(view, rows)
        if decision.whole_thread:
            ids = sorted(rows.stored_ids), [each for each, _ in rows.metadata]
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
        return self._rule_for(head, documents[0])

    def _rule_for(self, head: CheckpointRow, document: MetadataRow) -> int | None:
        plain = unseal(head.payload, associated=checkpoint_binding(head), cipher=self.cipher)
        return self.policy.rule_of({**json.loads(document.document), **metadatas.join(unpack_volatile(plain), {})})

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
        """Writes to checkpoints that are not there and young: under way, or removed a while ago (`_unconsumed`)."""
        stored = {row.key for row in rows.checkpoints}
        return {
            segment.segment_id
            for segment in rows.segments
            if segment.kind is SegmentKind.WRITES
            and (segment.namespace, segment.checkpoint_id) not in stored
            and self._is_young(segment.checkpoint_id)
        }

    async def _structure(self, view: ThreadView, rows: ThreadRows, folded: Iterable[CheckpointRow]) -> Structure:
        return await read_structure(view, rows, folded, self.ignored, self.cipher)


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
    wanted = _unconsumed(structure, awaited)
    swept = sweep(needed_rows, needed, rows.segments, [each for each, _ in rows.metadata], rows.epoch, wanted)
    marks = {key: (row.hidden, row.orphaned) for key, row in thinned.items()}
    return replace(changed_marks(rows, marks, swept), updates=tuple(updates))


def _unconsumed(structure: Structure, writes: set[int]) -> set[int]:
    """Those of the writes that no stored row names: whoever names writes was put after their checkpoint arrived."""
    if not writes:
        return writes
    return writes.difference(*structure.needs(row.key for row in structure.rows.checkpoints).values())


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
