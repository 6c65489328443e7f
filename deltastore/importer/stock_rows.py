"""Checkpoints of deltastore as rows of LangGraph's PostgreSQL saver.

The rows are those that the saver of today writes (format 4): values that JSON can hold are in the checkpoint, every
other one is stored once for its version, as the bytes that its items are. Versions have to be texts there, since that
saver goes on with texts and LangGraph compares versions: numbers become texts of the same order.

What these tables cannot say is refused with `SkipThread`, never bent: a DeltaChannel whose past was removed (they have
no place for a history but the checkpoints that it is made of), and two values of a channel under one version.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT

from deltastore.conversion import convert
from deltastore.core import metadata as metadatas
from deltastore.core.codec import MSGPACK_TAG, SNAPSHOT, TYPES, Codec, EncodedValue, ValueKind
from deltastore.core.digests import digest
from deltastore.core.frame import Cipher
from deltastore.core.header import ABSENT
from deltastore.core.identifiers import unpack_checkpoint_id
from deltastore.core.pieces import PieceList
from deltastore.core.state import Value
from deltastore.core.writes import StoredWrite
from deltastore.importer.raw import OPTION
from deltastore.importer.source import Node, SkipThread
from deltastore.loaded import ItemReader, Loaded

CHECKPOINT_COLUMNS = (
    "thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata",
)  # fmt: skip
BLOB_COLUMNS = "thread_id", "checkpoint_ns", "channel", "version", "type", "blob"
WRITE_COLUMNS = (
    "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel", "type", "blob",
)  # fmt: skip
INTEGERS_FROM = 1e16
"""From here on JSON in PostgreSQL has no decimal point."""


class StockRows:
    """Rows of one thread on their way to LangGraph's tables.

    Args:
        codec: The serializer of both sides.
        cipher: Encrypts what is written.
        thread_id: The thread.
        visible: The checkpoints that will be written: namespaces and ordered keys.
    """

    def __init__(
        self, codec: Codec, cipher: Cipher | None, thread_id: str, visible: frozenset[tuple[str, bytes]] = frozenset()
    ) -> None:
        self._codec = codec
        self._cipher = cipher
        self._thread_id = thread_id
        self._visible = visible
        self._seen: dict[tuple[str, str, str], bytes] = {}
        self._last: dict[tuple[str, str], tuple[str, int, PieceList]] = {}
        self._valueless: set[tuple[str, str, str]] = set()
        self._checkpoints: list[tuple[Any, ...]] = []
        self._blobs: list[tuple[Any, ...]] = []
        self._writes: list[tuple[Any, ...]] = []
        self.waiting_bytes = 0
        self.written_bytes = 0

    def add(self, loaded: Loaded) -> Node:
        """Makes the rows of one checkpoint. Raises `SkipThread` if the tables cannot hold it."""
        header, codec, where = loaded.state.header, self._codec, loaded.where
        self._refuse_lost_history(loaded)
        checkpoint_id = unpack_checkpoint_id(loaded.checkpoint_id)
        parent_id = None if loaded.parent_id is None else unpack_checkpoint_id(loaded.parent_id)
        checkpoint = {
            **{key: codec.decode_item(item, f"{where}, {key}") for key, item in header.extra.items()},
            "id": checkpoint_id,
            "ts": header.timestamp,
            "channel_values": self._values(loaded),
            "channel_versions": text_versions(header.versions),
            "versions_seen": {node: text_versions(seen) for node, seen in header.seen.items()},
        }
        if header.timestamp is None:
            del checkpoint["ts"]
        if header.updated is not ABSENT:
            checkpoint["updated_channels"] = header.updated
        metadata = without_nul(convert.metadata_of(codec, loaded.volatile, loaded.shared, where))
        documents = json.dumps(checkpoint, allow_nan=False), json.dumps(metadata, allow_nan=False)
        self.waiting_bytes += sum(map(len, documents))
        self._checkpoints.append((self._thread_id, loaded.namespace, checkpoint_id, parent_id, *documents))
        self.add_writes(loaded.namespace, checkpoint_id, loaded.writes, loaded.items)
        return Node(loaded.namespace, checkpoint_id, parent_id)

    def add_writes(self, namespace: str, checkpoint_id: str, writes: Iterable[StoredWrite], items: ItemReader) -> None:
        """Makes the rows of pending writes to one checkpoint."""
        for _, write in writes:
            encoded = EncodedValue(write.kind, items.read(write.pieces), write.pieces.keys)
            kind, data = self._encrypted(*self._plain(encoded, f"{items.where}, write to {write.channel!r}"))
            self._writes.append(
                (self._thread_id, namespace, checkpoint_id, write.task_id, write.task_path, write.index,
                 write.channel, kind, data)
            )  # fmt: skip

    def finish(self) -> None:
        """Told that all came. Raises `SkipThread` if a checkpoint would get a value of another one."""
        found = self._valueless & self._seen.keys()
        if found:
            namespace, channel, version = min(found)
            raise SkipThread(
                f"namespace {namespace!r}, channel {channel!r}: of two checkpoints with its version {version!r} one "
                "has a stored value and one has not; LangGraph's tables keep one value for a version"
            )

    def _refuse_lost_history(self, loaded: Loaded) -> None:
        """The past of a DeltaChannel has to be among the ancestors that are written."""
        if loaded.parent_id is not None and (loaded.namespace, loaded.parent_id) in self._visible:
            return
        named = metadatas.delta_channels(loaded.volatile)
        for channel, history in loaded.state.histories.items():
            seed = history.seed
            is_delta = channel in named or (seed is not None and bool(seed.kind & SNAPSHOT))
            if is_delta and (seed is not None or history.writes.places):
                raise SkipThread(
                    f"{loaded.where}: the DeltaChannel {channel!r} is made of checkpoints that were removed, and "
                    "LangGraph's tables have no place for its past without them; let the thread run on for one "
                    "snapshot of the channel, then remove what is older"
                )

    def _values(self, loaded: Loaded) -> dict[str, Any]:
        """The values that the checkpoint's document holds; the others become blobs."""
        inline: dict[str, Any] = {}
        stored: set[str] = set()
        for channel, value in loaded.state.values.items():
            encoded = EncodedValue(value.kind, loaded.items.read(value.pieces), value.pieces.keys)
            is_inline, plain = _inline(encoded)
            if is_inline:
                inline[channel] = plain
            if not is_inline or value.kind & SNAPSHOT:
                stored.add(channel)
                self._add_blob(loaded, channel, value, encoded)
        for channel, version in loaded.state.header.versions.items():
            if channel not in stored:
                self._valueless.add((loaded.namespace, channel, text_version(version)))
        return inline

    def _add_blob(self, loaded: Loaded, channel: str, value: Value, encoded: EncodedValue) -> None:
        version = text_version(loaded.state.header.versions[channel])
        key, place = (loaded.namespace, channel, version), (loaded.namespace, channel)
        if self._last.get(place) == (version, value.kind, value.pieces):
            return
        self._last[place] = version, value.kind, value.pieces
        kind, data = self._plain(encoded, f"{loaded.where}, channel {channel!r}")
        mark = digest(kind.encode() + b"\0" + data)
        if key not in self._seen:
            self._seen[key] = mark
            self._blobs.append((self._thread_id, *key, *self._encrypted(kind, data)))
        elif self._seen[key] != mark:
            raise SkipThread(
                f"{loaded.where}: the channel {channel!r} has two values with the version {version!r}; LangGraph's "
                "tables keep one"
            )

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

    def _plain(self, encoded: EncodedValue, where: str) -> tuple[str, bytes]:
        """Type and bytes of a value, as the serializer has them."""
        return joined(encoded) or self._codec.serializer.dumps_typed(self._codec.decode([(where, encoded)])[0])

    def _encrypted(self, kind: str, data: bytes) -> tuple[str, bytes]:
        """The same as they are stored."""
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
    is_json |= isinstance(plain, float) and _stays_a_float(plain)
    return is_json, plain


