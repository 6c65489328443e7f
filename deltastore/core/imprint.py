"""What a value is, as bytes and strings: enough to make an equal one, and to prove that one did not change since.

A graph hands over its whole list of messages after each super-step, and each turn loads all of them again; nearly all
are as they were. An *imprint* of an element serves both: a save need not encode an element that still equals its
imprint, and a load makes a copy from it instead of decoding. Decoding takes about six times as long, encoding four.

- The exact strings among a message's fields, which cannot change, are kept as they are. So a long text exists once,
  however many copies of its message there are, and the proof compares references only.
- Everything else is kept as `marshal` writes it: contents to any depth, with their types (1, 1.0 and True differ, and
  so do list and tuple) and the order of the keys, at the speed of C. What it reads back is equal, new, and shares
  nothing.
- What all messages of a kind with the same fields have in common is their *shape*, which exists once.

Imprints outlive turns and there is one for each message of each recently used thread. Python's garbage collector looks
at every container in the process now and then, but not at bytes, nor at tuples of strings. That is why a value is not
kept as an object: a message is eight containers or more, its imprint is one.

`marshal` writes everything that has a buffer (numpy arrays and numbers, `bytearray`) as plain bytes, so only what
consists of plain values without bytes has an imprint; whatever takes the place of one of those then shows. Version 2 of
its format has no back references, so equal contents give equal bytes wherever they came from.

Kinds that have imprints are values that cannot change, exact lists and dicts, and LangChain messages, which consist of
nothing but their fields and whose encoded form depends on nothing but those and their type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import compress
from marshal import dumps, loads  # only bytes that were made here are read
from operator import is_, itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from deltastore.core.digests import digest

MARSHAL_VERSION = 2
MESSAGES_MODULE = "langchain_core.messages."
PLAIN = frozenset({str, int, float, bool, type(None)})
ATOMS = PLAIN | {bytes, date, datetime, time, timedelta, Decimal, UUID}
"""Types whose objects cannot change."""
STRING = frozenset({str})
DEPTH_MAX = 32
LONG_CHARACTERS = 1024
"""Dicts with a string of so many characters have a shape, as messages do; others are written as a whole."""
NAMES_MAX = 32
SHAPES_MAX = 1024

Getter = Callable[[dict[str, Any]], tuple[Any, ...]]


def is_message(kind: type) -> bool:
    """Whether a type is one of LangChain's messages."""
    module = kind.__dict__.get("__module__")
    return type(module) is str and module.startswith(MESSAGES_MODULE)


class Model(NamedTuple):
    """What a message has besides its fields, as far as messages differ in it.

    Attributes:
        fields_set: The fields that were given when it was made.
        has_extra: Whether there is a place for fields that its class does not know. It is empty.
    """

    fields_set: frozenset[str]
    has_extra: bool


