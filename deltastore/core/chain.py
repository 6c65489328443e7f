"""From rows to states: checks that the links of a chain fit, then folds its deltas over the anchor.

Contract. Given the rows of a namespace that `Storage.load_chains` returns, `Chain.state` gives the state of any of
them, or raises an error that names thread, namespace, checkpoint and what is wrong. It never returns a state that
lacks something.

Invariants that are checked at every link:

- every payload opens (checksum, bound to its own row: id, parent, depth), so a row cannot stand in for another;
- the parent of a delta is there, and its depth is smaller by one: so a walk ends, a loop of parents can't exist, and
  the last row of a chain is an anchor (depth 0);
- a script stays inside of its base, and every write segment that a checkpoint consumed is there.

The fold itself is integer work on piece lists. A channel's *value* changes only where a row says so. A channel without
a value has a *history*: the parent's value becomes the seed, and the writes that the parent's children consumed are
added at each step. An anchor holds histories in full, so the history of a DeltaChannel never needs more than the chain.

Left out on purpose: writes stored at a checkpoint after its child was put do not count for that child's history. The
stock savers count them for all children, which replays an abandoned branch's writes in the other one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from deltastore.core import header as headers
from deltastore.core.frame import Cipher, unseal
from deltastore.core.identifiers import shown_namespace, unpack_checkpoint_id
from deltastore.core.model import CheckpointRow, SegmentKind, SegmentRow, ThreadRef
from deltastore.core.payload import (
    SEED_BASE,
    VALUE_BASE,
    Anchor,
    ChannelEdit,
    CheckpointPayload,
    Delta,
    checkpoint_binding,
    segment_binding,
    unpack_checkpoint,
    unpack_page,
    unpack_values,
    unpack_writes,
)
from deltastore.core.pieces import PieceList, edit
from deltastore.core.state import History, State, Value
from deltastore.core.writes import OpenSegment, by_channel, effective
from deltastore.errors import BrokenChainError, CorruptPayloadError, StoredDataError

UNPACK = {SegmentKind.VALUES: unpack_values, SegmentKind.PAGES: unpack_page, SegmentKind.WRITES: unpack_writes}


def describe(thread: ThreadRef, namespace: str, checkpoint_id: bytes | None) -> str:
    """How errors name a checkpoint."""
    checkpoint = "" if checkpoint_id is None else f", checkpoint {_shown(checkpoint_id)!r}"
    return f"thread {thread.thread_id!r}, namespace {shown_namespace(namespace)}{checkpoint}"


def _shown(checkpoint_id: bytes) -> str:
    try:
        return unpack_checkpoint_id(checkpoint_id)
    except CorruptPayloadError:  # an error about this checkpoint is on its way, and says more
        return checkpoint_id.hex()


def open_plain(thread: ThreadRef, row: SegmentRow, cipher: Cipher | None) -> bytes:
    """A segment's document. Raises `StoredDataError` that names the thread and the segment."""
    if row.pack_id is not None:
        return row.payload
    try:
        return unseal(
            row.payload, associated=segment_binding(row.kind, row.namespace, row.checkpoint_id), cipher=cipher
        )
    except StoredDataError as error:
        where = describe(thread, row.namespace, row.checkpoint_id)
        raise _named(error, f"segment {row.segment_id} of {where} cannot be read") from error


def open_segment(thread: ThreadRef, row: SegmentRow, cipher: Cipher | None) -> OpenSegment:
    """A segment, opened. Raises as `open_plain`."""
    opened = UNPACK[row.kind](row.segment_id, open_plain(thread, row, cipher))
    return opened if row.pack_id is None else opened._replace(is_packed=True)


def _named(error: StoredDataError, message: str) -> StoredDataError:
    return type(error)(f"{message}: {error.message}", detail=error.detail, hint=error.hint)


