"""LangGraph's checkpoints, metadata and writes to our records, and back.

Everything here runs before the first `await` of a call, so that what is stored is what the caller gave, whatever the
graph does to its objects meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.conversion import validate
from deltastore.core import metadata as metadatas
from deltastore.core.codec import Codec, EncodedValue, ValueKind
from deltastore.core.draft import Put, PutWrites
from deltastore.core.frame import Cipher
from deltastore.core.header import ABSENT, Header
from deltastore.core.identifiers import shown_namespace, unpack_checkpoint_id
from deltastore.core.memo import Memo, Memos
from deltastore.core.model import ThreadRef
from deltastore.core.pieces import PieceList
from deltastore.core.remembered import Elements
from deltastore.core.templates import Templates
from deltastore.errors import InvalidConfigError
from deltastore.loaded import ChannelHistory, ItemReader, Loaded

HEADER_KEYS = frozenset({"id", "channel_values", "channel_versions", "versions_seen", "updated_channels", "ts"})
IGNORED_CHANNELS = frozenset({*WRITES_IDX_MAP, "__no_writes__", "__return__"})
"""Channels that LangGraph writes to but that never hold a value; no history is kept for them."""


def codec_of(serde: SerializerProtocol) -> tuple[Codec, Cipher | None]:
    """How values are encoded with a saver's serializer.

    An `EncryptedSerializer` is taken apart: equal values have to be recognised, and compressed, before they are
    encrypted. A serializer that encrypts in a way of its own works, but nothing can be recognised through it. One that
    is built on LangGraph's but writes in a way of its own may call something "msgpack" that is none.
    """
    if isinstance(serde, EncryptedSerializer) and type(serde).dumps_typed is EncryptedSerializer.dumps_typed:
        return codec_of(serde.serde)[0], serde.cipher
    is_msgpack = isinstance(serde, JsonPlusSerializer) and type(serde).dumps_typed is JsonPlusSerializer.dumps_typed
    return Codec(serde, is_msgpack, _DeltaSnapshot), None


def config_of(thread: ThreadRef, namespace: str, checkpoint_id: str) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": {"thread_id": thread.thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def put_of(
    codec: Codec,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    memos: Memos,
) -> tuple[ThreadRef, Put]:
    """A `put` call, checked and encoded.

    Raises:
        InvalidConfigError: An id, name, version or the checkpoint has a wrong form.
        UnserializableValueError: A value cannot be stored.
    """
    thread, namespace, parent_id = validate.place_of(config)
    validate.checkpoint(checkpoint)
    validate.mapping(metadata, "metadata")
    validate.mapping(new_versions, "new_versions")
    checkpoint_id = validate.checkpoint_key(checkpoint["id"])
    where = f"thread {thread.thread_id!r}, namespace {shown_namespace(namespace)}, checkpoint {checkpoint['id']!r}"
    if checkpoint_id == parent_id:
        raise InvalidConfigError(f"{where}: a checkpoint cannot be its own parent")
    memo = memos.of(thread.key, namespace, codec.serializer)
    channel_values = checkpoint.get("channel_values", {})
    named = [validate.name(channel, "channel name") for channel in new_versions]
    recalls = {channel: memo.recall(channel) for channel in named if channel in channel_values}
    values = {
        channel: codec.encode(channel_values[channel], f"{where}: state.{channel}", recall)
        for channel, recall in recalls.items()
    }
    memo.replace(recalls)
    volatile, rest = metadatas.split(get_checkpoint_metadata(config, metadata))
    shared = _shared(codec, rest, memo, where)
    put = Put(
        namespace,
        checkpoint_id,
        parent_id,
        header_of(codec, checkpoint, where),
        frozenset(named),
        values,
        volatile,
        shared.item,
        shared.document,
        _inherited(checkpoint, new_versions, metadatas.delta_channels(volatile)),
        validate.held_key_of(config, parent_id),
    )
    return thread, put


def _shared(codec: Codec, metadata: dict[str, Any], memo: Memo, where: str) -> metadatas.Shared:
    """The shared metadata encoded: that of the last checkpoint, if it is the same and the serializer LangGraph's."""
    contents = metadatas.contents_of(metadata) if codec.is_msgpack else None
    shared = memo.shared  # once: another thread may replace it
    if contents is None or shared is None or shared.contents != contents:
        shared = metadatas.encoded(metadata, codec.encode_item(metadata, f"{where}: metadata"), contents)
        memo.shared = shared
    return shared


def _inherited(checkpoint: Checkpoint, new: Collection[str], delta_channels: frozenset[str]) -> frozenset[str]:
    values, versions = checkpoint.get("channel_values") or {}, checkpoint["channel_versions"]
    kept = {channel for channel in values if channel not in new}
    grown = {channel for channel in delta_channels if channel not in values}
    return frozenset(kept | grown) & versions.keys()


def header_of(codec: Codec, checkpoint: Mapping[str, Any], where: str) -> Header:
    """A checkpoint's header; keys that we don't know are kept as encoded items."""
    updated, timestamp = checkpoint.get("updated_channels", ABSENT), checkpoint.get("ts")
    if updated is not None and updated is not ABSENT:
        updated = validate.names(updated, "updated_channels")
    extra = {
        validate.name(key, "checkpoint key"): codec.encode_item(value, f"{where}: {key}")
        for key, value in checkpoint.items()
        if key not in HEADER_KEYS
    }
    return Header(
        _versions(checkpoint["channel_versions"]),
        {
            validate.name(node, "node name"): _versions(seen)
            for node, seen in checkpoint.get("versions_seen", {}).items()
        },
        updated,
        None if timestamp is None else validate.name(timestamp, "ts"),
        extra,
    )


