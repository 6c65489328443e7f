"""What a process remembers of the objects of a thread: what they were encoded to, and templates of what was loaded."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from deltastore.core.metadata import Shared
from deltastore.core.remembered import Elements, Recall
from deltastore.core.templates import OBJECT_FACTOR, Templates

RECENT_MAX = 256
"""Elements of writes that are remembered at most, besides those of the last write."""
MEMO_BYTES = 256
"""About what an empty memo takes, before the factor."""
CALLS_PER_TRIM = 32
MEMOS_PER_CALL = 4
"""With many memos their sizes are summed up less often, so that a call pays for so many of them on average."""


@dataclass(slots=True)
class Memo:
    """Remembered objects of one namespace of one thread.

    For each channel, those of the value that was encoded or decoded last; and those of the writes since the last
    checkpoint, which usually appear in a channel of the next one. What a run had is forgotten when the next one loads,
    so that a thread at rest keeps few objects alive: the garbage collector looks at all of them, now and then. Every
    change replaces a value as a whole, so threads may share a memo.

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
    _channels: Mapping[str, Elements] = field(default_factory=dict)
    _recent: Elements = field(default_factory=Elements)

    def recall(self, channel: str) -> Recall:
        """For encoding a value of the channel, or of a write to it."""
        elements = self._channels.get(channel)
        recent = self._recent.imprints
        return Recall((recent,) if elements is None else (elements.imprints, recent))

    def add(self, recall: Recall) -> None:
        """Remembers elements of a write until the next checkpoint."""
        if recall.objects:
            recent, new = self._recent, recall.elements()
            self._recent = recent.joined(new) if len(recent.objects) < RECENT_MAX else new

    def replace(self, recalls: Mapping[str, Recall]) -> None:
        """Remembers the elements of a checkpoint's channels, and forgets those that these channels had before."""
        self._channels = {**self._channels, **{channel: recall.elements() for channel, recall in recalls.items()}}
        self._recent = Elements()

    def begin(self, channels: Mapping[str, Elements]) -> None:
        """Remembers the elements of a state that was just loaded, and nothing from before."""
        self._channels, self._recent = channels, Elements()

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes: items and objects."""
        elements_bytes = sum([each.size_bytes for each in self._channels.values()], self._recent.size_bytes)
        shared_bytes = 0 if self.shared is None else self.shared.size_bytes
        templates_bytes = self.values.size_bytes + self.histories.size_bytes
        return OBJECT_FACTOR * (MEMO_BYTES + elements_bytes) + templates_bytes + shared_bytes


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
            if self._calls >= max(CALLS_PER_TRIM, len(self._memos) // MEMOS_PER_CALL):
                self._calls = 0
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
