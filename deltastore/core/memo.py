"""Which objects were encoded, or decoded, before and did not change since: encoding them again can be skipped.

A graph hands over its whole list of messages after each super-step, and nearly all of them are the same objects as
before. Encoding an unchanged message costs several times as much as proving that it did not change:

- it is the *same object* (the memo holds a reference, so the object's identity cannot be reused);
- its fields equal a shallow copy of them, which is mostly a comparison of references; and
- `marshal` makes the same bytes of all its fields but the exact strings, which cannot change, and of the keys of a
  dict, whose order and types count. `marshal` copies contents as they are, to any depth and with their types (1, 1.0
  and True differ, and so do list and tuple), at the speed of C.

So in-place mutation at any depth is seen. `marshal` writes a numpy array as plain bytes and so would miss a changed
shape: what holds an array is not remembered (its encoded form shows that). Remembered kinds are exact strings, exact
lists and dicts, and LangChain messages, whose encoded form depends on nothing but their fields. Everything else is
encoded each time, and so is everything if the serializer is not LangGraph's.

The format version 2 of `marshal` has no back references, so equal contents give equal bytes wherever they came from.
"""

from __future__ import annotations

import marshal
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

MARSHAL_VERSION = 2
MESSAGES_MODULE = "langchain_core.messages."
NUMPY_ARRAY = b"\x06\x94"
"""How LangGraph's serializer begins an array: MessagePack extension 6 around a list of four."""
RECENT_MAX = 256
MEMO_BYTES = 256
"""About what an empty memo takes, before the factor."""
CALLS_PER_TRIM = 32
MSGPACK = 0
"""The tag of items that are MessagePack (`codec.py`). Only their bytes show whether they hold an array."""
OBJECT_FACTOR = 4
"""Objects take about so many times the memory of their encoded form."""


@cache
def _is_message(kind: Any) -> bool:
    return str(getattr(kind, "__module__", "")).startswith(MESSAGES_MODULE)


def _fields(value: Any) -> dict[Any, Any] | None:
    """The fields that a message or dict consists of, or None for a value without fields."""
    kind = type(value)
    if kind is dict:
        return cast("dict[Any, Any]", value)
    if _is_message(cast("Hashable", kind)) and value.__pydantic_private__ is None and not value.__pydantic_extra__:
        return cast("dict[Any, Any]", value.__dict__)
    return None


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
        fields: A shallow copy of its fields, if it has any.
        contents: What `marshal` makes of its contents; None for a string, which cannot change.
        item: Its encoded form.
        digest: The item's digest, or how to get it.
    """

    value: Any
    fields: dict[Any, Any] | None
    contents: bytes | None
    item: bytes
    digest: bytes | Callable[[], bytes]

    def is_unchanged(self) -> bool:
        """Whether the value still is what it was. Written for speed: it runs for every element in every save."""
        if self.contents is None:
            return True
        value, before = self.value, self.fields
        try:
            if before is None:
                return marshal.dumps(value, MARSHAL_VERSION) == self.contents
            fields = value if type(value) is dict else value.__dict__
            if fields != before or (fields is not value and value.__pydantic_extra__):
                return False
            others = [each for each in fields.values() if type(each) is not str]
            contents = (list(fields), others) if fields is value else others
            return marshal.dumps(contents, MARSHAL_VERSION) == self.contents
        except (RuntimeError, ValueError, TypeError):
            return False

    def mark(self) -> bytes:
        """The item's digest."""
        if not isinstance(self.digest, bytes):
            self.digest = self.digest()
        return self.digest


def remember(value: Any, item: bytes, digest: bytes | Callable[[], bytes]) -> Remembered | None:
    """What to remember of a value that has this encoded form, or None if it cannot be proved unchanged later."""
    if type(value) is str:
        return Remembered(value, None, None, item, digest)
    fields = _fields(value)
    if fields is None and type(value) is not list:
        return None
    if not _shows_no_array(item):
        return None
    try:
        before = None if fields is None else fields.copy()
        contents = marshal.dumps(_contents(value, fields), MARSHAL_VERSION)
    except (RuntimeError, ValueError):  # another thread changes it, or marshal does not take it
        return None
    return Remembered(value, before, contents, item, digest)


