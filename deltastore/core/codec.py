"""Values to encoded items and back.

A value that LangGraph hands over is taken apart so that what did not change can be recognised and shared:

- exactly a `list`: one item for each element;
- exactly a `dict` whose keys are all exactly `str`: one item for each entry's value, the keys kept beside them;
- anything else: one item, the whole value;
- LangGraph's `_DeltaSnapshot`: as the value inside it, with a mark.

An *item* is one tag byte and the bytes that the serializer made. Elements of containers are given to the serializer
inside a list of one, because serializers may treat a value at the top differently from the same value inside another
one (`JsonPlusSerializer` keeps a top-level `bytearray` but turns a nested one to `bytes`); what comes back then equals
what the serializer would give back for the whole container. For msgpack, the array head of that list of one is cut
off: so an element and the same value standing alone are the same item, and hundreds are decoded in one call by joining
them under one array head.

Left out on purpose: containers inside containers are not taken apart. Measured gains were small, and every level
costs time in each save.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from deltastore.core.collector import paused
from deltastore.core.digests import digest
from deltastore.core.remembered import Recall
from deltastore.core.strings import find_lone_surrogate
from deltastore.core.templates import Templates
from deltastore.errors import UnreadableValueError, UnserializableValueError

MSGPACK, NAMED = 0, 127
TAGS = {"msgpack": MSGPACK, "null": 1, "bytes": 2, "bytearray": 3, "json": 4, "pickle": 5}
TYPES = {tag: name for name, tag in TAGS.items()}
WRAPPED = 0x80
"""Bit of the tag: the bytes are those of a list of one that holds the value."""

ARRAY_OF_ONE = 0x91
BLAME_PARTS_MAX = 16
RUN_ITEMS = 512
"""Items decoded at once, without the garbage collector: it then looks at them while the processor's cache has them."""
MANY_ITEMS = 64
"""From so many items on, the garbage collector waits until they are decoded."""
MSGPACK_TAG = bytes([MSGPACK])


class Serializer(Protocol):
    """LangGraph's `SerializerProtocol`."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """The type's name and the bytes of a value."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value."""


class ValueKind(IntEnum):
    """How a value was taken apart. `SNAPSHOT` is added for a `_DeltaSnapshot` around it."""

    OPAQUE = 0
    LIST = 1
    DICT = 2


SNAPSHOT = 4


