"""Stored bytes to encoded values, without making objects of them.

A saver of LangGraph stores each version of a channel as one MessagePack document. deltastore keeps a list or dict as
one item for each element, where an item is the element's own bytes (`core/codec.py`): so a document only has to be cut
at the right places, and the items are byte for byte what the codec would have made of the decoded value.

- Where the elements begin as those of the parent's value, which is what lists of messages do, these are not even
  looked at again: the bytes are compared in one call, and only the rest is cut.
- Cutting is done by the MessagePack library: objects of LangGraph are extension types, which it returns as unopened
  bytes. Each element is then packed again; only if that gives the very bytes of the document are these the items.
- JSON documents, which early versions wrote, are cut in the same way; their elements stay JSON.

Whatever does not fit stays one item with the bytes as they are, which is exact too, but shares nothing.

Every item that the thread did not have before is opened once, all the way down, so that bytes that nobody can decode
are found now. No object is made even then, as that would mean to import what stored bytes name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT

from deltastore.core.codec import MSGPACK_TAG, NAMED, SNAPSHOT, TAGS, WRAPPED, EncodedValue, ValueKind
from deltastore.core.digests import digest
from deltastore.core.frame import Cipher
from deltastore.importer.source import SkipThread

OPTION = ormsgpack.OPT_NON_STR_KEYS
JSON_LIST_TAG = bytes([TAGS["json"] | WRAPPED])
JAVASCRIPT_ONLY = re.compile(
    rb'"lg_name"\s*:\s*"Send"|"id"\s*:\s*\[\s*"(Set|Map|RegExp|Error|Uint8Array)"\s*\]'
    rb'|"lc"\s*:\s*2\s*,\s*"type"\s*:\s*"undefined"'
)
END = b"\xc4\x10end of the value"
"""MessagePack bytes that must follow an item when it is opened: the library does not say what it left unread."""
EXTENSIONS = frozenset(range(8))
"""Extension types of LangGraph, whose content is MessagePack again."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A value, and for a list of MessagePack the bytes it was cut from and where its elements end."""

    value: EncodedValue
    body: bytes = b""
    ends: Sequence[int] = ()


@dataclass(slots=True)
class RawValues:
    """Encodes the stored values of one thread.

    Attributes:
        cipher: Decrypts values that an encrypting serializer wrote.
        is_langgraph: The type `msgpack` is LangGraph's; else every value stays one item.
        proved: Digests of items that are known to be readable.
    """

    cipher: Cipher | None = None
    is_langgraph: bool = True
    proved: set[bytes] = field(default_factory=set)

    def cut(self, kind: str, data: bytes, where: str, base: Cut | None = None) -> Cut:
        """Encodes one stored value.

        Args:
            kind: The type that the serializer gave.
            data: The bytes that it gave.
            where: What to name in a reason.
            base: The value that this one probably continues.

        Raises:
            SkipThread: Nobody can decode the bytes.
        """
        kind, data = self.decrypted(kind, data, where)
        try:
            cut = self._cut(kind, data, base)
            self._prove(cut.value)
        except SkipThread as reason:
            raise SkipThread(f"{where}: {reason}") from reason
        except Exception as error:
            raise SkipThread(f"{where}: its bytes (type {kind!r}) cannot be decoded: {error}") from error
        return cut

    def proved_value(self, value: EncodedValue, where: str) -> EncodedValue:
        """The value, once all items that are new to the thread were opened. Raises `SkipThread`."""
        try:
            self._prove(value)
        except Exception as error:
            raise SkipThread(f"{where}: its bytes cannot be decoded: {error}") from error
        return value

    def decrypted(self, kind: str, data: bytes, where: str) -> tuple[str, bytes]:
        """A stored value without the encryption of the serializer. Raises `SkipThread` if there is no key for it."""
        plain_kind, plus, cipher_name = kind.partition("+")
        if not plus:
            return kind, data
        if self.cipher is None:
            raise SkipThread(f"{where}: it is encrypted ({cipher_name}); give the serializer that has the key")
        try:
            return plain_kind, self.cipher.decrypt(cipher_name, data)
        except Exception as error:
            raise SkipThread(f"{where}: it is encrypted and cannot be decrypted with this key: {error}") from error

    def _cut(self, kind: str, data: bytes, base: Cut | None) -> Cut:
        if kind == "msgpack" and self.is_langgraph:
            head = array_head(data)
            if head is not None:
                return _cut_array(data, *head, base) or _whole(kind, data)
            return Cut(encode_shallow(ormsgpack.unpackb(data, ext_hook=ormsgpack.Ext, option=OPTION), data))
        if kind == "json" and self.is_langgraph:
            _refuse_javascript(data)
            return _cut_json(data)
        if self.is_langgraph and kind not in TAGS:
            raise ValueError("unknown type")
        return _whole(kind, data)

    def _prove(self, value: EncodedValue) -> None:
        """Opens all items that are new to the thread."""
        if not self.is_langgraph:
            return
        for item, mark in zip(value.items, value.digests, strict=True):
            if mark not in self.proved:
                if item[:1] == MSGPACK_TAG:
                    _, end = ormsgpack.unpackb(b"\x92" + item[1:] + END, ext_hook=_open, option=OPTION)
                    if end != END[2:]:
                        raise ValueError("there is something behind the value")
                self.proved.add(mark)