@dataclass(slots=True)
class Chain:
    """The rows of one namespace, folded on demand.

    Attributes:
        thread: The thread, for errors.
        namespace: The namespace.
        rows: The rows by ordered checkpoint key.
        ignored: Channels that never get a history.
        cipher: Opens ciphered payloads.
        writes: The write segments by the checkpoint that they were written to.
        segments: All segments that came with the rows, by id.
        pages: The pages by segment id.
        owners: Which checkpoint each segment of values was written with.
        spare: Segments that came in packs and that no row needs to be folded.
    """

    thread: ThreadRef
    namespace: str
    rows: Mapping[bytes, CheckpointRow]
    ignored: frozenset[str]
    cipher: Cipher | None = None
    writes: dict[bytes, list[OpenSegment]] = field(default_factory=dict)
    segments: dict[int, OpenSegment] = field(default_factory=dict)
    pages: dict[int, PieceList] = field(default_factory=dict)
    owners: dict[int, bytes] = field(default_factory=dict)
    spare: dict[int, SegmentRow] = field(default_factory=dict)
    _states: dict[bytes, State] = field(default_factory=dict)
    _payloads: dict[bytes, CheckpointPayload] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        thread: ThreadRef,
        namespace: str,
        rows: Iterable[CheckpointRow],
        segments: Iterable[SegmentRow],
        ignored: frozenset[str],
        cipher: Cipher | None,
        known: Mapping[bytes, State] = MappingProxyType({}),
        opened: Mapping[int, OpenSegment] = MappingProxyType({}),
    ) -> Chain:
        """Opens the segments that came with the rows and arranges the rows.

        Args:
            thread: The thread.
            namespace: The namespace.
            rows: Its rows.
            segments: What came with them.
            ignored: Channels that never get a history.
            cipher: Opens ciphered payloads.
            known: States of checkpoints, at which chains may end.
            opened: Segments that need not be opened again.
        """
        chain = cls(thread, namespace, {row.checkpoint_id: row for row in rows}, ignored, cipher)
        chain._states.update(known)
        named = {each for row in chain.rows.values() for each in row.segments}
        for segment in segments:
            if segment.pack_id is not None and not (segment.segment_id in named or chain._is_written_to_row(segment)):
                chain.spare[segment.segment_id] = segment
                continue
            known_segment = opened.get(segment.segment_id)
            if known_segment is None or known_segment.is_packed != (segment.pack_id is not None):
                known_segment = open_segment(thread, segment, cipher)
            chain.segments[segment.segment_id] = known_segment
            if segment.kind == SegmentKind.WRITES:
                chain.writes.setdefault(segment.checkpoint_id, []).append(known_segment)
            elif known_segment.page is not None:
                chain.pages[segment.segment_id] = known_segment.page
            else:
                chain.owners[segment.segment_id] = segment.checkpoint_id
        return chain

    def _is_written_to_row(self, segment: SegmentRow) -> bool:
        is_write = segment.kind is SegmentKind.WRITES and segment.namespace == self.namespace
        return is_write and segment.checkpoint_id in self.rows

    def payload(self, checkpoint_id: bytes) -> CheckpointPayload:
        """The opened payload of a row."""
        if checkpoint_id not in self._payloads:
            row = self.rows[checkpoint_id]
            if row.segments and self.owners.get(row.segments[0], checkpoint_id) != checkpoint_id:
                raise BrokenChainError(f"{self._at(checkpoint_id)} names the values of another checkpoint as its own")
            try:
                plain = unseal(row.payload, associated=checkpoint_binding(row), cipher=self.cipher)
                self._payloads[checkpoint_id] = unpack_checkpoint(plain, row.segments, self.pages)
            except StoredDataError as error:
                raise _named(error, f"{self._at(checkpoint_id)} cannot be read") from error
        return self._payloads[checkpoint_id]

    def state(self, checkpoint_id: bytes) -> State:
        """The state of a checkpoint.

        Raises:
            StoredDataError: A link is missing, does not fit or cannot be read.
        """
        path = self._path(checkpoint_id)
        for each in reversed(path):
            row = self.rows[each]
            body = self.payload(each).body
            parent = None if isinstance(body, Anchor) or row.parent_id is None else self._states[row.parent_id]
            self._states[each] = self._fold(row, body, parent)
        return self._states[checkpoint_id]

    def folded(self, checkpoint_id: bytes, count: int) -> list[bytes]:
        """The checkpoint and its nearest ancestors among those that are folded already, at most `count`, oldest first.

        Who asks for one history often asks for the parent's next, as a listing of states does.
        """
        path: list[bytes] = []
        current: bytes | None = checkpoint_id
        while current in self.rows and current in self._states and len(path) < count:
            path.append(current)
            current = self.rows[current].parent_id
        return path[::-1]

    def _path(self, checkpoint_id: bytes) -> list[bytes]:
        """The checkpoint and its ancestors that are not folded yet, nearest first."""
        path: list[bytes] = []
        current: bytes | None = checkpoint_id
        depth: int | None = None
        while current is not None and current not in self._states:
            row = self.rows.get(current)
            if row is None or (depth is not None and row.depth != depth - 1):
                found = "is missing" if row is None else f"has depth {row.depth} where {(depth or 0) - 1} is expected"
                raise BrokenChainError(
                    f"{self._at(checkpoint_id)} cannot be rebuilt",
                    detail=f"its ancestor {_shown(current)!r} {found}",
                    hint="restore the missing rows from a backup; other checkpoints are not touched by this",
                )
            path.append(current)
            if row.depth == 0:
                break
            if row.parent_id is None:
                raise BrokenChainError(f"{self._at(current)} is a delta without a parent")
            current, depth = row.parent_id, row.depth
        if path and depth and current in self._states and depth != self._states[current].depth + 1:
            raise BrokenChainError(f"{self._at(path[-1])} does not follow its parent")
        return path

    def _fold(self, row: CheckpointRow, body: Anchor | Delta, parent: State | None) -> State:
        if isinstance(body, Anchor):
            return State(body.header, body.values, body.histories, 0)
        if parent is None or row.parent_id is None:
            raise BrokenChainError(f"{self._at(row.checkpoint_id)} has a delta where an anchor is expected")
        try:
            known = self.writes.get(row.parent_id, ())
            return apply_delta(parent, body, self.consumed(row.checkpoint_id, known), self.ignored)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise CorruptPayloadError(
                f"{self._at(row.checkpoint_id)} does not fit its parent", detail=repr(error)
            ) from error

    def consumed(self, checkpoint_id: bytes, writes: Sequence[OpenSegment]) -> Sequence[OpenSegment]:
        """Those of the parent's write segments that a checkpoint was made with; all of them for an anchor.

        Raises:
            BrokenChainError: One of them is missing.
        """
        body = self.payload(checkpoint_id).body
        if isinstance(body, Anchor):
            return writes
        wanted = set(body.consumed)
        found = [segment for segment in writes if segment.segment_id in wanted]
        if len(found) != len(wanted):
            missing = sorted(wanted - {segment.segment_id for segment in found})
            raise BrokenChainError(
                f"{self._at(checkpoint_id)} cannot be rebuilt: it was made with writes that are missing",
                detail=f"missing segments {missing}",
            )
        return found

    def _at(self, checkpoint_id: bytes) -> str:
        return describe(self.thread, self.namespace, checkpoint_id)


