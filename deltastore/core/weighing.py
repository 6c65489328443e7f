"""One thread weighed: its payloads by kind, and each channel, with what the stock saver would have stored.

The stock saver stores a channel's whole value for each of its versions, one row for each write, and one JSON row for
each checkpoint. All of that is computed from the folded states, without decoding a value: items have lengths. It is an
*estimate* of what PostgreSQL would be given, in bytes before its own compression, with a flat allowance for each row.

A value's size is carried from parent to child with the edit script: what is copied whole keeps its size, so that a long
list does not cost its length at every step.

Damaged threads raise the error that a load raises: verification is for those.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deltastore.core import metadata as metadatas
from deltastore.core.chain import UNPACK, apply_delta, describe, open_plain
from deltastore.core.codec import SNAPSHOT, ValueKind
from deltastore.core.counting import chains_of
from deltastore.core.frame import Cipher, unseal
from deltastore.core.header import Header
from deltastore.core.model import CheckpointRow, SegmentKind, SegmentRow, ThreadRef, index_of, segment_of
from deltastore.core.packing import unpacked
from deltastore.core.payload import (
    Anchor,
    CheckpointPayload,
    Delta,
    checkpoint_binding,
    metadata_binding,
    unpack_checkpoint,
)
from deltastore.core.pieces import PieceList
from deltastore.core.state import History, State, Value
from deltastore.core.statistics import ChannelWeight, ThreadWeight, Volume
from deltastore.core.survey import ThreadSurvey, batches
from deltastore.core.sweep import RowKey
from deltastore.core.writes import OpenSegment
from deltastore.errors import BrokenChainError, StoredDataError

STOCK_ROW_BYTES = 150
"""Keys, header and index entries of a row of the stock saver, roughly: they hold the ids as texts, each twice."""

STOCK_VERSION_BYTES = 40
"""By so much the stock saver's versions, texts of 50 characters, are longer than our numbers."""

UNBOUNDED_CHANGES_MIN = 8
"""Fewer changes than this tell nothing about whether a channel is ever cut."""

_KINDS = {SegmentKind.VALUES: "values", SegmentKind.PAGES: "pages", SegmentKind.WRITES: "writes"}


@dataclass(slots=True)
class _Channel:
    kind: str = "value"
    changes: int = 0
    growths: int = 0
    cuts: int = 0
    length: int = 0
    value_bytes: int = 0
    new_bytes: int = 0
    stock_bytes: int = 0
    head: bytes = b""
    history: History | None = None