def _open(code: int, data: bytes) -> Any:
    return ormsgpack.unpackb(data, ext_hook=_open, option=OPTION) if code in EXTENSIONS else data


def array_head(data: bytes) -> tuple[int, int] | None:
    """How many elements an array has, and where the first one begins; None if it is no array."""
    first = data[0] if data else 0
    if first & 0xF0 == 0x90:
        return first & 0x0F, 1
    if first == 0xDC:
        return int.from_bytes(data[1:3]), 3
    if first == 0xDD:
        return int.from_bytes(data[1:5]), 5
    return None


def _cut_array(data: bytes, count: int, start: int, base: Cut | None) -> Cut | None:
    """A list; None if packing its elements again gives other bytes."""
    shared = 0 if base is None else _shared_elements(data, count, start, base)
    before = Cut(EncodedValue(ValueKind.LIST, [])) if base is None else base
    ends = list(before.ends[:shared])
    end = ends[-1] if ends else 0
    tail = data[start + end :]
    elements = ormsgpack.unpackb(b"\xdd" + (count - shared).to_bytes(4) + tail, ext_hook=ormsgpack.Ext, option=OPTION)
    packed = [ormsgpack.packb(element, option=OPTION) for element in elements]
    if b"".join(packed) != tail:
        return None
    for element in packed:
        end += len(element)
        ends.append(end)
    items = [MSGPACK_TAG + element for element in packed]
    digests = before.value.digests[:shared] + [digest(item) for item in items]
    return Cut(EncodedValue(ValueKind.LIST, before.value.items[:shared] + items, None, digests), data[start:], ends)


def _shared_elements(data: bytes, count: int, start: int, base: Cut) -> int:
    """With how many elements of the base a list begins."""
    if len(base.ends) <= count and data.startswith(base.body, start):
        return len(base.ends)
    body = memoryview(base.body)
    low, high = 0, min(len(base.ends), count)
    while low < high:
        middle = (low + high + 1) // 2
        if data.startswith(body[: base.ends[middle - 1]], start):
            low = middle
        else:
            high = middle - 1
    return low


def encode_shallow(value: Any, data: bytes) -> EncodedValue:
    """Encodes a document that was unpacked without opening extensions; `data` are its bytes."""
    if isinstance(value, ormsgpack.Ext) and (inner := _snapshot(data)) is not None:
        found = encode_shallow(ormsgpack.unpackb(inner, ext_hook=ormsgpack.Ext, option=OPTION), inner)
        return EncodedValue(found.kind | SNAPSHOT, found.items, found.keys, found.digests)
    if type(value) is list:
        kind, keys, parts = ValueKind.LIST, None, value
    elif type(value) is dict and all(type(key) is str for key in value):
        kind, keys, parts = ValueKind.DICT, list(value), list(value.values())
    else:
        return whole("msgpack", data)
    if ormsgpack.packb(value, option=OPTION) != data:
        return whole("msgpack", data)
    items = [MSGPACK_TAG + ormsgpack.packb(part, option=OPTION) for part in parts]
    return EncodedValue(kind, items, keys, [digest(item) for item in items])


def _snapshot(data: bytes) -> bytes | None:
    """The value inside of a `_DeltaSnapshot`, still packed."""
    found: list[bytes] = []

    def hook(code: int, inner: bytes) -> None:
        if code == EXT_DELTA_SNAPSHOT:
            found.append(inner)

    ormsgpack.unpackb(data, ext_hook=hook, option=OPTION)
    return found[0] if found else None


def _refuse_javascript(data: bytes) -> None:
    """JSON of LangGraph.js is read as by LangGraph's saver, but for what only JavaScript can make objects of."""
    found = JAVASCRIPT_ONLY.search(data)
    if found is not None:
        raise SkipThread(f"written by LangGraph.js, with a value that Python cannot read: {found.group().decode()}")


def _cut_json(data: bytes) -> Cut:
    """A JSON array as its elements; everything else as it is."""
    text = data.decode()
    decoder = json.JSONDecoder()
    if not text.startswith("[") or text.startswith("[]"):
        json.loads(text)
        return _whole("json", data)
    items, at = [], 1
    while True:
        while text[at] in " \t\r\n":
            at += 1
        _, end = decoder.raw_decode(text, at)
        items.append(JSON_LIST_TAG + f"[{text[at:end]}]".encode())
        at = end
        while text[at] in " \t\r\n":
            at += 1
        if text[at] == "]":
            break
        if text[at] != ",":
            raise ValueError(f"found {text[at]!r} at {at}, expected a comma")
        at += 1
    return Cut(EncodedValue(ValueKind.LIST, items, None, [digest(item) for item in items]))


def whole(kind: str, data: bytes) -> EncodedValue:
    """A value as one item."""
    if kind in TAGS:
        item = bytes([TAGS[kind]]) + data
    else:
        name = kind.encode()
        item = bytes([NAMED, len(name)]) + name + data
    return EncodedValue(ValueKind.OPAQUE, [item], None, [digest(item)])


def _whole(kind: str, data: bytes) -> Cut:
    return Cut(whole(kind, data))
