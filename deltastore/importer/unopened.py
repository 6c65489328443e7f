"""Decoding without making objects: for comparing what two savers hold, exactly and without importing anything.

A value of a class is stored as an extension type that names the class. Here it stays the bytes that it is, in a tuple
that no stored value can be (MessagePack and JSON have no tuples). So values of classes that this process does not have
can be compared, with their types, and stored names are never called.
"""

from __future__ import annotations

import json
import marshal
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, JsonPlusSerializer

from deltastore.core.codec import Codec

EXACT_VERSION = 2
"""Of `marshal`: without back references, so that equal values give equal bytes."""


class UnopenedSerializer(JsonPlusSerializer):
    """Reads what LangGraph's serializer wrote, but leaves objects closed. It cannot write."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value, with objects as tuples of their stored form."""
        kind, stored = data
        if kind == "msgpack":
            return ormsgpack.unpackb(stored, ext_hook=_closed, option=ormsgpack.OPT_NON_STR_KEYS)
        if kind == "json":
            return json.loads(stored)
        if kind == "null":
            return None
        return stored if kind == "bytes" else (kind, bytes(stored))


def _closed(code: int, data: bytes) -> Any:
    if code == EXT_DELTA_SNAPSHOT:
        return snapshot(ormsgpack.unpackb(data, ext_hook=_closed, option=ormsgpack.OPT_NON_STR_KEYS))
    return "extension", code, data


def snapshot(value: Any) -> Any:
    """Stands for LangGraph's `_DeltaSnapshot`."""
    return "snapshot", value


def unopened_codec() -> Codec:
    """A codec for reading only."""
    return Codec(UnopenedSerializer(), is_msgpack=True, snapshot_type=snapshot)


def exact_form(value: Any) -> bytes:
    """Bytes that are equal for values that are equal with all their types and orders."""
    return marshal.dumps(value, EXACT_VERSION)
