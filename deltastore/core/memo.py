"""Which objects were encoded before and did not change since: encoding them again can be skipped.

A graph hands over its whole list of messages after each super-step, and nearly all of them are the same objects as
before. Encoding an unchanged message costs ten times as much as proving that it did not change:

- it is the *same object* (the memo holds a reference, so the object's identity cannot be reused), and
- its *fingerprint* is the same: the bytes that `marshal` makes of its contents. `marshal` copies the contents as they
  are, with their types (1, 1.0 and True differ, and so do list and tuple), at the speed of C.

In-place mutation at any depth changes the fingerprint. `marshal` writes every object with a buffer (a numpy array, say)
as plain bytes and so would miss a changed shape: what does not equal its own unmarshalled copy is not remembered.
Remembered kinds are exact strings (they cannot change), exact lists and dicts, and LangChain messages, whose encoded
form depends on nothing but their fields. Everything else is encoded each time.

The format version 2 of `marshal` has no back references, so equal contents give equal bytes wherever they came from.
"""

from __future__ import annotations

import marshal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MARSHAL_VERSION = 2
MESSAGES_MODULE = "langchain_core.messages."
UNCHANGEABLE = b""
RECENT_MAX = 256
OBJECT_FACTOR = 4


@dataclass(frozen=True, slots=True)
class Remembered:
    """An object, its fingerprint when it was encoded, and what it was encoded to."""

    value: Any
    fingerprint: bytes
    item: bytes
    digest: bytes


def fingerprint(value: Any) -> bytes | None:
    """The bytes that change whenever the value's contents do, or None for a kind that is not remembered."""
    contents = _contents(value)
    if contents is None:
        return UNCHANGEABLE if type(value) is str else None
    try:
        return marshal.dumps(contents, MARSHAL_VERSION)
    except ValueError:
        return None


def _contents(value: Any) -> Any:
    kind = type(value)
    if kind is dict or kind is list:
        return value
    if kind.__module__.startswith(MESSAGES_MODULE) and getattr(value, "__pydantic_private__", True) is None:
        return value.__dict__, value.__pydantic_extra__
    return None


def remember(value: Any, item: bytes, digest: bytes) -> Remembered | None:
    """What to remember of a value that was just encoded, or None if it cannot be proved unchanged later."""
    if type(value) is str:
        return Remembered(value, UNCHANGEABLE, item, digest)
    taken = fingerprint(value)
    if taken is None:
        return None
    try:
        faithful = bool(marshal.loads(taken) == _contents(value))  # noqa: S302 - our own bytes, made a line above
    except (ValueError, TypeError):
        return None
    return Remembered(value, taken, item, digest) if faithful else None


@dataclass(frozen=True, slots=True)
class Recall:
    """One encoding of one value: finds elements that did not change, and collects what to remember next time."""

    known: Mapping[int, Remembered]
    recent: Mapping[int, Remembered]
    kept: list[Remembered] = field(default_factory=list)

    def find(self, value: Any) -> Remembered | None:
        """What the element was encoded to, if it is proved not to have changed since."""
        found = self.known.get(id(value)) or self.recent.get(id(value))
        if found is None or found.value is not value:
            return None
        if found.fingerprint is not UNCHANGEABLE and fingerprint(value) != found.fingerprint:
            return None
        self.kept.append(found)
        return found

    def keep(self, value: Any, item: bytes, digest: bytes) -> None:
        """Takes note of an element that was just encoded."""
        remembered = remember(value, item, digest)
        if remembered is not None:
            self.kept.append(remembered)


@dataclass(slots=True)
class Memo:
    """Remembered objects of one namespace of one thread.

    For each channel, those of the value that was encoded last; and the most recent ones of writes, which usually
    appear in a channel one step later. Every change replaces a dict as a whole, so threads may use a memo together.
    """

    _channels: dict[str, Mapping[int, Remembered]] = field(default_factory=dict)
    _recent: Mapping[int, Remembered] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def recall(self, channel: str) -> Recall:
        """For encoding a value of the channel, or of a write to it."""
        return Recall(self._channels.get(channel, {}), self._recent)

    def replace(self, channel: str, recall: Recall) -> None:
        """Remembers the elements of a channel's new value, and forgets those of the one before."""
        self._channels = {**self._channels, channel: {id(each.value): each for each in recall.kept}}
        self._sizes = {**self._sizes, channel: sum([len(each.item) for each in recall.kept])}

    @property
    def size_bytes(self) -> int:
        """About how much memory the channels take: items, fingerprints, and the objects themselves."""
        return OBJECT_FACTOR * sum(self._sizes.values())

    def add(self, recall: Recall) -> None:
        """Remembers elements of a write for a while."""
        recent = {**self._recent, **{id(each.value): each for each in recall.kept}}
        self._recent = dict(list(recent.items())[-RECENT_MAX:])


class Memos:
    """Memos by thread and namespace, the most recently used last, at most `bytes_max` bytes of them (about)."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._memos: dict[tuple[bytes, str], Memo] = {}
        self._lock = threading.Lock()

    def of(self, thread_key: bytes, namespace: str) -> Memo:
        """The memo of a namespace of a thread. Others go when there is too much to remember."""
        with self._lock:
            memo = self._memos.pop((thread_key, namespace), None) or Memo()
            self._memos[thread_key, namespace] = memo
            total = sum(each.size_bytes for each in self._memos.values())
            while total > self._bytes_max and len(self._memos) > 1:
                total -= self._memos.pop(next(iter(self._memos))).size_bytes
            return memo

    def forget(self, thread_key: bytes) -> None:
        """Forgets a thread."""
        with self._lock:
            for key in [key for key in self._memos if key[0] == thread_key]:
                del self._memos[key]
