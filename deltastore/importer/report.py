"""What a migration did, for people and for programs."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from deltastore.errors import StoredDataError


class Status(StrEnum):
    """What became of a thread."""

    IMPORTED = "imported"
    CAUGHT_UP = "caught up"
    PRESENT = "present"
    DIVERGED = "diverged"
    FAILED = "failed"
    FILTERED = "filtered"
    COUNTED = "counted"


UNSETTLED = frozenset({Status.DIVERGED, Status.FAILED})


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thread.

    Attributes:
        thread_id: The thread.
        status: What became of it.
        reason: Why it was not imported; else empty.
        notes: What is worth knowing although it was imported.
        checkpoints: How many it has.
        verified: How many of them were compared.
        source_bytes: Bytes of its values in the source.
        target_bytes: Bytes of its payloads in the target.
    """

    thread_id: str
    status: Status
    reason: str = ""
    notes: tuple[str, ...] = ()
    checkpoints: int = 0
    verified: int = 0
    source_bytes: int = 0
    target_bytes: int = 0


@dataclass(slots=True)
class Report:
    """All threads of one run.

    Attributes:
        dry_run: Nothing was written; `target_bytes` and `estimated_seconds` are estimates.
        counts: Threads by status.
        unsettled: Threads that need attention.
        noted: Imported threads with notes.
        dropped: Threads whose staged parts were removed, as no run will go on with them.
    """

    dry_run: bool = False
    counts: Counter[Status] = field(default_factory=Counter)
    unsettled: list[Outcome] = field(default_factory=list)
    noted: list[Outcome] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    checkpoints: int = 0
    verified: int = 0
    source_bytes: int = 0
    target_bytes: int = 0
    estimated_seconds: float | None = None
    elapsed_seconds: float = 0.0
    _started: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        """Counts a thread."""
        self.counts[outcome.status] += 1
        self.checkpoints += outcome.checkpoints
        self.verified += outcome.verified
        self.source_bytes += outcome.source_bytes
        self.target_bytes += outcome.target_bytes
        self.elapsed_seconds = time.monotonic() - self._started
        if outcome.status in UNSETTLED:
            self.unsettled.append(outcome)
        elif outcome.notes:
            self.noted.append(outcome)

    @property
    def exit_code(self) -> int:
        """0, or that of stored data which does not add up if a thread was left out."""
        return StoredDataError.exit_code if self.unsettled else 0

    @property
    def ratio(self) -> float | None:
        """How many times smaller the target is."""
        return self.source_bytes / self.target_bytes if self.target_bytes and self.source_bytes else None

    def as_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "dry_run": self.dry_run,
            "threads": {str(status): count for status, count in sorted(self.counts.items())},
            "checkpoints": self.checkpoints,
            "verified": self.verified,
            "source_bytes": self.source_bytes,
            "target_bytes": self.target_bytes,
            "elapsed_seconds": round(self.elapsed_seconds, 3),
            "estimated_seconds": self.estimated_seconds,
            "unsettled": [asdict(outcome) for outcome in self.unsettled],
            "noted": [asdict(outcome) for outcome in self.noted],
            "dropped": self.dropped,
        }


def megabytes(number_bytes: float) -> str:
    """A number of bytes for people."""
    if number_bytes < 1e6:
        return f"{number_bytes / 1e3:,.1f} kB"
    return f"{number_bytes / 1e6:,.1f} MB"


def summary(report: Report) -> str:
    """The report for people."""
    lines = [f"{count} {'thread' if count == 1 else 'threads'} {status}" for status, count in report.counts.items()]
    compared = "" if report.dry_run else f", {report.verified:,} of them compared on both sides"
    lines.append(f"{report.checkpoints:,} checkpoints{compared}")
    sizes = [f"{megabytes(report.source_bytes)} of values"] if report.source_bytes else []
    sizes += [f"{megabytes(report.target_bytes)} in the target"] if report.target_bytes else []
    ratio = "" if report.ratio is None else f" ({report.ratio:,.0f} times smaller)"
    if sizes:
        lines.append(f"{', '.join(sizes)}{ratio}")
    if report.dry_run and report.estimated_seconds is not None:
        lines.append(f"nothing was written; about {report.estimated_seconds:,.0f} s by one worker, from a sample")
    else:
        lines.append("nothing was written" if report.dry_run else f"{report.elapsed_seconds:,.1f} s")
    lines += [f"note, thread {each.thread_id!r}: {note}" for each in report.noted for note in each.notes]
    lines += [
        f"thread {each!r}: parts of an earlier run were removed, nothing will become of them" for each in report.dropped
    ]
    lines += [f"{each.status}, thread {each.thread_id!r}: {each.reason}" for each in report.unsettled]
    if report.unsettled:
        lines.append("threads that failed or diverged are as they were before in the target; all others are done")
    return "\n".join(lines)