def apply_delta(parent: State, delta: Delta, consumed: Iterable[OpenSegment], ignored: frozenset[str]) -> State:
    """The child's state: the one place where a delta gets its meaning, for loads and for saves."""
    header = headers.apply(parent.header, delta.header)
    names = list(parent.header.versions)

    def name(reference: int | str) -> str:
        return names[reference] if isinstance(reference, int) else reference

    values = {channel: value for channel, value in parent.values.items() if channel in header.versions}
    for reference in delta.dropped:
        values.pop(name(reference), None)
    for channel_edit in delta.sets:
        channel = name(channel_edit.channel)
        values[channel] = Value(channel_edit.kind, edit(_base(parent, channel, channel_edit), channel_edit.script))
    gained = by_channel(effective(consumed), ignored)
    return State(header, values, grow_histories(parent, values, gained), parent.depth + 1)


def _base(parent: State, channel: str, channel_edit: ChannelEdit) -> PieceList | None:
    if channel_edit.base == VALUE_BASE:
        return parent.values[channel].pieces
    if channel_edit.base == SEED_BASE:
        seed = parent.histories[channel].seed
        return None if seed is None else seed.pieces
    return None


def grow_histories(parent: State, values: Mapping[str, Value], gained: Mapping[str, list[int]]) -> dict[str, History]:
    """Histories of the child's channels without a value.

    Args:
        parent: The parent's state.
        values: The child's values.
        gained: Places of the writes that the child consumed, by channel.
    """
    histories: dict[str, History] = {}
    for channel in (*parent.histories, *parent.values, *gained):
        if channel in values or channel in histories:
            continue
        value = parent.values.get(channel)
        more = gained.get(channel, [])
        before = parent.histories.get(channel)
        if value is not None:
            histories[channel] = History(value, PieceList(list(more)))
        elif before is None:
            histories[channel] = History(None, PieceList(list(more)))
        elif more:
            writes = PieceList([*before.writes.places, *more], None, before.writes.pages)
            histories[channel] = History(before.seed, writes)
        else:
            histories[channel] = before
    return histories
