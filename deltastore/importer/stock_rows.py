"""Checkpoints of deltastore as rows of LangGraph's PostgreSQL saver.

The rows are those that the saver of today writes (format 4): values that JSON can hold are in the checkpoint, every
other one is stored once for its version, as the bytes that its items are. Versions have to be texts there, since that
saver goes on with texts and LangGraph compares versions: numbers become texts of the same order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT

from deltastore.conversion import convert
from deltastore.core.codec import MSGPACK_TAG, SNAPSHOT, TYPES, Codec, EncodedValue, ValueKind
from deltastore.core.frame import Cipher
from deltastore.core.header import ABSENT
from deltastore.core.identifiers import unpack_checkpoint_id
from deltastore.importer.raw import OPTION
from deltastore.importer.source import Node
from deltastore.loaded import Loaded

CHECKPOINT_COLUMNS = (
    "thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata",
)  # fmt: skip
BLOB_COLUMNS = "thread_id", "checkpoint_ns", "channel", "version", "type", "blob"
WRITE_COLUMNS = (
    "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel", "type", "blob",
)  # fmt: skip


class StockRows:
    """Rows of one thread on their way to LangGraph's tables."""

    def __init__(self, codec: Codec, cipher: Cipher | None, thread_id: str) -> None:
        self._codec = codec
        self._cipher = cipher
        self._thread_id = thread_id
        self._seen: set[tuple[str, str, str]] = set()
        self._checkpoints: list[tuple[Any, ...]] = []
        self._blobs: list[tuple[Any, ...]] = []
        self._writes: list[tuple[Any, ...]] = []
        self.waiting_bytes = 0
        self.written_bytes = 0

    def add(self, loaded: Loaded) -> Node:
        """Makes the rows of one checkpoint."""
        header, codec, where = loaded.state.header, self._codec, loaded.where
        checkpoint_id = unpack_checkpoint_id(loaded.checkpoint_id)
        parent_id = None if loaded.parent_id is None else unpack_checkpoint_id(loaded.parent_id)
        inline: dict[str, Any] = {}
        for channel, value in loaded.state.values.items():
            encoded = EncodedValue(value.kind, loaded.items.read(value.pieces), value.pieces.keys)
            is_inline, plain = _inline(encoded)
            if is_inline:
                inline[channel] = plain
            if not is_inline or value.kind & SNAPSHOT:
                version = text_version(header.versions[channel])
                self._add_blob(loaded.namespace, channel, version, encoded, where)
        checkpoint = {
            **{key: codec.decode_item(item, f"{where}, {key}") for key, item in header.extra.items()},
            "id": checkpoint_id,
            "ts": header.timestamp,
            "channel_values": inline,
            "channel_versions": text_versions(header.versions),
            "versions_seen": {node: text_versions(seen) for node, seen in header.seen.items()},
        }
        if header.timestamp is None:
            del checkpoint["ts"]
        if header.updated is not ABSENT:
            checkpoint["updated_channels"] = header.updated
        metadata = convert.metadata_of(codec, loaded.volatile, loaded.shared, where)
        self._checkpoints.append(
            (self._thread_id, loaded.namespace, checkpoint_id, parent_id, _json(checkpoint), _json(metadata))
        )
        for stored in loaded.writes:
            write = stored.write
            encoded = EncodedValue(write.kind, loaded.items.read(write.pieces), write.pieces.keys)
            kind, data = self._typed(encoded, where)
            self._writes.append(
                (self._thread_id, loaded.namespace, checkpoint_id, write.task_id, write.task_path, write.index,
                 write.channel, kind, data)
            )  # fmt: skip
        return Node(loaded.namespace, checkpoint_id, parent_id)

    async def flush(self, connection: Any) -> None:
        """Writes the rows that wait."""
        for table, columns, records in (
            ("checkpoint_blobs", BLOB_COLUMNS, self._blobs),
            ("checkpoints", CHECKPOINT_COLUMNS, self._checkpoints),
            ("checkpoint_writes", WRITE_COLUMNS, self._writes),
        ):
            await connection.copy_records_to_table(table, records=records, columns=columns)
            records.clear()
        self.written_bytes += self.waiting_bytes
        self.waiting_bytes = 0

    def _add_blob(self, namespace: str, channel: str, version: str, encoded: EncodedValue, where: str) -> None:
        key = namespace, channel, version
        if key not in self._seen:
            self._seen.add(key)
            kind, data = self._typed(encoded, where)
            self._blobs.append((self._thread_id, *key, kind, data))

    def _typed(self, encoded: EncodedValue, where: str) -> tuple[str, bytes]:
        kind, data = joined(encoded) or self._codec.serializer.dumps_typed(self._codec.decode([(where, encoded)])[0])
        if self._cipher is not None:
            name, data = self._cipher.encrypt(data)
            kind = f"{kind}+{name}"
        self.waiting_bytes += len(data)
        return kind, data