def _versions(versions: Mapping[str, Any]) -> dict[str, int | float | str]:
    return {
        validate.name(channel, "channel name"): validate.version(version, channel)
        for channel, version in versions.items()
    }


def writes_of(
    codec: Codec,
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    memos: Memos,
) -> tuple[ThreadRef, PutWrites]:
    """A `put_writes` call, checked and encoded. Raises as `put_of`."""
    thread, namespace, checkpoint_id = validate.place_of(config)
    if checkpoint_id is None:
        raise InvalidConfigError(f"writes to thread {thread.thread_id!r} name no checkpoint_id")
    where = f"thread {thread.thread_id!r}, namespace {shown_namespace(namespace)}, task {task_id!r}"
    memo = memos.of(thread.key, namespace, codec.serializer)
    encoded = []
    for index, (channel, value) in enumerate(writes):
        name, recall = validate.name(channel, "channel name"), memo.recall(channel)
        parts = codec.encode(value, f"{where}: write {index} to {channel}", recall)
        encoded.append((WRITES_IDX_MAP.get(channel, index), name, parts))
        memo.add(recall)
    task = validate.name(task_id, "task_id"), validate.name(task_path, "task_path")
    return thread, PutWrites(
        namespace, checkpoint_id, *task, tuple(encoded), validate.held_key_of(config, checkpoint_id)
    )


def tuple_of(codec: Codec, loaded: Loaded, templates: Templates | None = None) -> CheckpointTuple:
    """A loaded checkpoint as LangGraph expects it. Raises `UnreadableValueError`."""
    header, where = loaded.state.header, loaded.where
    channels = list(loaded.state.values)
    values = [
        (f"{where}, channel {channel!r}", encoded(loaded.items, value.kind, value.pieces))
        for channel, value in loaded.state.values.items()
    ]
    writes = [
        (f"{where}, write to {each.write.channel!r}", encoded(loaded.items, each.write.kind, each.write.pieces))
        for each in loaded.writes
    ]
    decoded = codec.decode(values + writes, templates)
    checkpoint_id = unpack_checkpoint_id(loaded.checkpoint_id)
    checkpoint = {
        **{key: codec.decode_item(item, f"{where}, {key}") for key, item in header.extra.items()},
        "id": checkpoint_id,
        "channel_values": dict(zip(channels, decoded, strict=False)),
        "channel_versions": dict(header.versions),
        "versions_seen": {node: dict(seen) for node, seen in header.seen.items()},
    }
    if header.timestamp is not None:
        checkpoint["ts"] = header.timestamp
    if header.updated is not ABSENT:
        checkpoint["updated_channels"] = None if header.updated is None else list(cast("list[str]", header.updated))
    pending: list[PendingWrite] = [
        (each.write.task_id, each.write.channel, value)
        for each, value in zip(loaded.writes, decoded[len(channels) :], strict=True)
    ]
    parent_id = None if loaded.parent_id is None else unpack_checkpoint_id(loaded.parent_id)
    return CheckpointTuple(
        config_of(loaded.thread, loaded.namespace, checkpoint_id),
        cast("Checkpoint", checkpoint),
        cast("CheckpointMetadata", metadata_of(codec, loaded.volatile, loaded.shared, where)),
        None if parent_id is None else config_of(loaded.thread, loaded.namespace, parent_id),
        pending,
    )


def remember_loaded(memo: Memo, loaded: Loaded, values: Mapping[str, Any]) -> None:
    """Takes note of the elements that were just handed out, so that the next save need not encode them again.

    Only elements are remembered, never the containers, and only until they change: see `core/remembered.py`. A first
    load keeps no templates, so there is nothing to look for.
    """
    channels = {}
    for channel, value in loaded.state.values.items() if memo.values.size_bytes else ():
        if value.kind in (ValueKind.LIST, ValueKind.DICT):
            elements = [*(values[channel] if value.kind == ValueKind.LIST else values[channel].values())]
            items = loaded.items.read(value.pieces)
            channels[channel] = Elements.of(elements, memo.values.imprints(items), items)
    memo.begin(channels)


def metadata_of(codec: Codec, volatile: list[Any], shared: bytes, where: str) -> dict[str, Any]:
    """Both parts of the metadata together."""
    return metadatas.join(volatile, codec.decode_item(shared, f"{where}, metadata"))


def histories_of(
    codec: Codec,
    histories: Mapping[str, ChannelHistory],
    channels: Collection[str],
    templates: Templates | None = None,
) -> dict[str, DeltaChannelHistory]:
    """The histories of channels as LangGraph expects them; an empty one for a channel without any."""
    entries: dict[str, DeltaChannelHistory] = {}
    for channel in channels:
        entries[channel] = {"writes": []}
        history = histories.get(channel)
        if history is None:
            continue
        where = f"{history.items.where}, history of {channel!r}"
        values = [(where, encoded(history.items, each.write.kind, each.write.pieces)) for each in history.writes]
        if history.seed is not None:
            values.append((where, encoded(history.items, history.seed.kind, history.seed.pieces)))
        decoded = codec.decode(values, templates)
        if history.seed is not None:
            entries[channel]["seed"] = decoded.pop()
        entries[channel]["writes"] = [
            (each.write.task_id, channel, value) for each, value in zip(history.writes, decoded, strict=True)
        ]
    return entries


def encoded(items: ItemReader, kind: int, pieces: PieceList) -> EncodedValue:
    """A value's items, found."""
    return EncodedValue(kind, items.read(pieces), pieces.keys)
