"""All chains of a thread walked, whatever state they are in: the second half of verification.

Every row is visited once, parents first, each with the state of its parent in hand; so no more states are held than the
tree is wide, and a thread of any length can be walked. A state is folded by the functions that loads use. Where a load
would stop with an error, the walk notes the fault and goes on with the next row.

What hurts a checkpoint:

- its chain: a row that does not open, a link that does not fit, a damaged segment among those that come with the rows
  (those that rows name, and the writes to them: a load opens them all);
- its values, pending writes and metadata: a segment or item that is missing or cannot be read;
- the histories of its DeltaChannels. LangGraph's counters and snapshots tell which channels are some. Every other
  channel without a value has a history too, which nobody asks for: a missing part of one is a notice, no damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from deltastore.core import metadata as metadatas
from deltastore.core.chain import apply_delta
from deltastore.core.codec import SNAPSHOT
from deltastore.core.comparing import Comparison
from deltastore.core.findings import Fault, Kind, shown
from deltastore.core.model import SegmentKind
from deltastore.core.needs import Needs
from deltastore.core.opened import OpenedRow, OpenedSegment
from deltastore.core.opening import Opening
from deltastore.core.payload import Anchor, Delta
from deltastore.core.state import State
from deltastore.core.sweep import RowKey
from deltastore.core.writes import OpenSegment


@dataclass(slots=True)
class Walked:
    """What a row turned out to be.

    Attributes:
        chain: What keeps its chain from being loaded.
        own: What else keeps it from being loaded.
        has_state: Whether its state can be rebuilt.
        is_lost: Whether it cannot be rebuilt as it was, with its pending writes and metadata.
    """

    chain: frozenset[Fault] = frozenset()
    own: set[Fault] = field(default_factory=set)
    has_state: bool = False
    is_lost: bool = False


@dataclass(slots=True)
class Walk:
    """Walks all chains of an opened thread.

    Attributes:
        opening: The opened rows; faults are added to it.
        ignored: Channels that never get a history.
        needs: What is missing.
        walked: What became of each row.
        states: States of rows that can be rebuilt and are built on one that is lost.
    """

    opening: Opening
    ignored: frozenset[str]
    needs: Needs = field(init=False)
    walked: dict[RowKey, Walked] = field(default_factory=dict)
    states: dict[RowKey, State] = field(default_factory=dict)
    _writes: dict[RowKey, list[OpenedSegment]] = field(default_factory=dict)
    _deltas: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.needs = Needs(self.opening)

    def run(self) -> None:
        """Visits every row, and says of every fault what it hurts."""
        rows = self.opening.rows
        self.needs.note_damaged()
        self._sort_segments()
        for opened in rows.values():
            self._note_delta_channels(opened)
        children: dict[RowKey | None, list[OpenedRow]] = {}
        for opened in rows.values():
            parent = _parent_key(opened)
            children.setdefault(parent if parent in rows else None, []).append(opened)
        self._name_stored_circles()
        self._visit_all(children.get(None, []), children)
        self._visit_circles(children)
        self._note_hurt()

    def _sort_segments(self) -> None:
        for _, segment in sorted(self.opening.segments.items()):
            if segment.head.kind == SegmentKind.WRITES:
                self._writes.setdefault((segment.head.namespace, segment.head.checkpoint_id), []).append(segment)

    def _note_hurt(self) -> None:
        for key, walked in self.walked.items():
            if not self.opening.rows[key].row.hidden:
                for fault in walked.chain | walked.own:
                    fault.hurt.add(key)
        for fault in self.needs.missing.values():
            fault.is_notice = not fault.hurt

    def _name_stored_circles(self) -> None:
        """A mended row whose stored parent leads in a circle is called so."""
        parents = {key: _key(key[0], opened.stored.parent_id) for key, opened in self.opening.rows.items()}
        for circle in _circles(parents):
            for key in circle:
                for fault in self.opening.rows[key].faults:
                    if fault.kind is Kind.LINK:
                        fault.kind = Kind.CYCLE

    def _visit_circles(self, children: Mapping[RowKey | None, list[OpenedRow]]) -> None:
        """Rows that no root leads to: each circle is named, and entered at its anchors."""
        rows = self.opening.rows
        left = {key: opened for key, opened in rows.items() if key not in self.walked}
        for circle in _circles({key: _parent_key(opened) for key, opened in left.items()}):
            names = ", ".join(shown(key[1]) for key in sorted(circle))
            anchors = [key for key in circle if rows[key].row.depth == 0]
            first = min(anchors or circle)
            detail = f"its parents lead back to it: {names}"
            fault = self.opening.fault(Kind.CYCLE, f"checkpoint {shown(first[1])}", detail, first)
            for key in () if anchors else circle:
                rows[key].faults.append(fault)
        entries = [opened for opened in left.values() if opened.row.depth == 0]
        self._visit_all(entries, children)
        self._visit_all([opened for key, opened in left.items() if key not in self.walked], {})

    def _visit_all(self, roots: Iterable[OpenedRow], children: Mapping[RowKey | None, list[OpenedRow]]) -> None:
        waiting: list[tuple[OpenedRow, State | None]] = [(opened, None) for opened in roots]
        while waiting:
            opened, parent_state = waiting.pop()
            if opened.row.key in self.walked:
                continue
            state = self._visit(opened, parent_state)
            waiting += [(child, state) for child in children.get(opened.row.key, ())]

    # --- one row

    def _visit(self, opened: OpenedRow, parent: State | None) -> State | None:
        row, walked = opened.row, Walked()
        self.walked[row.key] = walked
        chain = set(opened.faults) | self._opened_with(opened)
        self._check_link(opened, chain)
        state = self._state(opened, parent, chain)
        walked.chain = frozenset(chain)
        walked.has_state = state is not None
        beyond = set() if state is None else self.needs.faults_of(state)
        beyond |= self._pending(row.key)
        if opened.metadata_fault is not None:
            beyond.add(opened.metadata_fault)
        walked.own = beyond
        causes = beyond | chain if state is None else beyond
        walked.is_lost = any(fault.is_loss for fault in causes)
        if state is not None:
            walked.own = beyond | self._histories(opened, state, walked)
            if isinstance(opened.payload and opened.payload.body, Anchor) and parent is not None and parent.depth > 0:
                self._compare(opened, state, parent)
            above = self.walked.get(_parent_key(opened) or row.key)
            if row.depth > 0 and not walked.is_lost and above is not None and above.is_lost:
                self.states[row.key] = state
        return state

    def _opened_with(self, opened: OpenedRow) -> set[Fault]:
        """Faults of the segments that a load opens with the row."""
        named = [self.opening.segments.get(each) for each in opened.row.segments]
        found = [each for each in named if each is not None] + self._writes.get(opened.row.key, [])
        packed = map(
            self.opening.packs.fault_of, (each for each in opened.row.segments if each not in self.opening.segments)
        )
        faults = {fault for each in found for fault in (each.fault, each.twin) if fault is not None}
        return faults | set(filter(None, packed)) | self.opening.packs.faults_around(opened.row.checkpoint_id)

    def _check_link(self, opened: OpenedRow, chain: set[Fault]) -> None:
        """The parent is there, at the depth that the row builds on."""
        row, rows = opened.row, self.opening.rows
        key = _parent_key(opened)
        name = f"checkpoint {shown(row.checkpoint_id)}"
        parent = None if key is None else rows.get(key)
        if row.depth == 0:
            if key is not None and parent is None and not row.orphaned and not opened.faults:
                detail = f"its parent {shown(key[1])} is missing: lost, or never stored; the checkpoint itself is whole"
                self.opening.fault(Kind.LINK, name, detail, row.key)
            return
        if key is None:
            chain.add(self.opening.fault(Kind.LINK, name, "it is a delta without a parent", row.key))
        elif parent is None:
            detail = f"its parent {shown(key[1])}, which it builds on, is missing"
            chain.add(self.opening.fault(Kind.LINK, name, detail, row.key))
        else:
            if parent.row.depth != row.depth - 1:
                detail = f"its parent has depth {parent.row.depth} where {row.depth - 1} is expected"
                chain.add(self.opening.fault(Kind.LINK, name, detail, row.key))
            above = self.walked.get(parent.row.key)
            chain |= above.chain if above is not None else frozenset(parent.faults)

    def _state(self, opened: OpenedRow, parent: State | None, chain: set[Fault]) -> State | None:
        """The state of a row, or None if it cannot be folded."""
        if opened.payload is None:
            return None
        self.needs.check_row(opened)
        body, row = opened.payload.body, opened.row
        if isinstance(body, Anchor) != (row.depth == 0):
            found = "an anchor" if isinstance(body, Anchor) else "a delta"
            name = f"checkpoint {shown(row.checkpoint_id)}"
            chain.add(self.opening.fault(Kind.LINK, name, f"it is {found} at depth {row.depth}", row.key))
            return None
        if isinstance(body, Anchor):
            return State(body.header, body.values, body.histories, 0)
        if parent is None or parent.depth != row.depth - 1:
            return None
        return self._folded(opened, body, parent, chain)

    def _folded(self, opened: OpenedRow, body: Delta, parent: State, chain: set[Fault]) -> State | None:
        consumed = self._consumed(opened, body, chain)
        if consumed is None:
            return None
        try:
            return apply_delta(parent, body, consumed, self.ignored)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            name, detail = f"checkpoint {shown(opened.row.checkpoint_id)}", f"it does not fit its parent: {error!r}"
            chain.add(self.opening.fault(Kind.PAYLOAD, name, detail, opened.row.key))
            return None

    def _consumed(self, opened: OpenedRow, body: Delta, chain: set[Fault]) -> list[OpenSegment] | None:
        """The writes that a delta was made with; None if some are missing or do not open."""
        parent = _parent_key(opened)
        found = {each.head.segment_id: each for each in self._writes.get(parent, ())} if parent else {}
        wanted = set(body.consumed)
        missing = sorted(wanted - found.keys())
        if packed := set(filter(None, map(self.opening.packs.fault_of, missing))):
            chain |= packed
            return None
        if missing:
            detail = f"the writes that it was made with are missing: segments {missing}; {_unwritten(parent)}"
            name = f"checkpoint {shown(opened.row.checkpoint_id)}"
            chain.add(self.opening.fault(Kind.MISSING, name, detail, opened.row.key))
            return None
        opened_writes = [found[each].writes for each in sorted(wanted)]
        whole = [each for each in opened_writes if each is not None]
        return whole if len(whole) == len(opened_writes) else None

    # --- what states need

    def _pending(self, key: RowKey) -> set[Fault]:
        faults = self.opening.packs.damaged_around(key[1])
        for segment in self._writes.get(key, ()):
            if segment.fault is not None:
                faults.add(segment.fault)
            for write in segment.writes.writes if segment.writes is not None else ():
                self.needs.check_places(write.pieces, f"segment {segment.head.segment_id}", key)
                faults |= self.needs.faults_in(write.pieces)
        return faults

    def _histories(self, opened: OpenedRow, state: State, walked: Walked) -> set[Fault]:
        """What hurts the histories. Losses of channels that are no DeltaChannels hurt nobody."""
        hurt: set[Fault] = set()
        if not self.needs.bad and not self.opening.bad_items:
            return hurt
        deltas = self._deltas.get(opened.row.namespace, set())
        for channel, history in state.histories.items():
            if channel in deltas:
                found = {self.needs.bad[each] for each in self.needs.bad.keys() & history.writes.segment_ids()}
                found |= set() if history.seed is None else self.needs.faults_in(history.seed.pieces)
                found |= self.needs.faults_of_writes(history.writes)
                hurt |= found
                walked.is_lost |= any(fault.is_loss for fault in found)
        return hurt

    def _note_delta_channels(self, opened: OpenedRow) -> None:
        if opened.payload is None:
            return
        names = self._deltas.setdefault(opened.row.namespace, set())
        try:
            names |= metadatas.delta_channels(opened.payload.volatile)
        except (TypeError, ValueError):
            return
        body = opened.payload.body
        if isinstance(body, Anchor):
            names |= {name for name, value in body.values.items() if value.kind & SNAPSHOT}
            names |= {
                name for name, each in body.histories.items() if each.seed is not None and each.seed.kind & SNAPSHOT
            }

    def _compare(self, opened: OpenedRow, state: State, parent: State) -> None:
        for channel in Comparison(self.opening).differing(state, parent):
            version, name = state.header.versions[channel], f"checkpoint {shown(opened.row.checkpoint_id)}"
            detail = f"an anchor whose channel {channel!r} differs from its parent's, at the same version {version!r}"
            self.opening.fault(Kind.ANCHOR, name, detail, opened.row.key).hurt.add(opened.row.key)


def _unwritten(parent: RowKey | None) -> str:
    """What missing writes mean for the checkpoint that they were written to: nothing there tells of them."""
    return "" if parent is None else f"checkpoint {shown(parent[1])} is loaded without them"


def _key(namespace: str, checkpoint_id: bytes | None) -> RowKey | None:
    return None if checkpoint_id is None else (namespace, checkpoint_id)


def _parent_key(opened: OpenedRow) -> RowKey | None:
    """The parent; none for an anchor that readers are told to have none."""
    row = opened.row
    return None if row.depth == 0 and row.orphaned else _key(row.namespace, row.parent_id)


def _circles(parents: Mapping[RowKey, RowKey | None]) -> Iterator[set[RowKey]]:
    """The circles among rows that name each other as parents."""
    done: set[RowKey] = set()
    for start in parents:
        path: dict[RowKey, None] = {}
        current: RowKey | None = start
        while current is not None and current in parents and current not in done and current not in path:
            path[current] = None
            current = parents[current]
        if current is not None and current in path:
            steps = list(path)
            yield set(steps[steps.index(current) :])
        done |= path.keys()
