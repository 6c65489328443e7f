"""Kinds of values that people keep in graphs."""

from __future__ import annotations

import decimal
import ipaddress
import pathlib
import re
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel, SecretStr


class Colour(StrEnum):
    RED = "red"


class OldColour(str, Enum):  # noqa: UP042 - people still write it
    BLUE = "blue"


class Level(IntEnum):
    HIGH = 3


class Plain(Enum):
    ONE = 1
    PAIR = (1, 2)


class Point(NamedTuple):
    x: int
    y: float


Untyped = namedtuple("Untyped", "a b")  # noqa: PYI024 - people still write it


@dataclass
class Data:
    name: str
    parts: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    when: datetime | None = None


class Model(BaseModel):
    name: str
    inner: dict[str, list[int]] = {}
    other: Any = None


class Text(str):
    __slots__ = ()


class Items(list):
    pass


class Mapping(dict):
    pass


STORABLE: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "one": 1,
    "one as float": 1.0,
    "zero": 0,
    "minus zero": -0.0,
    "nan": float("nan"),
    "inf": float("inf"),
    "minus inf": float("-inf"),
    "1e22": 1e22,
    "sum of tenths": 0.1 + 0.2,
    "past 2**53": 2**53 + 1,
    "smallest int": -(2**63),
    "largest int": 2**64 - 1,
    "empty text": "",
    "text": "text",
    "text with NUL": "a\x00b",
    "escaped NUL": "a\\u0000b",
    "emoji": "\U0001f600 é ?",
    "question mark": "?",
    "long text": "long " * 1000,
    "str subclass": Text("sub"),
    "bytes": b"\x00raw\xff",
    "bytearray": bytearray(b"array"),
    "memoryview": memoryview(b"view"),
    "list": [1, [2, [3]], "x"],
    "empty list": [],
    "list subclass": Items([1, 2]),
    "tuple": (1, (2, "x")),
    "empty tuple": (),
    "dict": {"a": 1, "b": {"c": [None]}},
    "empty dict": {},
    "dict in another order": {"b": 1, "a": 2},
    "dict with int keys": {1: "a", 2: "b"},
    "dict with mixed keys": {"a": 1, 2: "b", None: 3},
    "dict with tuple keys": {(1, 2): "pair"},
    "dict with NUL keys": {"a\x00": "b\x00"},
    "dict with enum keys": {OldColour.BLUE: 1},
    "dict subclass": Mapping(a=1),
    "OrderedDict": OrderedDict([("z", 1), ("a", 2)]),
    "defaultdict": defaultdict(list, {"a": [1]}),
    "Counter": Counter("aab"),
    "set": {1, 2},
    "frozenset": frozenset({"a"}),
    "deque": deque([1, 2], maxlen=3),
    "datetime": datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
    "naive datetime": datetime(2024, 5, 6),  # noqa: DTZ001 - kept as it is
    "datetime in a zone": datetime(2024, 5, 6, 7, tzinfo=timezone(timedelta(hours=2))),
    "date": date(2024, 5, 6),
    "time": time(7, 8, 9),
    "timedelta": timedelta(days=1, microseconds=2),
    "timezone": timezone(timedelta(hours=-3)),
    "ZoneInfo": ZoneInfo("Europe/Berlin"),
    "UUID": uuid.UUID("12345678-1234-5678-1234-567812345678"),
    "Decimal": decimal.Decimal("1.10"),
    "Path": pathlib.PurePosixPath("/a/b"),
    "pattern": re.compile("a+", re.IGNORECASE),
    "IPv4Address": ipaddress.ip_address("127.0.0.1"),
    "IPv6Network": ipaddress.ip_network("::/64"),
    "StrEnum": Colour.RED,
    "str and Enum": OldColour.BLUE,
    "IntEnum": Level.HIGH,
    "Enum": Plain.ONE,
    "Enum of a tuple": Plain.PAIR,
    "NamedTuple": Point(1, 2.0),
    "namedtuple": Untyped(1, "b"),
    "dataclass": Data("a", [1, (2,)]),
    "frozen dataclass": Frozen("a", datetime(2024, 1, 1, tzinfo=UTC)),
    "pydantic model": Model(name="a", inner={"k": [1]}, other=(1, 2)),
    "secret": SecretStr("hush"),
    "exception": ValueError("broken", 1),
    "human message": HumanMessage("hi", id="1", additional_kwargs={"a": (1,)}),
    "ai message": AIMessage("", tool_calls=[{"name": "n", "args": {"x": 1.5}, "id": "c"}], id="2"),
    "tool message": ToolMessage([{"type": "text", "text": "t"}], tool_call_id="c", artifact={"raw": b"x"}),
    "document": Document("text", metadata={"page": 1}),
    "Send": Send("node", {"a": [1]}),
    "Command": Command(goto="node", update={"a": 1}),
    "Interrupt": Interrupt(value={"q": 1}, id="i"),
    "Overwrite": Overwrite([1, 2]),
    "snapshot": _DeltaSnapshot([1, {"a": 2}]),
    "snapshot of a dict": _DeltaSnapshot({"a": [1]}),
    "snapshot of None": _DeltaSnapshot(None),
    "snapshot of a set": _DeltaSnapshot({1}),
    "array": np.arange(6, dtype="float32").reshape(2, 3),
}


class Odd:
    """Nothing knows how to keep it."""


REFUSED: dict[str, Any] = {
    "an object": Odd(),
    "a function": len,
    "a generator": iter([]),
    "a class": Odd,
    "an integer of more than 64 bits": 2**70,
    "a negative integer of more than 64 bits": -(2**70),
    "a complex number": 1j,
    "a fraction": Fraction(1, 3),
    "a lone high surrogate": "a\ud800b",
    "a lone low surrogate": "\udc00",
    "a file": open,
}