def joined(encoded: EncodedValue) -> tuple[str, bytes] | None:
    """A value as one document of the serializer, from its items as they are; None if they do not fit together."""
    kind, items = encoded.kind & ~SNAPSHOT, encoded.items
    if kind == ValueKind.OPAQUE:
        tag = items[0][0]
        if tag not in TYPES:
            return None
        typed = TYPES[tag], items[0][1:]
    elif all(item[:1] == MSGPACK_TAG for item in items):
        parts = [item[1:] for item in items]
        if kind == ValueKind.DICT:
            keys = [ormsgpack.packb(key) for key in encoded.keys or ()]
            parts = [part for pair in zip(keys, parts, strict=True) for part in pair]
        typed = "msgpack", _head(kind, len(items)) + b"".join(parts)
    else:
        return None
    if not encoded.kind & SNAPSHOT:
        return typed
    return ("msgpack", ormsgpack.packb(ormsgpack.Ext(EXT_DELTA_SNAPSHOT, typed[1]))) if typed[0] == "msgpack" else None


def _head(kind: int, count: int) -> bytes:
    """The head of a MessagePack array or map."""
    short, middle = (0x90, 0xDC) if kind == ValueKind.LIST else (0x80, 0xDE)
    if count < 16:
        return bytes([short | count])
    return bytes([middle]) + count.to_bytes(2) if count < 1 << 16 else bytes([middle + 1]) + count.to_bytes(4)


def _inline(encoded: EncodedValue) -> tuple[bool, Any]:
    """Whether LangGraph's saver keeps a value in the checkpoint's document, and what it keeps there."""
    if encoded.kind & SNAPSHOT:
        return True, True
    typed = joined(encoded) if encoded.kind == ValueKind.OPAQUE else None
    if typed == ("null", b""):
        return True, None
    if typed is None or typed[0] != "msgpack":
        return False, None
    plain = ormsgpack.unpackb(typed[1], ext_hook=ormsgpack.Ext, option=OPTION)
    is_json = plain is None or isinstance(plain, int)
    is_json |= isinstance(plain, str) and "\x00" not in plain
    is_json |= isinstance(plain, float) and math.isfinite(plain)
    return is_json, plain


def text_version(version: Any) -> str:
    """A version as LangGraph's PostgreSQL saver writes it: a text that sorts as the version did."""
    if isinstance(version, str):
        return version
    whole, fraction = divmod(version, 1)
    return f"{int(whole):032}.{f'{fraction:.16f}'[2:]}"


def text_versions(versions: Mapping[str, Any]) -> dict[str, str]:
    """Versions of many channels as texts."""
    return {name: text_version(version) for name, version in versions.items()}


def _json(document: Any) -> str:
    """JSON for PostgreSQL, which has no NUL; LangGraph's saver leaves it out of metadata, too."""
    return json.dumps(document, allow_nan=False).replace("\\u0000", "")
