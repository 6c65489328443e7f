"""Which objects were encoded, or decoded, before and did not change since: encoding them again can be skipped.

A graph hands over its whole list of messages after each super-step, and nearly all of them are the same objects as
before. Encoding an unchanged message costs several times as much as proving that it did not change:

- it is the *same object* (the memo holds a reference, so the object's identity cannot be reused);
- its fields equal a shallow copy of them, which is mostly a comparison of references; and
- `marshal` makes the same bytes of all its fields but the exact strings, which cannot change, and of the keys of a
  dict, whose order and types count. `marshal` copies contents as they are, to any depth and with their types (1, 1.0
  and True differ, and so do list and tuple), at the speed of C.

So in-place mutation at any depth is seen. `marshal` writes everything that has a buffer (numpy arrays and numbers,
`bytearray`) as plain bytes, so only what consists of plain values without bytes is remembered: whatever takes the place
of one of those then shows. Remembered kinds are exact strings, exact lists and dicts, and LangChain messages, whose
encoded form depends on nothing but their type and fields. Everything else is encoded each time, and so is everything if
the serializer is not LangGraph's.

The format version 2 of `marshal` has no back references, so equal contents give equal bytes wherever they came from.
"""

from __future__ import annotations

import marshal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from deltastore.core.digests import digest

MARSHAL_VERSION = 2
MESSAGES_MODULE = "langchain_core.messages."
PLAIN = frozenset({str, int, float, bool, type(None)})
DEPTH_MAX = 32
OBJECT_FACTOR = 4
"""Objects take about so many times the memory of their encoded form."""


def is_message(kind: type) -> bool:
    """Whether a type is one of LangChain's messages."""
    module = kind.__dict__.get("__module__")
    return type(module) is str and module.startswith(MESSAGES_MODULE)


def fields_of(value: Any) -> dict[Any, Any] | None:
    """The fields that a message or dict consists of, or None for a value without fields."""
    kind = type(value)
    if kind is dict:
        return cast("dict[Any, Any]", value)
    if is_message(kind) and value.__pydantic_private__ is None and not value.__pydantic_extra__:
        return cast("dict[Any, Any]", value.__dict__)
    return None


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


def _contents(value: Any, fields: dict[Any, Any] | None) -> Any:
    """All that can change in a value but its exact strings. The keys of a dict count, in order and with their types."""
    if fields is None:
        return value
    others = [each for each in fields.values() if type(each) is not str]
    return (list(fields), others) if fields is value else others


@dataclass(slots=True)
class Remembered:
    """A value as it was when it was encoded or decoded.

    Attributes:
        value: The object itself.
        kind: Its type.
        fields: A shallow copy of its fields, if it has any.
        contents: What `marshal` makes of its contents; None for a string, which cannot change.
        item: Its encoded form.
        digest: The item's digest; empty until somebody asks for it.
    """

    value: Any
    kind: Any
    fields: dict[Any, Any] | None
    contents: bytes | None
    item: bytes
    digest: bytes = b""

    def is_unchanged(self) -> bool:
        """Whether the value still is what it was. Written for speed: it runs for every element in every save."""
        if self.contents is None:
            return True
        value: Any = self.value
        before = self.fields
        if type(value) is not self.kind:
            return False
        try:
            if before is None:
                return marshal.dumps(value, MARSHAL_VERSION) == self.contents
            fields = value if self.kind is dict else value.__dict__
            if fields != before or (fields is not value and value.__pydantic_extra__):
                return False
            others = [each for each in fields.values() if type(each) is not str]
            contents = (list(fields), others) if fields is value else others
            return marshal.dumps(contents, MARSHAL_VERSION) == self.contents
        except Exception:  # noqa: BLE001 - comparing may run anybody's code
            return False

    def mark(self) -> bytes:
        """The item's digest."""
        self.digest = self.digest or digest(self.item)
        return self.digest

    def of(self, value: Any) -> Remembered:
        """The same of an equal value."""
        return Remembered(value, self.kind, self.fields, self.contents, self.item, self.digest)


def remember(value: Any, item: bytes) -> Remembered | None:
    """What to remember of a value that has this encoded form, or None if it cannot be proved unchanged later."""
    kind = type(value)
    if kind is str:
        return Remembered(value, kind, None, None, item)
    try:
        fields = fields_of(value)
        if fields is None and kind is not list:
            return None
        if not is_plain([value] if fields is None else [fields]):
            return None
        before = None if fields is None else fields.copy()
        contents = marshal.dumps(_contents(value, fields), MARSHAL_VERSION)
    except Exception:  # noqa: BLE001 - another thread changes it, marshal does not take it, or it runs anybody's code
        return None
    return Remembered(value, kind, before, contents, item)


@dataclass(frozen=True, slots=True)
class Recall:
    """One encoding of one value: finds elements that did not change, and collects what to remember next time."""

    known: Sequence[Mapping[int, Remembered]]
    kept: list[Remembered] = field(default_factory=list)

    def find(self, value: Any) -> Remembered | None:
        """What the element was encoded to, if it is proved not to have changed since."""
        for known in self.known:
            found = known.get(id(value))
            if found is not None:
                if found.is_unchanged():
                    self.kept.append(found)
                    return found
                return None
        return None

    def note(self, value: Any) -> Remembered | None:
        """What an element is *before* it is encoded. If another thread changes it meanwhile, that is seen next time."""
        return remember(value, b"")

    def keep(self, noted: Remembered | None, item: bytes, digest: bytes) -> None:
        """Remembers what a noted element was encoded to."""
        if noted is not None:
            noted.item, noted.digest = item, digest
            self.kept.append(noted)
