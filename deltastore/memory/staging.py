"""Parts of threads that are being migrated, in dicts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from deltastore.core.edits import StagedThread
from deltastore.core.model import ThreadRef


@dataclass
class _Parts:
    thread: ThreadRef
    payloads: dict[int, bytes] = field(default_factory=dict)
    newest_seconds: float = 0.0


class MemoryStaging:
    """The staging of one storage; no method awaits anything."""

    def __init__(self) -> None:
        self._threads: dict[bytes, _Parts] = {}

    async def add(self, thread: ThreadRef, part: int, payload: bytes) -> bool:
        """Adds a part behind the one before it."""
        parts = self._threads.get(thread.key, _Parts(thread))
        if part > 0 and part - 1 not in parts.payloads:
            return False
        parts.newest_seconds = time.time()
        self._threads[thread.key] = parts
        return parts.payloads.setdefault(part, payload) == payload

    async def load(self, thread_key: bytes, part: int) -> bytes | None:
        """A part's payload."""
        parts = self._threads.get(thread_key)
        return None if parts is None else parts.payloads.get(part)

    async def drop(self, thread_key: bytes, first_part: int = 0) -> None:
        """Removes the parts of a thread from one on."""
        self.drop_now(thread_key, first_part)

    def drop_now(self, thread_key: bytes, first_part: int = 0) -> None:
        """The same, at the end of an edit."""
        parts = self._threads.get(thread_key)
        if parts is not None:
            parts.payloads = {part: payload for part, payload in parts.payloads.items() if part < first_part}
            if not parts.payloads:
                del self._threads[thread_key]

    async def threads(self) -> list[StagedThread]:
        """All threads that have parts, in the order of their keys."""
        return [
            StagedThread(parts.thread, len(parts.payloads), time.time() - parts.newest_seconds)
            for _, parts in sorted(self._threads.items())
        ]
