"""How the bytes of a source's tables are read: taken over as they are or, for comparing, decoded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from deltastore.core.codec import Codec, EncodedValue
from deltastore.core.frame import Cipher
from deltastore.importer.raw import RawValues, whole
from deltastore.importer.unopened import UnopenedSerializer

MESSAGEPACK_MIN, MESSAGEPACK_MAX = -(2**63), 2**64 - 1
"""Integers that MessagePack can hold."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How stored bytes are taken over and, for comparing, decoded.

    Attributes:
        codec: The target's; its serializer is that of the source, too.
        cipher: Decrypts values that an encrypting serializer wrote.
    """

    codec: Codec
    cipher: Cipher | None = None

    @property
    def is_langgraph(self) -> bool:
        """Whether stored bytes are of LangGraph's serializer; they need not be opened then."""
        return self.codec.is_msgpack

    def loads(self, kind: str, data: bytes, where: str) -> Any:
        """A value, decoded for comparing."""
        serializer: SerializerProtocol = UnopenedSerializer() if self.is_langgraph else self.codec.serializer
        return serializer.loads_typed(RawValues(self.cipher).decrypted(kind, data, where))


def encoded(codec: Codec, value: Any, where: str) -> EncodedValue:
    """A decoded value. Savers that keep numbers as JSON have integers that MessagePack does not: they stay JSON.

    Raises:
        UnserializableValueError: The serializer refused it.
    """
    if codec.is_msgpack and type(value) is int and not MESSAGEPACK_MIN <= value <= MESSAGEPACK_MAX:
        return whole("json", json.dumps(value).encode())
    return codec.encode(value, where)


def kept_of(before: dict[str, EncodedValue], values: dict[str, EncodedValue]) -> frozenset[str]:
    """Channels whose value is the same as at the parent."""
    return frozenset(
        channel
        for channel, value in values.items()
        if channel in before
        and (value.kind, value.keys, value.digests)
        == (before[channel].kind, before[channel].keys, before[channel].digests)
    )