def _stays_a_float(number: float) -> bool:
    """Whether JSONB gives back the very float: it writes large ones as integers, and knows no negative zero."""
    return abs(number) < INTEGERS_FROM and (number != 0.0 or math.copysign(1.0, number) > 0)


def text_version(version: Any) -> str:
    """A version as LangGraph's PostgreSQL saver writes it: a text that sorts as the version did."""
    if isinstance(version, str):
        return version
    whole, fraction = divmod(version, 1)
    return f"{int(whole):032}.{f'{fraction:.16f}'[2:]}"


def text_versions(versions: Mapping[str, Any]) -> dict[str, str]:
    """Versions of many channels as texts."""
    return {name: text_version(version) for name, version in versions.items()}


def without_nul(value: Any) -> Any:
    """Metadata without NUL, which PostgreSQL's JSON cannot hold; LangGraph leaves it out of texts, too."""
    if isinstance(value, str):
        return value.replace("\x00", "")
    if isinstance(value, dict):
        cleaned = {without_nul(key): without_nul(child) for key, child in value.items()}
        if len(cleaned) < len(value):
            raise SkipThread("two keys of its metadata differ only in NUL, which PostgreSQL cannot hold")
        return cleaned
    if isinstance(value, list | tuple):
        return type(value)(map(without_nul, value)) if type(value) in (list, tuple) else value
    return value
