"""Rows of a whole thread: the pure half of an import.

Checkpoints come in, each after its parent, and rows come out, made by the same functions as those of a live save: the
difference from the parent is drafted, proved and sealed, anchors fall where the policy wants them, pages where runs are
long, and an item that the thread has already is referred to. What is not known until storage answers in a live save,
the ids of segments, is taken in blocks beforehand.

Kept in memory: the digest and place of each item, and the states of checkpoints with children that are still to come.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deltastore.conversion import convert, validate
from deltastore.core import metadata as metadatas
from deltastore.core.codec import Codec
from deltastore.core.digests import digest
from deltastore.core.draft import Items, Put, PutWrites, draft, draft_writes, settle_writes
from deltastore.core.edits import NewRows
from deltastore.core.frame import Cipher
from deltastore.core.model import CheckpointRow, MetadataRow, NewSegment, SegmentRow, ThreadRef, location
from deltastore.core.sealing import seal_checkpoint, seal_metadata, seal_writes
from deltastore.core.state import State, Value
from deltastore.core.writes import OpenSegment
from deltastore.errors import UnserializableValueError
from deltastore.importer.raw import whole
from deltastore.importer.source import Node, SkipThread, SourceCheckpoint, SourceWrite
from deltastore.importer.tree import Ancestors
from deltastore.importer.unopened import exact_form
from deltastore.options import EngineOptions

NUMBERS_BLOCK = 256
ROW_BYTES = 200
"""About what a row takes beside its payload while it waits."""

TakeNumbers = Callable[[int], Awaitable[Sequence[int]]]


@dataclass(slots=True)
class Numbers:
    """Segment ids, taken from storage in blocks."""

    take_block: TakeNumbers
    _left: list[int] = field(default_factory=list)

    async def take(self, count: int) -> tuple[int, ...]:
        """The next ids, ascending."""
        if count > len(self._left):
            self._left += await self.take_block(max(NUMBERS_BLOCK, count))
        taken, self._left = self._left[:count], self._left[count:]
        return tuple(taken)


@dataclass(frozen=True, slots=True)
class Parent:
    """What children are drafted from."""

    state: State
    writes: Sequence[OpenSegment]


@dataclass(slots=True)
class ThreadBuilder:
    """Makes the rows of one thread.

    Attributes:
        thread: The thread.
        codec: Encodes metadata and the keys of checkpoints that are not LangGraph's.
        cipher: Encrypts payloads.
        options: How the engine works that will read the thread.
        numbers: Segment ids.
        parents: States of checkpoints with children that are still to come.
        places: The place of each item that the thread has, by its digest.
        described: The id of each metadata document that the thread has, by its plain bytes.
        payload_bytes: Bytes of all payloads that were made.
        waiting_bytes: About the size of the rows that wait to be taken.
    """

    thread: ThreadRef
    codec: Codec
    cipher: Cipher | None
    options: EngineOptions
    numbers: Numbers
    parents: Ancestors[Parent]
    places: dict[bytes, int] = field(default_factory=dict)
    described: dict[bytes, int] = field(default_factory=dict)
    payload_bytes: int = 0
    waiting_bytes: int = 0
    _checkpoints: list[CheckpointRow] = field(default_factory=list)
    _segments: list[SegmentRow] = field(default_factory=list)
    _metadata: list[MetadataRow] = field(default_factory=list)

    async def add(self, source: SourceCheckpoint) -> None:
        """Makes the rows of a checkpoint and of its pending writes.

        Raises:
            InvalidConfigError: An id, name or version cannot be stored.
            UnserializableValueError: A value is too large.
        """
        put = self._put(source)
        parent = self.parents.parent_of(source.node)
        drafted = draft(
            put,
            None if parent is None else parent.state,
            () if parent is None else parent.writes,
            _marks,
            Items(self.places.get, self.options.inline_bytes),
            foreign={},
            snapshot_frequency=self.options.snapshot_frequency,
            ignored=self.options.ignored_channels,
        )
        metadata = self._describe(put)
        row, segments = seal_checkpoint(put, drafted, metadata, self.cipher)
        ids = await self.numbers.take(len(segments))
        self._store(put.namespace, put.checkpoint_id, ids, segments)
        self._checkpoints.append(replace(row, segments=ids + row.segments))
        self._count(row.payload)
        if drafted.items:
            self._learn(ids[0], drafted.items)
        writes = await self.add_writes(source.node, source.writes)
        self.parents.keep(source.node, Parent(drafted.settled(ids), writes))

    async def add_writes(self, node: Node, writes: Sequence[SourceWrite]) -> list[OpenSegment]:
        """Makes the segments of pending writes: one for each task, as each task makes one call."""
        tasks: dict[tuple[str, str], list[SourceWrite]] = {}
        for write in writes:
            tasks.setdefault((write.task_id, write.task_path), []).append(write)
        namespace, checkpoint_id = validate.namespace(node.namespace), validate.checkpoint_key(node.checkpoint_id)
        opened = []
        for (task_id, task_path), task_writes in tasks.items():
            put = PutWrites(
                namespace,
                checkpoint_id,
                validate.name(task_id, "task_id"),
                validate.name(task_path, "task_path"),
                tuple((each.index, validate.name(each.channel, "channel name"), each.value) for each in task_writes),
            )
            items = Items(self.places.get, 0)
            drafted = draft_writes(put, items)
            segment = seal_writes(put, drafted, items, self.cipher)
            ids = await self.numbers.take(1)
            self._store(namespace, checkpoint_id, ids, [segment])
            self._learn(ids[0], items.own)
            opened.append(settle_writes(ids[0], drafted, items.own))
        return opened

    def take_rows(self) -> NewRows:
        """The rows that were made since this was last called."""
        rows = NewRows(tuple(self._checkpoints), tuple(self._segments), tuple(self._metadata))
        self._checkpoints, self._segments, self._metadata, self.waiting_bytes = [], [], [], 0
        return rows

    def _put(self, source: SourceCheckpoint) -> Put:
        node, checkpoint = source.node, source.checkpoint
        where = f"namespace {node.namespace!r}, checkpoint {node.checkpoint_id!r}"
        validate.checkpoint(checkpoint)
        nameless = source.values.keys() - checkpoint["channel_versions"].keys()
        if nameless:
            raise SkipThread(f"{where}: channel {min(nameless)!r} has a value but no version")
        volatile, shared = metadatas.split(source.metadata)
        return Put(
            validate.namespace(node.namespace),
            validate.checkpoint_key(node.checkpoint_id),
            None if node.parent_id is None else validate.checkpoint_key(node.parent_id),
            convert.header_of(self.codec, checkpoint, where),
            frozenset(checkpoint["channel_versions"]) - source.kept,
            {validate.name(channel, "channel name"): value for channel, value in source.values.items()},
            volatile,
            self._shared_item(shared, f"{where}: metadata"),
            metadatas.searchable(shared),
        )

    def _shared_item(self, shared: dict[str, Any], where: str) -> bytes:
        """Metadata as one item: as JSON where only that can hold it, as with integers of more than 64 bits."""
        try:
            return self.codec.encode_item(shared, where)
        except UnserializableValueError:
            text = _exact_json(shared)
            if text is None or not self.codec.is_msgpack:
                raise
            return whole("json", text.encode()).items[0]

    def _describe(self, put: Put) -> int:
        """The id of the metadata document, which is stored once."""
        if put.shared not in self.described:
            metadata = seal_metadata(put, self.cipher)
            self.described[put.shared] = metadata.metadata_id
            self._metadata.append(metadata)
            self._count(metadata.payload)
        return self.described[put.shared]

    def _store(self, namespace: str, checkpoint_id: bytes, ids: Sequence[int], segments: Sequence[NewSegment]) -> None:
        for segment_id, new in zip(ids, segments, strict=True):
            self._count(new.payload)
            self._segments.append(
                SegmentRow(segment_id, new.kind, namespace, checkpoint_id, new.payload, new.references)
            )

    def _count(self, payload: bytes) -> None:
        self.payload_bytes += len(payload)
        self.waiting_bytes += len(payload) + ROW_BYTES

    def _learn(self, segment_id: int, items: Sequence[bytes]) -> None:
        """Remembers where the items of a segment are."""
        for index, item in enumerate(items):
            self.places.setdefault(digest(item), location(segment_id, index))


def _exact_json(value: Any) -> str | None:
    """The JSON that comes back as the very value, or None."""
    try:
        text = json.dumps(value, allow_nan=False)
        return text if exact_form(json.loads(text)) == exact_form(value) else None
    except (TypeError, ValueError):
        return None


def _marks(value: Value) -> list[Any]:
    """The marks of a value's pieces; all values here were encoded here."""
    assert value.marks is not None
    return value.marks
