"""What a process remembers of the objects of a thread: what they were encoded to, and templates of what was loaded."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deltastore.core.metadata import Shared
from deltastore.core.remembered import OBJECT_FACTOR, Recall, Remembered
from deltastore.core.templates import Templates

RECENT_MAX = 64
"""Elements of writes that are remembered at least; at most twice as many, and those of one write."""
MEMO_BYTES = 256
"""About what an empty memo takes, before the factor."""
CALLS_PER_TRIM = 32


@dataclass(slots=True)
class Memo:
    """Remembered objects of one namespace of one thread.

    For each channel, those of the value that was encoded or decoded last; and the most recent ones of writes, which
    usually appear in a channel one step later. Every change replaces a dict as a whole, so threads may share a memo.

    Attributes:
        serializer: What they were encoded with. Savers share memos with their copies, which may have another one.
        values: Templates of the state that was loaded last.
        histories: Templates of the histories of DeltaChannels that were loaded last.
        shared: The shared metadata that was encoded last.
    """

    serializer: object
    values: Templates = field(default_factory=Templates)
    histories: Templates = field(default_factory=Templates)
    shared: Shared | None = None
    _channels: dict[str, Mapping[int, Remembered]] = field(default_factory=dict)
    _recent: tuple[Mapping[int, Remembered], Mapping[int, Remembered]] = ({}, {})
    _recent_bytes: tuple[int, int] = (0, 0)
    _sizes: dict[str, int] = field(default_factory=dict)

    def recall(self, channel: str) -> Recall:
        """For encoding a value of the channel, or of a write to it."""
        return Recall((self._channels.get(channel, {}), *self._recent))

    def replace(self, channel: str, kept: Iterable[Remembered]) -> None:
        """Remembers the elements of a channel's value, and forgets those of the one before."""
        elements = {id(each.value): each for each in kept}
        self._channels = {**self._channels, channel: elements}
        self._sizes = {**self._sizes, channel: sum([len(each.item) for each in elements.values()])}

    def add(self, recall: Recall) -> None:
        """Remembers elements of a write for a while."""
        if not recall.kept:
            return
        newer, older = self._recent
        newer_bytes, older_bytes = self._recent_bytes
        if len(newer) >= RECENT_MAX:
            newer, older, newer_bytes, older_bytes = {}, newer, 0, newer_bytes
        self._recent = {**newer, **{id(each.value): each for each in recall.kept}}, older
        self._recent_bytes = newer_bytes + sum(len(each.item) for each in recall.kept), older_bytes

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes: items and objects."""
        elements_bytes = OBJECT_FACTOR * (MEMO_BYTES + sum(self._sizes.values()) + sum(self._recent_bytes))
        return elements_bytes + self.values.size_bytes + self.histories.size_bytes


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
