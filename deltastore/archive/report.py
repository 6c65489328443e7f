"""What became of threads and archives, for people and for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from deltastore.errors import CallerError, StoredDataError


class Status(StrEnum):
    """What became of a thread."""

    ARCHIVED = "archived"
    """It is in a file that was read back, and not in the database any more."""
    COPIED = "copied"
    """It is in a file that was read back, and still in the database, as was asked for."""
    RESTORED = "restored"
    """It is in the database again; the file is left as it was."""
    SOUND = "sound"
    """Its file was read in full."""
    COUNTED = "counted"
    """Dry run: it would be archived."""
    KEPT = "kept"
    """The policy does not want it to go."""
    CHANGED = "changed"
    """Somebody wrote to it meanwhile: it stays in the database, and there is no file."""
    MISSING = "missing"
    """There is no such thread."""
    FAILED = "failed"
    """It was left as it was, for the reason that is given."""
    REFUSED = "refused"
    """Its file cannot be opened, or there is such a thread already: nothing was written, for the reason given."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thread.

    Attributes:
        thread_id: The thread; empty if it is not known, because its file was not read.
        status: What became of it.
        reason: Why it was left as it was; else empty.
        file: The address of its archive; empty if there is none.
        checkpoints: How many checkpoints it has, support rows included.
        payload_bytes: Bytes of its payloads in the database.
        file_bytes: Bytes of its archive.
    """

    thread_id: str
    status: Status
    reason: str = ""
    file: str = ""
    checkpoints: int = 0
    payload_bytes: int = 0
    file_bytes: int = 0


@dataclass(slots=True)
class Report:
    """All threads of one run, in the order in which they were done."""

    counts: Counter[Status] = field(default_factory=Counter)
    outcomes: list[Outcome] = field(default_factory=list)
    checkpoints: int = 0
    payload_bytes: int = 0
    file_bytes: int = 0

    def add(self, outcome: Outcome) -> None:
        """Counts a thread."""
        self.counts[outcome.status] += 1
        self.checkpoints += outcome.checkpoints
        self.payload_bytes += outcome.payload_bytes
        self.file_bytes += outcome.file_bytes
        self.outcomes.append(outcome)

    @property
    def exit_code(self) -> int:
        """0, or that of stored data which does not add up if a thread failed or is missing, or of a wrong call.

        A thread that was written to is in use: it is no problem, and the next run looks at it again.
        """
        failed = self.counts[Status.FAILED] + self.counts[Status.MISSING]
        if failed:
            return StoredDataError.exit_code
        return CallerError.exit_code if self.counts[Status.REFUSED] else 0

    def as_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "threads": {str(status): count for status, count in sorted(self.counts.items())},
            "checkpoints": self.checkpoints,
            "payload_bytes": self.payload_bytes,
            "file_bytes": self.file_bytes,
            "outcomes": [asdict(outcome) for outcome in self.outcomes],
        }