def _shows_no_array(item: bytes) -> bool:
    return item[0] == MSGPACK and NUMPY_ARRAY not in item


@dataclass(frozen=True, slots=True)
class Recall:
    """One encoding of one value: finds elements that did not change, and collects what to remember next time."""

    known: Mapping[int, Remembered]
    recent: Mapping[int, Remembered]
    kept: list[Remembered] = field(default_factory=list)

    def find(self, value: Any) -> Remembered | None:
        """What the element was encoded to, if it is proved not to have changed since."""
        found = self.known.get(id(value)) or self.recent.get(id(value))
        if found is None or not found.is_unchanged():
            return None
        self.kept.append(found)
        return found

    def note(self, value: Any) -> Remembered | None:
        """What an element is *before* it is encoded. If another thread changes it meanwhile, that is seen next time."""
        return remember(value, bytes([MSGPACK]), b"")

    def keep(self, noted: Remembered | None, item: bytes, digest: bytes) -> None:
        """Remembers what a noted element was encoded to."""
        if noted is not None and (noted.contents is None or _shows_no_array(item)):
            noted.item, noted.digest = item, digest
            self.kept.append(noted)


@dataclass(slots=True)
class Memo:
    """Remembered objects of one namespace of one thread.

    For each channel, those of the value that was encoded or decoded last; and the most recent ones of writes, which
    usually appear in a channel one step later. Every change replaces a dict as a whole, so threads may share a memo.

    Attributes:
        serializer: What they were encoded with. Savers share memos with their copies, which may have another one.
    """

    serializer: object
    _channels: dict[str, Mapping[int, Remembered]] = field(default_factory=dict)
    _recent: Mapping[int, Remembered] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def recall(self, channel: str) -> Recall:
        """For encoding a value of the channel, or of a write to it."""
        return Recall(self._channels.get(channel, {}), self._recent)

    def replace(self, channel: str, kept: Iterable[Remembered]) -> None:
        """Remembers the elements of a channel's value, and forgets those of the one before."""
        elements = {id(each.value): each for each in kept}
        self._channels = {**self._channels, channel: elements}
        self._sizes = {**self._sizes, channel: sum([len(each.item) for each in elements.values()])}

    def add(self, recall: Recall) -> None:
        """Remembers elements of a write for a while."""
        if not recall.kept:
            return
        recent = {**self._recent, **{id(each.value): each for each in recall.kept}}
        self._recent = dict(list(recent.items())[-RECENT_MAX:])
        self._sizes = {**self._sizes, "": sum([len(each.item) for each in self._recent.values()])}

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes: items and objects."""
        return OBJECT_FACTOR * (MEMO_BYTES + sum(self._sizes.values()))


class Memos:
    """Memos by thread and namespace, the most recently used last, at most `bytes_max` bytes of them (about)."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._memos: dict[tuple[bytes, str], Memo] = {}
        self._lock = threading.Lock()
        self._calls = 0

    def of(self, thread_key: bytes, namespace: str, serializer: object) -> Memo:
        """The memo of a namespace of a thread. Others go when there is too much to remember."""
        with self._lock:
            memo = self._memos.pop((thread_key, namespace), None)
            if memo is None or memo.serializer is not serializer:
                memo = Memo(serializer)
            self._memos[thread_key, namespace] = memo
            self._calls += 1
            if self._calls % CALLS_PER_TRIM == 0:
                self._trim()
            return memo

    def forget(self, thread_key: bytes) -> None:
        """Forgets a thread."""
        with self._lock:
            for key in [key for key in self._memos if key[0] == thread_key]:
                del self._memos[key]

    def _trim(self) -> None:
        total = sum(each.size_bytes for each in self._memos.values())
        while total > self._bytes_max and len(self._memos) > 1:
            total -= self._memos.pop(next(iter(self._memos))).size_bytes
