"""What a verification found and a repair did, thread by thread."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from deltastore.core.findings import Kind, ThreadFindings
from deltastore.core.repair import Action, Plan


class Status(StrEnum):
    """What became of a thread."""

    SOUND = "sound"
    DAMAGED = "damaged"
    REPAIRED = "repaired"
    CHANGED = "changed meanwhile"
    LEFT = "left alone"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thread.

    Attributes:
        status: What became of it: sound, damaged (and no repair was asked for), repaired, changed between the look and
            the repair (so nothing was done), or left alone, since no repair can help.
        found: What was found.
        plan: How it is repaired, or would be.
        left: What is found after the repair; else None.
    """

    status: Status
    found: ThreadFindings
    plan: Plan = field(default_factory=Plan)
    left: ThreadFindings | None = None

    @property
    def is_sound(self) -> bool:
        """Whether the thread is without damage now."""
        return (self.left or self.found).is_sound

    @property
    def actions(self) -> tuple[Action, ...]:
        """The steps of the repair."""
        return self.plan.actions

    def as_json(self) -> dict[str, Any]:
        """The outcome as JSON."""
        return {
            "status": str(self.status),
            **self.found.as_json(),
            "actions": [asdict(action) for action in self.actions],
            "refusal": self.plan.refusal,
            "left": None if self.left is None else self.left.as_json()["findings"],
        }


@dataclass(slots=True)
class Report:
    """All threads of one verification.

    Attributes:
        counts: Threads by status.
        rows: Rows of all tables that were looked at.
        checkpoints: Visible checkpoints.
        payload_bytes: Their payloads.
        damaged: Threads in which damage was found.
        noted: Threads with notices only.
        elapsed_seconds: How long it took.
    """

    counts: Counter[Status] = field(default_factory=Counter)
    rows: int = 0
    checkpoints: int = 0
    payload_bytes: int = 0
    damaged: list[Outcome] = field(default_factory=list)
    noted: list[Outcome] = field(default_factory=list)
    elapsed_seconds: float = 0.0
    _started: float = field(default_factory=time.monotonic, repr=False)

    def add(self, outcome: Outcome) -> None:
        """Counts a thread."""
        found = outcome.found
        self.counts[outcome.status] += 1
        self.rows += found.rows
        self.checkpoints += found.checkpoints
        self.payload_bytes += found.payload_bytes
        self.elapsed_seconds = time.monotonic() - self._started
        outcome = replace(outcome, plan=replace(outcome.plan, repairs=None))
        if not found.is_sound:
            self.damaged.append(outcome)
        elif found.findings:
            self.noted.append(outcome)

    @property
    def threads(self) -> int:
        """How many threads were looked at."""
        return self.counts.total()

    @property
    def is_sound(self) -> bool:
        """Whether no thread is damaged, or none any more."""
        return all(outcome.is_sound for outcome in self.damaged)

    @property
    def exit_code(self) -> int:
        """0, or 1 if there is damage, or damage left."""
        return 0 if self.is_sound else 1

    @property
    def kinds(self) -> Counter[Kind]:
        """How much damage of each kind was found."""
        return Counter(finding.kind for outcome in self.damaged for finding in outcome.found.damages)

    def as_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "threads": {str(status): count for status, count in sorted(self.counts.items())},
            "checkpoints": self.checkpoints,
            "rows": self.rows,
            "payload_bytes": self.payload_bytes,
            "elapsed_seconds": round(self.elapsed_seconds, 3),
            "findings": {str(kind): count for kind, count in sorted(self.kinds.items())},
            "damaged": [outcome.as_json() for outcome in self.damaged],
            "noted": [outcome.as_json() for outcome in self.noted],
        }
