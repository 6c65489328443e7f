"""What a value was, as bytes and strings: enough to prove that it did not change since.

A graph hands over its whole list of messages after each super-step, and nearly all of them are as they were. Encoding
an unchanged message costs several times as much as proving from its *imprint* that it did not change:

- The exact strings among a message's fields, which cannot change, are kept as they are: the proof compares references.
- Everything else is kept as `marshal` writes it: contents to any depth, with their types (1, 1.0 and True differ, and
  so do list and tuple) and the order of the keys, at the speed of C.
- What all messages of a kind with the same fields have in common is their *shape*, which exists once.

There is an imprint for each message of each recently used thread. Python's garbage collector looks at every container
in the process now and then, but not at bytes, nor at tuples of strings. That is why an imprint is one object.

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
from marshal import dumps
from operator import is_, itemgetter
from typing import Any, cast
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


def fields_of(message: Any) -> dict[str, Any] | None:
    """The fields that a message consists of, or None if it has more than fields."""
    if message.__pydantic_private__ is not None or message.__pydantic_extra__:
        return None
    return cast("dict[str, Any]", message.__dict__)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What messages of one kind, or dicts, with the same fields have in common.

    Attributes:
        kind: Their type.
        names: The fields in order.
        strings: Gives the fields that are exact strings.
        others: Gives the other fields.
    """

    kind: Any
    names: tuple[str, ...]
    strings: Getter
    others: Getter


def _getter(names: Sequence[str]) -> Getter:
    """Gives the values of names. `itemgetter` gives no tuple for less than two."""
    return itemgetter(*names) if len(names) > 1 else lambda fields: tuple([fields[name] for name in names])


@lru_cache(SHAPES_MAX)
def _shape(kind: Any, names: tuple[str, ...], are_strings: tuple[bool, ...]) -> Shape:
    strings = list(compress(names, are_strings))
    others = [name for name, is_string in zip(names, are_strings, strict=True) if not is_string]
    return Shape(kind, names, _getter(strings), _getter(others))


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
        """Whether this is the imprint of the value as it is now, whichever object it was made of.

        Written for speed: it runs for every element in every save.
        """
        contents, shape = self.contents, self.shape
        if contents is None:
            return value is self.fixed[0]
        try:
            if shape is None:
                return dumps(value, MARSHAL_VERSION) == contents
            if type(value) is not shape.kind:
                return False
            fields = value if shape.kind is dict else value.__dict__
            return (
                tuple(fields) == shape.names
                and all(map(is_, shape.strings(fields), self.fixed))
                and dumps(shape.others(fields), MARSHAL_VERSION) == contents
                and (STRING.issuperset(map(type, fields)) if fields is value else not value.__pydantic_extra__)
            )
        except Exception:  # noqa: BLE001 - looking may run anybody's code
            return False

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
    is_value = kind is list or kind is dict
    found = value if is_value else fields_of(value) if is_message(kind) else None
    fields: Any = None if found is None else found.copy()
    if fields is None or not (is_value or STRING.issuperset(map(type, fields))) or not is_plain([fields]):
        return None
    if is_value and not _is_long(fields):
        return Imprint(None, (), dumps(fields, MARSHAL_VERSION), item)
    shape = _shape(kind, tuple(fields), tuple([type(each) is str for each in fields.values()]))
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
