"""What a repair does to a thread: decided here, from what verification found, and shown before it is done.

- Rows that were changed in columns their payload is bound to get the columns that it was made for.
- A checkpoint that is *lost* goes into quarantine, with what only it needs: loads and lists do not trip over it any
  more, and nothing is destroyed.
- A checkpoint that can be rebuilt, but is built on a lost one, becomes an anchor; what builds on it is renumbered.
- Readers are told that there is no parent where there is none any more.
- Damaged segments and metadata, and what nothing needs, go into quarantine.
- Of equal rows under one key one stays. A lost row of the thread itself is made again if its id is known.
- The searchable form of metadata is written again from the exact one.

Left alone is what a key, a module or a person has to decide about (`findings.UNTOUCHED`). If anything cannot be
decrypted, all of the thread is left alone: what cannot be read cannot be judged. Nothing is ever guessed: every
checkpoint that remains loads as it did, or as it would have without the damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from deltastore.core.draft import anchor_draft
from deltastore.core.edits import RowUpdate, ThreadChanges
from deltastore.core.findings import Kind, Place, place_of, shown
from deltastore.core.frame import seal, unseal
from deltastore.core.model import CheckpointRow, SegmentKind, SegmentRow, ThreadRef
from deltastore.core.opened import OpenedRow
from deltastore.core.payload import CheckpointPayload, checkpoint_binding
from deltastore.core.sealing import seal_row
from deltastore.core.survey import Removal, Repairs
from deltastore.core.sweep import RowKey, references
from deltastore.core.verify import Inspection

_DAMAGED = frozenset({Kind.PAYLOAD, Kind.DUPLICATE})


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a repair, in words.

    Attributes:
        verb: What is done: `quarantine`, `re-anchor`, `renumber`, `mend`, `cut off`, `keep one`, `restore`, `rewrite`.
        row: To which row.
        detail: Why, or how.
        at: The checkpoint that the row belongs to, or None.
    """

    verb: str
    row: str
    detail: str
    at: Place | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A repair.

    Attributes:
        actions: What is done, in words; none if there is nothing that a repair can do.
        repairs: The same for the storage.
        refusal: Why nothing is done, although there is damage; else empty.
    """

    actions: tuple[Action, ...] = ()
    repairs: Repairs | None = None
    refusal: str = ""


def plan(inspection: Inspection) -> Plan:
    """Plans the repair of a thread whose inspection is finished."""
    faults = [fault for fault in inspection.opening.faults if not fault.is_notice]
    if not faults:
        return Plan()
    if any(fault.kind is Kind.CIPHER for fault in faults):
        return Plan(refusal="a part of it cannot be decrypted: give the key that it was written with")
    if inspection.opening.thread_id is None:
        return Plan(refusal="its id is not known: name the thread by its id")
    return _Planner(inspection).plan()


@dataclass(slots=True)
class _Planner:
    inspection: Inspection
    actions: list[Action] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    updates: dict[RowKey, RowUpdate] = field(default_factory=dict)
    marks: dict[RowKey, tuple[bool, bool]] = field(default_factory=dict)
    needed: set[int] = field(default_factory=set)

    def plan(self) -> Plan:
        inspection, opening = self.inspection, self.inspection.opening
        walked = inspection.walk.walked
        lost = {key for key in opening.rows if walked[key].is_lost}
        self._restore_thread()
        self._mend(lost)
        self._reanchor(lost)
        self._cut_off(lost)
        self._quarantine_copies()
        self._quarantine_checkpoints(lost)
        self._quarantine_segments(lost)
        self._quarantine_metadata(lost)
        for metadata_id in opening.projections:
            self._act("rewrite", f"metadata {metadata_id}", "its searchable form, from the exact one")
        if not self.actions:
            return Plan(refusal="what was found needs a decision, a module or a key, not a repair")
        assert opening.thread_id is not None
        changes = ThreadChanges(
            updates=tuple(self.updates.values()),
            marks=tuple((*key, *marks) for key, marks in self.marks.items()),
        )
        repairs = Repairs(
            ThreadRef(inspection.survey.key, opening.thread_id),
            any(fault.kind is Kind.DUPLICATE for fault in opening.faults),
            tuple(self.removals),
            changes,
            tuple(opening.projections.items()),
        )
        return Plan(tuple(self.actions), repairs)

    def _act(self, verb: str, row: str, detail: str, key: RowKey | None = None) -> None:
        self.actions.append(Action(verb, row, detail, None if key is None else place_of(key)))

    def _restore_thread(self) -> None:
        for fault in self.inspection.opening.faults:
            if fault.kind is Kind.THREAD:
                self._act("restore", fault.row, f"with the id {self.inspection.opening.thread_id!r}")
            elif fault.kind is Kind.DUPLICATE and fault.is_mendable:
                self._act("keep one", fault.row, fault.detail, fault.key)

    def _mend(self, lost: set[RowKey]) -> None:
        for key, opened in self.inspection.opening.rows.items():
            if opened.row is not opened.stored and key not in lost:
                self.updates[key] = RowUpdate(opened.row)
                reasons = [
                    fault.detail for fault in self.inspection.opening.faults if fault.key == key and fault.is_mendable
                ]
                self._act("mend", f"checkpoint {shown(key[1])}", "; ".join(reasons), key)

    def _reanchor(self, lost: set[RowKey]) -> None:
        """Rows that are built on lost ones become anchors."""
        rows, cipher = self.inspection.opening.rows, self.inspection.cipher
        children: dict[RowKey, list[OpenedRow]] = {}
        for opened in rows.values():
            if opened.row.depth > 0 and opened.row.parent_id is not None and opened.row.key not in lost:
                children.setdefault((opened.row.namespace, opened.row.parent_id), []).append(opened)
        for key, state in self.inspection.walk.states.items():
            opened = rows[key]
            assert opened.payload is not None
            drafted = anchor_draft(state, [])
            row = replace(opened.row, depth=0, segments=drafted.old_pages)
            payload = CheckpointPayload(opened.payload.volatile, drafted.body)
            sealed, segments = seal_row(row, payload, drafted, cipher)
            self.updates[key] = RowUpdate(sealed, segments)
            self.needed |= {each for each in references(payload, row) if each >= 0} | set(drafted.old_pages)
            self._act("re-anchor", f"checkpoint {shown(key[1])}", "it can be rebuilt, and what it builds on goes", key)
            self._renumber(opened, children)

    def _renumber(self, top: OpenedRow, children: dict[RowKey, list[OpenedRow]]) -> None:
        """Rows that build on a new anchor get their distance to it."""
        cipher = self.inspection.cipher
        waiting = [*children.get(top.row.key, ())]
        while waiting:
            row = waiting.pop().row
            renumbered = replace(row, depth=row.depth - top.row.depth)
            plain = unseal(row.payload, associated=checkpoint_binding(row), cipher=cipher)
            payload = seal(plain, associated=checkpoint_binding(renumbered), cipher=cipher)
            self.updates[row.key] = RowUpdate(replace(renumbered, payload=payload))
            self._act("renumber", f"checkpoint {shown(row.checkpoint_id)}", f"depth {renumbered.depth}", row.key)
            waiting += children.get(row.key, ())

    def _cut_off(self, lost: set[RowKey]) -> None:
        """Rows whose parent is not there say so."""
        opening = self.inspection.opening
        circles = {fault.key for fault in opening.faults if fault.kind is Kind.CYCLE}
        for key, opened in opening.rows.items():
            parent_id = opened.row.parent_id
            if key in lost or parent_id is None or opened.row.orphaned:
                continue
            parent = key[0], parent_id
            in_circle = key in circles and opened.row is opened.stored
            if parent not in opening.rows or parent in lost or in_circle:
                self._mark_orphaned(opened.row)

    def _mark_orphaned(self, row: CheckpointRow) -> None:
        key = row.key
        update = self.updates.get(key)
        if update is None:
            self.marks[key] = row.hidden, True
        else:
            self.updates[key] = replace(update, row=replace(update.row, orphaned=True))
        self._act("cut off", f"checkpoint {shown(key[1])}", "readers are told that it has no parent", key)

    def _quarantine_copies(self) -> None:
        """Damaged copies of rows that are stored once more, and are sound there."""
        for row in self.inspection.opening.spoilt:
            removal = Removal("a damaged copy of a sound row", payload=row.payload)
            if isinstance(row, CheckpointRow):
                self.removals.append(replace(removal, checkpoint=row.key))
            elif isinstance(row, SegmentRow):
                self.removals.append(replace(removal, segment_id=row.segment_id))
            else:
                self.removals.append(replace(removal, metadata_id=row.metadata_id))

    def _quarantine_checkpoints(self, lost: set[RowKey]) -> None:
        walked = self.inspection.walk.walked
        for key in sorted(lost):
            faults = walked[key].own | walked[key].chain
            reason = min((f"{fault.row}: {fault.detail}" for fault in faults), default="it cannot be rebuilt")
            self.removals.append(Removal(reason, checkpoint=key))
            self._act("quarantine", f"checkpoint {shown(key[1])}", reason, key)

    def _quarantine_segments(self, lost: set[RowKey]) -> None:
        opening = self.inspection.opening
        needed, unneeded = set(self.needed), set(self.inspection.orphan_segments)
        for key in opening.rows.keys() - self.inspection.walk.states.keys():
            (unneeded if key in lost else needed).update(self.inspection.needs(key))
        for segment_id, segment in opening.segments.items():
            key = segment.head.namespace, segment.head.checkpoint_id
            if key in lost:
                unneeded.add(segment_id)
            elif segment.head.kind == SegmentKind.WRITES:
                needed.add(segment_id)
        spare = self.inspection.closure(unneeded) - self.inspection.closure(needed)
        self._quarantine_packs(spare)
        for segment_id, segment in sorted(opening.segments.items()):
            fault = segment.fault
            if segment.head.pack_id is not None:
                continue
            is_damaged = fault is not None and fault.kind in _DAMAGED
            if is_damaged or segment_id in spare:
                reason = fault.detail if fault is not None and is_damaged else "nothing that stays needs it"
                key = segment.head.namespace, segment.head.checkpoint_id
                self.removals.append(Removal(reason, segment_id=segment_id))
                self._act("quarantine", f"segment {segment_id}", reason, key)

    def _quarantine_packs(self, spare: set[int]) -> None:
        """Packs that do not open, and those in which there is nothing but what nothing needs."""
        opening = self.inspection.opening
        held: dict[int, set[int]] = {}
        for segment_id, segment in opening.segments.items():
            held.setdefault(segment.head.pack_id or 0, set()).add(segment_id)
        for pack_id, pack in sorted(opening.packs.packs.items()):
            is_damaged = pack.fault is not None and pack.fault.kind in _DAMAGED
            if is_damaged or (pack.fault is None and pack_id in held and held[pack_id] <= spare):
                reason = pack.fault.detail if pack.fault is not None else "nothing that stays needs what it holds"
                self.removals.append(Removal(reason, segment_id=pack_id))
                self._act("quarantine", f"pack {pack_id}", reason)

    def _quarantine_metadata(self, lost: set[RowKey]) -> None:
        opening = self.inspection.opening
        used = {opened.row.metadata_id for key, opened in opening.rows.items() if key not in lost}
        for metadata_id, fault in sorted(opening.documents.items()):
            is_damaged = fault is not None and fault.kind in _DAMAGED
            if is_damaged or metadata_id not in used:
                reason = fault.detail if fault is not None and is_damaged else "no checkpoint that stays has it"
                self.removals.append(Removal(reason, metadata_id=metadata_id))
                self._act("quarantine", f"metadata {metadata_id}", reason)
