"""What became of threads that were to be compacted, for people and for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from deltastore.errors import StoredDataError


class Compaction(StrEnum):
    """What became of a thread."""

    COMPACTED = "compacted"
    """Its history is in packs."""
    COUNTED = "counted"
    """Dry run: it would be compacted."""
    UNCHANGED = "unchanged"
    """There is nothing that would get smaller."""
    KEPT = "kept"
    """The policy does not choose it."""
    BUSY = "busy"
    """Somebody writes to it, or holds it: it stays as it is."""
    MISSING = "missing"
    """There is no such thread."""
    FAILED = "failed"
    """It was left as it was, for the reason that is given."""


@dataclass(frozen=True, slots=True)
class CompactedThread:
    """One thread.

    Attributes:
        thread_id: The thread.
        status: What became of it.
        reason: Why it was left as it was; else empty.
        segments: How many rows went into packs, older packs included.
        packs: How many packs were made of them.
        before_bytes: Payloads of these rows.
        after_bytes: Payloads of these packs.
    """

    thread_id: str
    status: Compaction
    reason: str = ""
    segments: int = 0
    packs: int = 0
    before_bytes: int = 0
    after_bytes: int = 0


@dataclass(slots=True)
class CompactionReport:
    """All threads of one run, in the order in which they were done."""

    counts: Counter[Compaction] = field(default_factory=Counter)
    threads: list[CompactedThread] = field(default_factory=list)
    segments: int = 0
    packs: int = 0
    before_bytes: int = 0
    after_bytes: int = 0

    def add(self, thread: CompactedThread) -> None:
        """Counts a thread."""
        self.counts[thread.status] += 1
        self.segments += thread.segments
        self.packs += thread.packs
        self.before_bytes += thread.before_bytes
        self.after_bytes += thread.after_bytes
        self.threads.append(thread)

    @property
    def exit_code(self) -> int:
        """0, or that of stored data which does not add up if a thread failed or is missing.

        A thread that is busy is in use: it is no problem, and the next run looks at it again.
        """
        return StoredDataError.exit_code if self.counts[Compaction.FAILED] + self.counts[Compaction.MISSING] else 0

    def as_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "threads": {str(status): count for status, count in sorted(self.counts.items())},
            "segments": self.segments,
            "packs": self.packs,
            "before_bytes": self.before_bytes,
            "after_bytes": self.after_bytes,
            "outcomes": [asdict(thread) for thread in self.threads],
        }
