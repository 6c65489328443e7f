"""Stored values for people: decoded as far as this process may, and bounded in nothing.

A tool that looks at a thread often runs where the application's modules are not. The default serializer refuses to
build objects of classes that are not loaded, and it is right to; but a screen must not fail for one value of many. So
an object that is refused stays *unopened*: its class by name, and what it was made from as plain data. Nothing that
stored bytes name is ever called for that.

The grain is the item: one refused element of a list leaves the others as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, EXT_NUMPY_ARRAY

from deltastore.core.codec import MSGPACK, SNAPSHOT, Codec, EncodedValue, ValueKind
from deltastore.errors import UnreadableValueError


@dataclass(frozen=True, slots=True)
class Unopened:
    """An object that was not built.

    Attributes:
        type_name: The class that the stored bytes name, as `module.name`; empty if not even that can be read.
        value: What it was made from, as plain data.
        reason: Why it was not built.
    """

    type_name: str
    value: Any
    reason: str = ""

    def __repr__(self) -> str:
        return f"{self.type_name or 'unreadable'}({self.value!r})"


def read_value(codec: Codec, encoded: EncodedValue, where: str) -> Any:
    """A value, with what cannot be decoded as `Unopened` in its place. Never raises `UnreadableValueError`."""
    try:
        return codec.decode([(where, encoded)])[0]
    except UnreadableValueError:
        elements = [read_item(codec, item, where) for item in encoded.items]
    kind = encoded.kind & ~SNAPSHOT
    if kind == ValueKind.LIST:
        return elements
    if kind == ValueKind.DICT:
        return dict(zip(encoded.keys or (), elements, strict=True))
    return elements[0]


def read_item(codec: Codec, item: bytes, where: str) -> Any:
    """The value of one item, or an `Unopened`."""
    try:
        return codec.decode_item(item, where)
    except UnreadableValueError as error:
        reason = " ".join(filter(None, (error.message, error.detail)))
        if item[0] != MSGPACK or not codec.is_msgpack:
            return Unopened("", f"{len(item)} bytes", reason)
    try:
        closed = ormsgpack.unpackb(item[1:], ext_hook=_closed, option=ormsgpack.OPT_NON_STR_KEYS)
    except (ValueError, TypeError, LookupError, RecursionError):
        return Unopened("", f"{len(item)} bytes", reason)
    return Unopened(closed.type_name, closed.value, reason) if isinstance(closed, Unopened) else closed


def unopened_names(value: Any) -> set[str]:
    """The classes of all unopened objects in a value."""
    if isinstance(value, Unopened):
        return {value.type_name} | unopened_names(value.value)
    if isinstance(value, Mapping):
        return {name for each in value.values() for name in unopened_names(each)}
    if isinstance(value, list | tuple | set | frozenset):
        return {name for each in value for name in unopened_names(each)}
    return set()


def _closed(code: int, data: bytes) -> Any:
    """Stands for an object of LangGraph's serializer: `[module, name, what it is made from, …]`."""
    parts = ormsgpack.unpackb(data, ext_hook=_closed, option=ormsgpack.OPT_NON_STR_KEYS)
    if code == EXT_DELTA_SNAPSHOT:
        return parts
    if code == EXT_NUMPY_ARRAY:
        return Unopened("numpy.ndarray", {"dtype": parts[0], "shape": parts[1]})
    module, name, value = parts[:3]
    return Unopened(f"{module}.{name}", value)


def plain(value: Any) -> Any:
    """A value as JSON can hold it: what has no form there becomes its text."""
    if value is None or isinstance(value, bool | int | str):
        return value if type(value) in (type(None), bool, int, str) else _scalar(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)  # noqa: PLR0124 - NaN
    if isinstance(value, Unopened):
        return {"unopened": value.type_name, "value": plain(value.value), "reason": value.reason}
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    fields = fields_of(value)
    return str(value) if fields is None else {"type": type(value).__name__, **plain(fields)}


def fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a pydantic model, a dataclass or a named tuple's kin; None for anything else."""
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        found = dump()
        return found if isinstance(found, dict) else None
    names = getattr(type(value), "__dataclass_fields__", None)
    return None if names is None else {name: getattr(value, name, None) for name in names}


def _scalar(value: Any) -> Any:
    """The plain part of a text or number of a class of its own, such as a member of an enum."""
    return json.loads(json.dumps(value))
