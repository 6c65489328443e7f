"""What to run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.targets import TargetSpec
from bench.workloads.base import GraphKind

GROWTH_POINTS = 25
SWEEP_TURNS_MAX = 1280
CONVERSATIONS_MIN = 8  # with fewer threads of work they follow each other, so that there is something to measure


@dataclass(frozen=True)
class RunOptions:
    """The options of `bench run`, checked.

    Args:
        snapshot_frequency: Of the DeltaChannels, in updates.
        concurrency: Numbers of threads of work to sweep over; none to leave the sweep out.
        sweep_turns: Turns of each conversation in the sweep, at most; all together play `SWEEP_TURNS_MAX`.
        history_checkpoints: States to read by `aget_state_history`; 0 to leave it out.
        load_times: Cold loads of each kind.
    """

    workloads: tuple[str, ...]
    targets: tuple[TargetSpec, ...]
    graphs: tuple[GraphKind, ...]
    turns: int
    seed: int
    repeats: int
    snapshot_frequency: int
    durability: str
    trace: Path | None
    dsn: str
    concurrency: tuple[int, ...]
    sweep_turns: int
    history_checkpoints: int
    load_times: int

    def as_json(self) -> dict[str, Any]:
        """The options as they stand in a record: without passwords and folders."""
        shown = dataclasses.asdict(self)
        shown["dsn"] = "embedded" if self.dsn.startswith("embedded") else "postgresql"
        shown["trace"] = self.trace.name if self.trace else None
        shown["targets"] = [f"{spec.name}={spec.factory}" if spec.factory else spec.name for spec in self.targets]
        return shown

    @property
    def chunk_turns(self) -> int:
        """Turns that one target plays before the next one's turn comes."""
        return max(1, self.turns // GROWTH_POINTS)

    def sweep_turns_of(self, threads: int) -> int:
        """Turns that each of so many threads of work plays: fewer where there are many."""
        return max(1, min(self.sweep_turns, SWEEP_TURNS_MAX // threads))

    def work(self) -> int:
        """All work, in turns, for the progress bar."""
        sweep_turns = sum(
            max(threads, CONVERSATIONS_MIN) * self.sweep_turns_of(threads) for threads in self.concurrency
        )
        cells = len(self.workloads) * len(self.targets) * len(self.graphs)
        return self.repeats * cells * (self.turns + sweep_turns)
