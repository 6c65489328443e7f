"""What a verification found, thread by thread, for people and for programs."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from deltastore.core.findings import Kind, ThreadFindings


@dataclass(slots=True)
class Report:
    """All threads of one verification.

    Attributes:
        threads: How many were looked at.
        rows: Rows of all tables.
        checkpoints: Visible checkpoints.
        payload_bytes: Their payloads.
        damaged: Threads with damage.
        noted: Threads with notices only.
        elapsed_seconds: How long it took.
    """

    threads: int = 0
    rows: int = 0
    checkpoints: int = 0
    payload_bytes: int = 0
    damaged: list[ThreadFindings] = field(default_factory=list)
    noted: list[ThreadFindings] = field(default_factory=list)
    elapsed_seconds: float = 0.0
    _started: float = field(default_factory=time.monotonic, repr=False)

    def add(self, found: ThreadFindings) -> None:
        """Counts a thread."""
        self.threads += 1
        self.rows += found.rows
        self.checkpoints += found.checkpoints
        self.payload_bytes += found.payload_bytes
        self.elapsed_seconds = time.monotonic() - self._started
        if not found.is_sound:
            self.damaged.append(found)
        elif found.findings:
            self.noted.append(found)

    @property
    def is_sound(self) -> bool:
        """Whether there is no damage."""
        return not self.damaged

    @property
    def exit_code(self) -> int:
        """0, or 1 if there is damage."""
        return 0 if self.is_sound else 1

    @property
    def kinds(self) -> Counter[Kind]:
        """How many findings of each kind are damage."""
        return Counter(finding.kind for found in self.damaged for finding in found.damages)

    def as_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "threads": self.threads,
            "checkpoints": self.checkpoints,
            "rows": self.rows,
            "payload_bytes": self.payload_bytes,
            "elapsed_seconds": round(self.elapsed_seconds, 3),
            "findings": {str(kind): count for kind, count in sorted(self.kinds.items())},
            "damaged": [found.as_json() for found in self.damaged],
            "noted": [found.as_json() for found in self.noted],
        }