@dataclass(slots=True)
class Weighing:
    """Weighs one thread. Give it all segments with `take`, then call `finish`.

    Attributes:
        survey: Its rows.
        thread: The thread, for errors.
        cipher: Opens ciphered payloads.
        ignored: Channels that never get a history.
    """

    survey: ThreadSurvey
    thread: ThreadRef
    cipher: Cipher | None
    ignored: frozenset[str]
    _volumes: dict[str, list[int]] = field(default_factory=dict)
    _lengths: dict[int, Sequence[int]] = field(default_factory=dict)
    _writes: dict[RowKey, list[OpenSegment]] = field(default_factory=dict)
    _by_id: dict[int, OpenSegment] = field(default_factory=dict)
    _pages: dict[int, PieceList] = field(default_factory=dict)
    _channels: dict[tuple[str, str], _Channel] = field(default_factory=dict)
    _documents: dict[int, int] = field(default_factory=dict)
    _deltas: set[tuple[str, str]] = field(default_factory=set)
    _stock_bytes: int = 0

    def batches(self) -> Iterator[list[int]]:
        """Ids of the segments to give to `take`, in batches."""
        return batches(self.survey.segments)

    def take(self, rows: Iterable[SegmentRow]) -> None:
        """Opens segments. Raises `StoredDataError`."""
        for row in rows:
            if row.kind == SegmentKind.PACK:
                segments = list(unpacked(self.thread, [row], self.cipher))
                self._count("packs", len(row.payload), sum(len(segment.payload) for segment in segments))
                for segment in segments:
                    self._take(segment, segment.payload)
            else:
                plain = open_plain(self.thread, row, self.cipher)
                self._count(_KINDS[row.kind], len(row.payload), len(plain))
                self._take(row, plain)

    def _take(self, row: SegmentRow, plain: bytes) -> None:
        opened = UNPACK[row.kind](row.segment_id, plain)
        self._lengths[row.segment_id] = [len(item) - 1 for item in opened.items]
        if opened.page is not None:
            self._pages[row.segment_id] = opened.page
        if row.kind == SegmentKind.WRITES:
            light = self._by_id[row.segment_id] = OpenSegment(row.segment_id, (), opened.writes)
            self._writes.setdefault((row.namespace, row.checkpoint_id), []).append(light)

    def finish(self) -> ThreadWeight:
        """The weights, once all segments were taken. Raises `StoredDataError`."""
        for document in self.survey.metadata:
            binding = metadata_binding(document.metadata_id)
            plain = unseal(document.payload, associated=binding, cipher=self.cipher)
            self._count("metadata", len(document.payload), len(plain))
            self._documents[document.metadata_id] = len(plain)
        self._walk()
        self._weigh_writes()
        rows = self.survey.checkpoints
        depths = sorted(row.depth for row in rows)
        hidden = sum(row.hidden for row in rows)
        stock_bytes = self._stock_bytes + sum(channel.stock_bytes for channel in self._channels.values())
        for channel in self._channels.values():
            channel.value_bytes += self._history_bytes(channel.history)
        channels = [
            _weight(*key, channel)
            for key, channel in self._channels.items()
            if channel.kind != "writes"
            or key in self._deltas  # any other without a value is one of LangGraph's triggers
        ]
        return ThreadWeight(
            self.thread.thread_id,
            len(rows) - hidden,
            hidden,
            {kind: Volume(count, stored) for kind, (count, stored, _) in self._volumes.items()},
            {kind: plain for kind, (_, _, plain) in self._volumes.items()},
            chains_of(depths),
            stock_bytes,
            tuple(
                sorted(channels, key=lambda each: (-each.new_bytes, -each.stock_bytes, each.namespace, each.channel))
            ),
        )

    def _weigh_writes(self) -> None:
        """Writes cost the stock saver a row each; what they bring to DeltaChannels they bring first."""
        visible = {row.key for row in self.survey.checkpoints if not row.hidden}
        for key, segments in self._writes.items():
            namespace, _ = key
            for write in (write for segment in segments for write in segment.writes):
                if key not in visible and not write.pieces.segment_ids() <= self._lengths.keys():
                    continue  # left in a pack, of a deleted checkpoint
                size = self._size(write.pieces)
                self._stock_bytes += STOCK_ROW_BYTES + size
                if (namespace, write.channel) in self._deltas and (namespace, write.channel) in self._channels:
                    self._channels[namespace, write.channel].new_bytes += size

    def _count(self, kind: str, stored_bytes: int, plain_bytes: int) -> None:
        volume = self._volumes.setdefault(kind, [0, 0, 0])
        for position, amount in enumerate((1, stored_bytes, plain_bytes)):
            volume[position] += amount

    # --- walking

    def _walk(self) -> None:
        rows = {row.key: row for row in self.survey.checkpoints}
        children: dict[RowKey | None, list[CheckpointRow]] = {}
        for row in rows.values():
            parent = None if row.parent_id is None else (row.namespace, row.parent_id)
            children.setdefault(parent if parent in rows else None, []).append(row)
        waiting: list[tuple[CheckpointRow, State | None, dict[str, int]]] = [
            (row, None, {}) for row in children.get(None, ())
        ]
        while waiting:
            row, parent_state, parent_sizes = waiting.pop()
            state, sizes = self._visit(row, parent_state, parent_sizes)
            waiting += [(child, state, sizes) for child in children.get(row.key, ())]

    def _visit(
        self, row: CheckpointRow, parent: State | None, parent_sizes: dict[str, int]
    ) -> tuple[State, dict[str, int]]:
        payload = self._open(row)
        body = payload.body
        where = describe(self.thread, row.namespace, row.checkpoint_id)
        try:
            if isinstance(body, Anchor):
                state = State(body.header, body.values, body.histories, 0)
                sizes = {channel: self._size(value.pieces) for channel, value in state.values.items()}
            elif parent is not None and row.parent_id is not None and parent.depth == row.depth - 1:
                writes = self._writes.get((row.namespace, row.parent_id), ())
                consumed = [segment for segment in writes if segment.segment_id in body.consumed]
                state = apply_delta(parent, body, consumed, self.ignored)
                sizes = self._sizes_after(state, parent, body, parent_sizes)
            else:
                raise BrokenChainError(f"{where} cannot be rebuilt", hint="deltastore verify says what is wrong")
            self._weigh(row, state, parent, sizes, parent_sizes)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise BrokenChainError(
                f"{where} cannot be rebuilt", detail=repr(error), hint="deltastore verify says what is wrong"
            ) from error
        return state, sizes

    def _open(self, row: CheckpointRow) -> CheckpointPayload:
        try:
            plain = unseal(row.payload, associated=checkpoint_binding(row), cipher=self.cipher)
            self._count("checkpoints", len(row.payload), len(plain))
            payload = unpack_checkpoint(plain, row.segments, self._pages)
        except StoredDataError as error:
            where = describe(self.thread, row.namespace, row.checkpoint_id)
            raise type(error)(f"{where} cannot be read: {error.message}", detail=error.detail) from error
        self._deltas |= {(row.namespace, name) for name in metadatas.delta_channels(payload.volatile)}
        return payload

    # --- sizes

    def _size(self, pieces: PieceList) -> int:
        """The items of a piece list, as the serializer made them, with keys."""
        keys = 0 if pieces.keys is None else sum(map(len, pieces.keys))
        return keys + self._sizes(pieces.places)

    def _sizes(self, places: Sequence[int | bytes]) -> int:
        lengths = self._lengths
        return sum(
            len(place) - 1 if isinstance(place, bytes) else lengths[segment_of(place)][index_of(place)]
            for place in places
        )

    def _sizes_after(self, state: State, parent: State, delta: Delta, parent_sizes: dict[str, int]) -> dict[str, int]:
        """The sizes of a child's values. Only what its edits bring or cut is looked at."""
        names = list(parent.header.versions)
        sizes = {channel: size for channel, size in parent_sizes.items() if channel in state.values}
        for edit in delta.sets:
            channel = names[edit.channel] if isinstance(edit.channel, int) else edit.channel
            pieces = state.values[channel].pieces
            before = parent.values.get(channel)
            first = edit.script[0] if edit.script else None
            whole = before is not None and first is not None and first.start == 0
            if whole and before is not None and first is not None and first.count == len(before.pieces.places):
                rest = PieceList(pieces.places[first.count :], pieces.keys and pieces.keys[first.count :])
                sizes[channel] = parent_sizes[channel] + self._size(rest)
            else:
                sizes[channel] = self._size(pieces)
        return sizes

    # --- weighing

    def _weigh(
        self, row: CheckpointRow, state: State, parent: State | None, sizes: dict[str, int], before: dict[str, int]
    ) -> None:
        self._stock_bytes += STOCK_ROW_BYTES + _header_bytes(state.header) + self._documents.get(row.metadata_id, 0)
        for name, version in state.header.versions.items():
            value, history = state.values.get(name), state.histories.get(name)
            if value is None and history is None:
                continue
            channel = self._channels.setdefault((row.namespace, name), _Channel())
            if parent is None or parent.header.versions.get(name) != version:
                channel.changes += 1
                channel.growths += _length(state, name) > _length(parent, name)
                channel.cuts += value is not None and len(value.pieces.places) < _stored_length(parent, name)
                if value is not None:
                    channel.stock_bytes += STOCK_ROW_BYTES + sizes[name]
                    had = None if parent is None else parent.histories.get(name)
                    known = self._history_bytes(had) if (row.namespace, name) in self._deltas else before.get(name, 0)
                    channel.new_bytes += max(sizes[name] - known, 0)
            if row.checkpoint_id >= channel.head and not row.hidden:
                channel.head, channel.kind, channel.length = row.checkpoint_id, _kind(value), _length(state, name)
                channel.value_bytes, channel.history = sizes.get(name, 0), history

    def _history_bytes(self, history: History | None) -> int:
        if history is None:
            return 0
        places = [each for each in history.writes.places if isinstance(each, int)]
        seed = 0 if history.seed is None else self._size(history.seed.pieces)
        return seed + sum(self._size(self._by_id[segment_of(each)].writes[index_of(each)].pieces) for each in places)