@dataclass(frozen=True, slots=True)
class EncodedValue:
    """A value as items.

    Attributes:
        kind: A `ValueKind`, plus `SNAPSHOT`.
        items: The items in order.
        keys: The keys of a dict, in the order of the items.
        digests: The items' digests; empty in a value that is only to be decoded.
    """

    kind: int
    items: list[bytes]
    keys: list[str] | None = None
    digests: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Codec:
    """Encodes and decodes with one serializer.

    Attributes:
        serializer: Turns values to bytes and back.
        is_msgpack: The serializer's type `"msgpack"` is real MessagePack, so arrays may be joined and cut.
        snapshot_type: LangGraph's `_DeltaSnapshot`; called with the value, read through `.value`.
    """

    serializer: Serializer
    is_msgpack: bool
    snapshot_type: Callable[[Any], Any]

    def encode(self, value: Any, where: str, recall: Recall | None = None) -> EncodedValue:
        """Takes a value apart.

        Args:
            value: Any value that the serializer takes.
            where: What to name in an error: the channel or the write.
            recall: Elements of lists and dicts that are proved unchanged since they were encoded are taken from here.

        Raises:
            UnserializableValueError: The serializer refused a part, or would have changed a string silently.
        """
        if type(value) is self.snapshot_type and type(value.value) is not self.snapshot_type:
            inner = self.encode(value.value, where, recall)
            return EncodedValue(inner.kind | SNAPSHOT, inner.items, inner.keys, inner.digests)
        if type(value) is list or type(value) is dict:
            value = value.copy()  # at once, while another thread may go on with it
        if type(value) is list:
            items, digests = self._elements(value, range(len(value)), where, recall)
            return EncodedValue(ValueKind.LIST, items, None, digests)
        if type(value) is dict and all(type(key) is str for key in value):
            for key in value:
                self._check_strings(key, f"{where}: the key")
            items, digests = self._elements(value.values(), value, where, recall)
            return EncodedValue(ValueKind.DICT, items, list(value), digests)
        item = self.encode_item(value, where)
        return EncodedValue(ValueKind.OPAQUE, [item], None, [digest(item)])

    def encode_item(self, value: Any, where: str) -> bytes:
        """A whole value as one item. Raises as `encode`."""
        kind, data = self._dump(value, where)
        return _tagged(kind, data, 0)

    def _elements(
        self, values: Iterable[Any], positions: Iterable[int | str], where: str, recall: Recall | None
    ) -> tuple[list[bytes], list[bytes]]:
        """The items of elements, and their digests."""
        items: list[bytes] = []
        digests: list[bytes] = []
        for value, position in zip(values, positions, strict=True):
            found = None if recall is None else recall.find(value)
            if found is None:
                noted = recall.note(value) if recall is not None and self.is_msgpack else None
                item = self._element(value, f"{where}[{position!r}]")
                mark = digest(item)
                if recall is not None:
                    recall.keep(value, noted, item, mark)
            else:
                item, mark = found.item, found.mark()
            items.append(item)
            digests.append(mark)
        return items, digests

    def _element(self, value: Any, where: str) -> bytes:
        """One element's item."""
        try:
            kind, data = self.serializer.dumps_typed([value])
        except Exception as error:
            raise self._refused(value, where, error) from error
        if b"?" in data:
            self._check_strings(value, where)
        if kind == "msgpack" and self.is_msgpack and data[0] == ARRAY_OF_ONE:
            return MSGPACK_TAG + data[1:]
        return _tagged(kind, data, WRAPPED)

    def _encoded(self, value: Any) -> bytes | None:
        """One element's item, or None if it cannot be encoded."""
        try:
            return self._element(value, "")
        except UnserializableValueError:
            return None

    def _dump(self, value: Any, where: str) -> tuple[str, bytes]:
        try:
            kind, data = self.serializer.dumps_typed(value)
        except Exception as error:
            raise self._refused(value, where, error) from error
        if b"?" in data:
            self._check_strings(value, where)
        return kind, data

    def _check_strings(self, value: Any, where: str) -> None:
        """The stock serializer writes `?` for a lone surrogate; only data with a `?` can have lost one."""
        path = find_lone_surrogate(value)
        if path is not None:
            raise UnserializableValueError(
                f"{where}{path} holds a lone surrogate, which UTF-8 cannot hold and the serializer would make a '?'",
                hint="clean the text first, for example text.encode('utf-8', 'replace').decode()",
            )

    def _refused(self, value: Any, where: str, error: Exception) -> UnserializableValueError:
        path, culprit = self._blame(value)
        return UnserializableValueError(
            f"{where}{path} cannot be stored: the serializer refused a value of type {type(culprit).__name__}",
            detail=str(error),
            hint="keep it out of the state (UntrackedValue), convert it, or give the saver a serializer that takes it",
        )

    def _blame(self, value: Any) -> tuple[str, Any]:
        """The path to the innermost part that the serializer refuses by itself, and that part.

        A value may hold itself, or be nested too deeply, so the path is bounded.
        """
        path = ""
        for _ in range(BLAME_PARTS_MAX):
            part = self._refused_part(value)
            if part is None:
                break
            path, value = f"{path}[{part[0]!r}]", part[1]
        return path, value

    def _refused_part(self, value: Any) -> tuple[Any, Any] | None:
        parts = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
        )
        for key, part in parts:
            try:
                self.serializer.dumps_typed(part)
            except Exception:  # noqa: BLE001 - whatever the serializer raises
                return key, part
        return None

    def decode(self, values: Sequence[tuple[str, EncodedValue]], templates: Templates | None = None) -> list[Any]:
        """Puts values together again; `RUN_ITEMS` are read in one call of the serializer where it allows that.

        Args:
            values: Each with what to name in an error: the channel or the write.
            templates: Gives copies of what was decoded before.

        Raises:
            UnreadableValueError: The serializer cannot read an item; the first such value is named.
        """
        try:
            return self._decode(values, templates)
        except Exception as error:
            if len(values) > 1:
                return [self.decode([value])[0] for value in values]
            raise UnreadableValueError(
                f"{values[0][0]} cannot be read: {type(error).__name__}: {error}",
                hint="load with the serializer and key that the value was stored with",
            ) from error

    def decode_item(self, item: bytes, where: str) -> Any:
        """A whole value from one item. Raises as `decode`."""
        return self.decode([(where, EncodedValue(ValueKind.OPAQUE, [item]))])[0]

    def _decode(self, values: Sequence[tuple[str, EncodedValue]], templates: Templates | None) -> list[Any]:
        items = [item for _, value in values for item in value.items]
        if templates is None or not self.is_msgpack:
            parts = iter(self._load_all(items))
        else:
            parts = iter(templates.load(items, self._load_all, self._encoded))
        decoded: list[Any] = []
        for _, value in values:
            elements = [next(parts) for _ in value.items]
            kind = value.kind & ~SNAPSHOT
            whole: Any = elements
            if kind == ValueKind.OPAQUE:
                [whole] = elements
            elif kind == ValueKind.DICT:
                whole = dict(zip(value.keys or (), elements, strict=True))
            decoded.append(self.snapshot_type(whole) if value.kind & SNAPSHOT else whole)
        return decoded

    def _load_all(self, items: Sequence[bytes]) -> list[Any]:
        """The value of each item, run by run."""
        values: list[Any] = []
        for start in range(0, len(items), RUN_ITEMS):
            run = items[start : start + RUN_ITEMS]
            with paused() if len(run) >= MANY_ITEMS else nullcontext():
                values += self._load_run(run)
        return values

    def _load_run(self, items: Sequence[bytes]) -> list[Any]:
        """The value of each item. All MessagePack items are joined to one array, read at once.

        Their tags stay where they are: each is the number 0 in MessagePack too.
        """
        joined = [item for item in items if item[0] == MSGPACK] if self.is_msgpack else []
        if not joined:
            return [self._load(item) for item in items]
        head = b"\xdd" + (2 * len(joined)).to_bytes(4, "big")
        decoded = self.serializer.loads_typed(("msgpack", b"".join([head, *joined])))
        values: list[Any] = decoded[1::2]
        if len(values) != len(joined) or decoded[::2] != [MSGPACK] * len(joined):
            raise UnreadableValueError(f"{len(joined)} items decoded to {len(decoded)} tags and values")
        if len(joined) == len(items):
            return values
        parts = iter(values)
        return [next(parts) if item[0] == MSGPACK else self._load(item) for item in items]

    def _load(self, item: bytes) -> Any:
        tag = item[0] & ~WRAPPED
        if tag == NAMED:
            end = 2 + item[1]
            kind, data = item[2:end].decode(), item[end:]
        elif tag in TYPES:
            kind, data = TYPES[tag], item[1:]
        else:
            raise UnreadableValueError(f"an item has the unknown tag {item[0]}")
        value = self.serializer.loads_typed((kind, data))
        return value[0] if item[0] & WRAPPED else value


def _tagged(kind: str, data: bytes, wrapped: int) -> bytes:
    """One tag byte (or the type's name, for a serializer of another kind) and the serializer's bytes."""
    if kind in TAGS:
        return bytes([TAGS[kind] | wrapped]) + data
    name = kind.encode()
    return bytes([NAMED | wrapped, len(name)]) + name + data
