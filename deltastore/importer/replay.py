"""What an import knew when it was stopped, rebuilt from the rows that it staged.

A thread is built in an order in which each checkpoint follows its parent (`tree.py`), and parts hold the beginning of
that order. So the rows of all parts, taken one after the other, say what the builder has to know to go on: where each
item is, which metadata is described, and the states of checkpoints with children that are still to come, which are
folded as loads fold them (`core/chain.py`).

Since the rows were made, the source may have changed. What was added to it does no harm: the rest of the order is
longer then. A part *fits* if the source still has each of its checkpoints, with the same parent and the same pending
writes. What does not fit raises `UnfitPartError`: the caller drops this part and what came behind it, which may build
on it.

Kept in memory, as in the builder: the place and digest of each item and the states that are needed; while parts are
replayed also the contents of pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from deltastore.conversion import validate
from deltastore.core import metadata as metadatas
from deltastore.core.chain import apply_delta, describe, open_segment
from deltastore.core.codec import SNAPSHOT, EncodedValue
from deltastore.core.digests import digest
from deltastore.core.edits import NewRows
from deltastore.core.frame import Cipher, unseal
from deltastore.core.model import (
    CheckpointRow,
    Location,
    SegmentKind,
    SegmentRow,
    ThreadRef,
    index_of,
    location,
    segment_of,
)
from deltastore.core.payload import (
    Anchor,
    CheckpointPayload,
    checkpoint_binding,
    metadata_binding,
    unpack_checkpoint,
)
from deltastore.core.pieces import PieceList
from deltastore.core.state import History, State, Value
from deltastore.core.writes import OpenSegment, Write, effective
from deltastore.errors import BrokenChainError, StoredDataError
from deltastore.importer.builder import Parent
from deltastore.importer.source import Before, Node, ThreadShape
from deltastore.importer.tree import Ancestors

DIGEST_BYTES = 16
RowKey = tuple[str, bytes]


class UnfitPartError(StoredDataError):
    """Staged rows that the source does not have any more, or that cannot be read."""


@dataclass(slots=True)
class Replay:
    """Rebuilds what the builder of a thread knew.

    Attributes:
        thread: The thread.
        shape: The thread in the source.
        ignored: Channels that never get a history.
        cipher: Opens ciphered payloads.
        places: The place of each item by its digest.
        described: The id of each metadata document by its plain bytes.
        parents: States of checkpoints with children that are still to come.
        staged: The checkpoints that came, in order.
        delta_channels: DeltaChannels that were met.
        payload_bytes: Bytes of all payloads that came.
    """

    thread: ThreadRef
    shape: ThreadShape
    ignored: frozenset[str]
    cipher: Cipher | None
    places: dict[bytes, int] = field(default_factory=dict)
    described: dict[bytes, int] = field(default_factory=dict)
    parents: Ancestors[Parent] = field(init=False)
    staged: dict[tuple[str, str], Node] = field(default_factory=dict)
    delta_channels: set[str] = field(default_factory=set)
    payload_bytes: int = 0
    _nodes: dict[RowKey, Node] = field(init=False)
    _writes: dict[RowKey, set[tuple[str, int]]] = field(default_factory=dict)
    _pages: dict[int, PieceList] = field(default_factory=dict)
    _page_digests: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parents = Ancestors(self.shape.nodes)
        self._nodes = {_row_key(node.namespace, node.checkpoint_id): node for node in self.shape.nodes}
        for namespace, checkpoint_id, task_id, index in self.shape.writes:
            self._writes.setdefault(_row_key(namespace, checkpoint_id), set()).add((task_id, index))

    def take(self, rows: NewRows) -> None:
        """Takes the rows of the next part.

        Raises:
            UnfitPartError: The part does not fit the source.
            StoredDataError: It cannot be read.
        """
        writes: dict[RowKey, list[OpenSegment]] = {}
        for segment in rows.segments:
            opened = self._open(segment)
            if segment.kind == SegmentKind.WRITES:
                writes.setdefault((segment.namespace, segment.checkpoint_id), []).append(opened)
        for document in rows.metadata:
            plain = unseal(document.payload, associated=metadata_binding(document.metadata_id), cipher=self.cipher)
            self.described[plain] = document.metadata_id
        for row in rows.checkpoints:
            self._fold(row, writes.get(row.key, []))
        self.payload_bytes += rows.payload_bytes

    def finish(self) -> Before:
        """Completes the states once all parts came, and says what was known. Raises `StoredDataError`."""
        wanted = {place for parent in self.parents.kept.values() for place in _places_of(parent.state)}
        digests = {place: mark for mark, place in self.places.items() if place in wanted}
        self.parents.revise(lambda parent: replace(parent, state=self._marked(parent.state, digests)))
        self._pages.clear()
        self._page_digests.clear()
        return Before(frozenset(self.staged), frozenset(self.delta_channels))

    def rest(self, order: Iterable[Node]) -> list[Node]:
        """What the source is to be asked for: staged parents of what is missing, then what is missing."""
        parents = [node for key, node in self.staged.items() if key in self.parents.kept]
        return parents + [node for node in order if node.key not in self.staged]

    def _open(self, segment: SegmentRow) -> OpenSegment:
        opened = open_segment(self.thread, segment, self.cipher)
        if opened.page is not None:
            self._pages[segment.segment_id] = opened.page
            self._page_digests[segment.segment_id] = b"".join(map(digest, opened.items))
            return opened
        for index, item in enumerate(opened.items):
            self.places.setdefault(digest(item), location(segment.segment_id, index))
        return opened

    def _fold(self, row: CheckpointRow, writes: Sequence[OpenSegment]) -> None:
        node = self._fitting(row, writes)
        plain = unseal(row.payload, associated=checkpoint_binding(row), cipher=self.cipher)
        payload = unpack_checkpoint(plain, row.segments, self._pages)
        parent = self.parents.parent_of(node)
        state = self._state(row, payload, parent)
        self.staged[node.key] = node
        self.delta_channels |= metadatas.delta_channels(payload.volatile)
        self.delta_channels.update(channel for channel, value in state.values.items() if value.kind & SNAPSHOT)
        self.parents.keep(node, Parent(state, writes))

    def _state(self, row: CheckpointRow, payload: CheckpointPayload, parent: Parent | None) -> State:
        body = payload.body
        if isinstance(body, Anchor):
            return State(body.header, body.values, body.histories, 0)
        consumed = [] if parent is None else [each for each in parent.writes if each.segment_id in body.consumed]
        if parent is None or row.depth != parent.state.depth + 1 or len(consumed) != len(body.consumed):
            raise self._unfit(row, "it does not follow its parent")
        try:
            return apply_delta(parent.state, body, consumed, self.ignored)
        except (LookupError, TypeError, ValueError) as error:
            raise self._unfit(row, f"it does not fit its parent ({error!r})") from error

    def _fitting(self, row: CheckpointRow, writes: Sequence[OpenSegment]) -> Node:
        """The checkpoint in the source."""
        node = self._nodes.get(row.key)
        if node is None or node.key in self.staged:
            raise self._unfit(row, "the source does not have it any more")
        if row.parent_id != (None if node.parent_id is None else validate.checkpoint_key(node.parent_id)):
            raise self._unfit(row, "it has another parent in the source")
        stored = [each.write for each in effective(writes)]
        if {(write.task_id, write.index) for write in stored} != self._writes.get(row.key, set()):
            raise self._unfit(row, "it has other pending writes in the source")
        for write in stored:
            changing = self.shape.changing.get((*node.key, write.task_id, write.index))
            if changing is not None and not self._holds(write, changing):
                raise self._unfit(row, "one of its pending writes was replaced in the source")
        return node

    def _holds(self, write: Write, value: EncodedValue) -> bool:
        places, keys = write.pieces.places, write.pieces.keys
        if (write.kind, keys or None, len(places)) != (value.kind, value.keys or None, len(value.items)):
            return False
        return all(
            place == item if isinstance(place, bytes) else place == self.places.get(mark)
            for place, item, mark in zip(places, value.items, value.digests, strict=True)
        )

    def _marked(self, state: State, digests: dict[int, bytes]) -> State:
        """The state with the marks of its values, with which a child's are compared."""

        def mark_of(place: Location) -> bytes:
            if isinstance(place, bytes):
                return digest(place)
            page = self._page_digests.get(segment_of(place))
            if page is not None:
                return page[index_of(place) * DIGEST_BYTES : (index_of(place) + 1) * DIGEST_BYTES]
            if place not in digests:
                raise BrokenChainError(f"thread {self.thread.thread_id!r}: a staged row names an item that is missing")
            return digests[place]

        def marked(value: Value) -> Value:
            marks = [mark_of(place) for place in value.pieces.places]
            keys = value.pieces.keys
            return replace(value, marks=marks if keys is None else list(zip(keys, marks, strict=True)))

        return replace(
            state,
            values={channel: marked(value) for channel, value in state.values.items()},
            histories={
                channel: History(history.seed and marked(history.seed), history.writes)
                for channel, history in state.histories.items()
            },
        )

    def _unfit(self, row: CheckpointRow, reason: str) -> UnfitPartError:
        return UnfitPartError(f"{describe(self.thread, row.namespace, row.checkpoint_id)}: {reason}")


def _row_key(namespace: str, checkpoint_id: str) -> RowKey:
    return validate.namespace(namespace), validate.checkpoint_key(checkpoint_id)


def _places_of(state: State) -> Iterator[int]:
    """The places that the values of a state name."""
    seeds = [history.seed for history in state.histories.values() if history.seed is not None]
    for value in (*state.values.values(), *seeds):
        yield from (place for place in value.pieces.places if isinstance(place, int))