def _length(state: State | None, name: str) -> int:
    """Elements, entries, or those of the last stored value and the writes since."""
    history = None if state is None else state.histories.get(name)
    return _stored_length(state, name) + (0 if history is None else len(history.writes.places))


def _stored_length(state: State | None, name: str) -> int:
    if state is None:
        return 0
    history = state.histories.get(name)
    value = state.values.get(name) or (None if history is None else history.seed)
    return 0 if value is None else len(value.pieces.places)


def _kind(value: Value | None) -> str:
    if value is None:
        return "writes"
    if value.kind & SNAPSHOT:
        return "snapshots"
    return {ValueKind.LIST: "list", ValueKind.DICT: "dict"}.get(ValueKind(value.kind), "value")


def _header_bytes(header: Header) -> int:
    """A checkpoint's row of the stock saver, without values: JSON, with versions that are texts."""
    document = {"channel_versions": header.versions, "versions_seen": header.seen, "updated_channels": header.updated}
    versions = [each for versions in (header.versions, *header.seen.values()) for each in versions.values()]
    numbers = sum(not isinstance(version, str) for version in versions)
    return len(json.dumps(document)) + numbers * STOCK_VERSION_BYTES + sum(map(len, header.extra.values()))


def _weight(namespace: str, name: str, channel: _Channel) -> ChannelWeight:
    grows = channel.growths >= max(UNBOUNDED_CHANGES_MIN, channel.changes / 2)
    return ChannelWeight(
        namespace,
        name,
        channel.kind,
        channel.changes,
        channel.length,
        channel.value_bytes,
        channel.new_bytes,
        channel.stock_bytes,
        grows and not channel.cuts and channel.kind != "value",
    )
