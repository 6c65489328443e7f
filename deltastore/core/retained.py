"""What retention did, or would do."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from deltastore.core.model import ThreadRef
from deltastore.core.retention import Decision, RetentionPolicy


@dataclass(frozen=True, slots=True)
class RuleReport:
    """What one rule did.

    Attributes:
        name: The rule's name; empty for what goes whatever the rules.
        threads: Threads that it removed something from, or as a whole.
        deleted_threads: Threads that it removed as a whole.
        checkpoints: Visible checkpoints that it removed, those of deleted threads included.
        freed_bytes: Payloads that it removed, less what was written in their place.
    """

    name: str
    threads: int = 0
    deleted_threads: int = 0
    checkpoints: int = 0
    freed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RetentionFailure:
    """A thread that was left as it was, and why."""

    thread_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """One pass over all threads.

    Attributes:
        dry_run: Nothing was removed; the figures are what would have been.
        seen_threads: Threads that were looked at.
        pinned_threads: Of these, pinned ones.
        threads: Threads that something was removed from, or that were removed as a whole.
        deleted_threads: Threads that were removed as a whole.
        checkpoints: Visible checkpoints that were removed.
        freed_bytes: Payloads that were removed, less what was written in their place.
        lock_ms_max: The longest time that a thread was held, in milliseconds.
        elapsed_seconds: How long the pass took.
        rules: What each rule did, in order; the last one is for what goes whatever the rules.
        busy_threads: Ids of threads that others held all the time; the next pass looks at them again.
        failures: Threads that could not be read, or not be changed in time.
    """

    dry_run: bool
    seen_threads: int
    pinned_threads: int
    threads: int
    deleted_threads: int
    checkpoints: int
    freed_bytes: int
    lock_ms_max: float
    elapsed_seconds: float
    rules: tuple[RuleReport, ...]
    busy_threads: tuple[str, ...] = ()
    failures: tuple[RetentionFailure, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The same as lists, objects and numbers."""
        return asdict(self)


@dataclass(slots=True)
class Tally:
    """Figures of a pass, as they come; by the position of the rule, None for what goes whatever the rules."""

    threads: Counter[int | None] = field(default_factory=Counter)
    deleted: Counter[int | None] = field(default_factory=Counter)
    checkpoints: Counter[int | None] = field(default_factory=Counter)
    freed_bytes: Counter[int | None] = field(default_factory=Counter)
    seen: int = 0
    pinned: int = 0
    lock_ms_max: float = 0.0
    busy: list[ThreadRef] = field(default_factory=list)
    failures: list[RetentionFailure] = field(default_factory=list)

    def add(self, rule: int | None, decision: Decision, freed_bytes: int) -> None:
        """Counts what was done with a thread."""
        self.threads[rule] += 1
        self.deleted[rule] += decision.whole_thread
        self.checkpoints[rule] += len(decision.checkpoints)
        self.freed_bytes[rule] += freed_bytes

    def report(self, policy: RetentionPolicy, *, dry_run: bool, elapsed_seconds: float) -> RetentionReport:
        """The figures at the end."""
        names: list[tuple[int | None, str]] = [*((number, rule.name) for number, rule in enumerate(policy.rules))]
        rules = tuple(
            RuleReport(name, self.threads[at], self.deleted[at], self.checkpoints[at], self.freed_bytes[at])
            for at, name in [*names, (None, "")]
        )
        return RetentionReport(
            dry_run=dry_run,
            seen_threads=self.seen,
            pinned_threads=self.pinned,
            threads=self.threads.total(),
            deleted_threads=self.deleted.total(),
            checkpoints=self.checkpoints.total(),
            freed_bytes=self.freed_bytes.total(),
            lock_ms_max=round(self.lock_ms_max, 1),
            elapsed_seconds=round(elapsed_seconds, 3),
            rules=rules,
            busy_threads=tuple(thread.thread_id for thread in self.busy),
            failures=tuple(self.failures),
        )