class Slots(NamedTuple):
    """Where pydantic keeps what a message has besides its fields."""

    fields_set: Any
    extra: Any
    private: Any


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What messages of one kind, or dicts, with the same fields have in common.

    Attributes:
        kind: Their type.
        names: The fields in order.
        strings: Gives the fields that are exact strings.
        others: Gives the other fields.
        ordered: Puts strings and others, one after the other, in the order of the names.
        model: What else a message has; None for a dict.
        slots: Where that is kept; None for a dict.
    """

    kind: Any
    names: tuple[str, ...]
    strings: Getter
    others: Getter
    ordered: Callable[[Any], tuple[Any, ...]]
    model: Model | None
    slots: Slots | None

    def make(self, strings: tuple[str, ...], contents: bytes) -> Any:
        """A new value of this shape."""
        fields = dict(zip(self.names, self.ordered(strings + loads(contents)), strict=True))  # noqa: S302
        if self.model is None or self.slots is None:
            return fields
        message = object.__new__(self.kind)
        object.__setattr__(message, "__dict__", fields)
        self.slots.fields_set.__set__(message, set(self.model.fields_set))
        self.slots.extra.__set__(message, {} if self.model.has_extra else None)
        self.slots.private.__set__(message, None)
        return message


def _getter(names: Sequence[str]) -> Getter:
    """Gives the values of names. `itemgetter` gives no tuple for less than two."""
    return itemgetter(*names) if len(names) > 1 else lambda fields: tuple([fields[name] for name in names])


@lru_cache(SHAPES_MAX)
def _shape(kind: Any, names: tuple[str, ...], are_strings: tuple[bool, ...], model: Model | None) -> Shape:
    strings = list(compress(names, are_strings))
    others = [name for name, is_string in zip(names, are_strings, strict=True) if not is_string]
    positions = {name: position for position, name in enumerate(strings + others)}
    ordered: Any = itemgetter(*map(positions.__getitem__, names)) if len(names) > 1 else tuple
    slots = None
    if model is not None:
        slots = Slots(kind.__pydantic_fields_set__, kind.__pydantic_extra__, kind.__pydantic_private__)
    return Shape(kind, names, _getter(strings), _getter(others), ordered, model, slots)


@dataclass(slots=True, eq=False)
class Imprint:
    """What a value was when it was encoded or decoded.

    Attributes:
        shape: Its shape, if it has one.
        fixed: The strings of its shape; or the value itself, if it cannot change.
        contents: What `marshal` makes of the rest, or of the whole value; None if it cannot change.
        item: Its encoded form.
        digest: The item's digest; empty until somebody asks for it.
    """

    shape: Shape | None
    fixed: tuple[Any, ...]
    contents: bytes | None
    item: bytes
    digest: bytes = b""

    def is_of(self, value: Any) -> bool:
        """Whether the object that this was made of, or for, still is what it was.

        Written for speed: it runs for every element in every save.
        """
        contents, shape = self.contents, self.shape
        if contents is None:
            return True
        try:
            if shape is None:
                return dumps(value, MARSHAL_VERSION) == contents
            if type(value) is not shape.kind:
                return False
            fields = value if shape.model is None else value.__dict__
            return (
                tuple(fields) == shape.names
                and all(map(is_, shape.strings(fields), self.fixed))
                and dumps(shape.others(fields), MARSHAL_VERSION) == contents
                and (STRING.issuperset(map(type, fields)) if fields is value else not value.__pydantic_extra__)
            )
        except Exception:  # noqa: BLE001 - looking may run anybody's code
            return False

    def make(self) -> Any:
        """An equal value that shares nothing that can change."""
        if self.contents is None:
            return self.fixed[0]
        if self.shape is not None:
            return self.shape.make(self.fixed, self.contents)
        return loads(self.contents)  # noqa: S302

    def mark(self) -> bytes:
        """The item's digest."""
        self.digest = self.digest or digest(self.item)
        return self.digest


def imprint(value: Any, item: bytes) -> Imprint | None:
    """The imprint of a value that has this encoded form, or None if it is of a kind that has none."""
    kind = type(value)
    try:
        if kind in ATOMS:
            return Imprint(None, (value,), None, item)
        return _of_container(value, kind, item)
    except Exception:  # noqa: BLE001 - another thread changes it, marshal does not take it, or it runs anybody's code
        return None


def _of_container(value: Any, kind: Any, item: bytes) -> Imprint | None:
    model = None
    if kind is list or kind is dict:
        fields = value.copy()
    elif not is_message(kind) or value.__pydantic_private__ is not None or value.__pydantic_extra__:
        return None
    else:
        fields = value.__dict__.copy()
        if not STRING.issuperset(map(type, fields)):
            return None
        model = Model(frozenset(value.__pydantic_fields_set__), value.__pydantic_extra__ is not None)
    if not is_plain([fields]):
        return None
    if model is None and not _is_long(fields):
        return Imprint(None, (), dumps(fields, MARSHAL_VERSION), item)
    shape = _shape(kind, tuple(fields), tuple([type(each) is str for each in fields.values()]), model)
    return Imprint(shape, shape.strings(fields), dumps(shape.others(fields), MARSHAL_VERSION), item)


def _is_long(fields: Any) -> bool:
    """Whether it is worth while to keep a dict's strings as they are."""
    return (
        type(fields) is dict
        and len(fields) <= NAMES_MAX
        and STRING.issuperset(map(type, fields))
        and any(type(each) is str and len(each) >= LONG_CHARACTERS for each in fields.values())
    )


def is_plain(values: Collection[Any], depth: int = 0) -> bool:
    """Whether values are plain, or exact lists, tuples and dicts of such."""
    if PLAIN.issuperset(map(type, values)):
        return True
    for value in values:
        kind = type(value)
        if kind is dict:
            inside = depth < DEPTH_MAX and is_plain(value.keys(), depth + 1) and is_plain(value.values(), depth + 1)
        elif kind is list or kind is tuple:
            inside = depth < DEPTH_MAX and is_plain(value, depth + 1)
        else:
            inside = kind in PLAIN
        if not inside:
            return False
    return True
