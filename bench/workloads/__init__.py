"""All workloads by name."""

from __future__ import annotations

from pathlib import Path

from bench.errors import UsageError
from bench.workloads.agent import AgentWorkload, EchoWorkload, ForkWorkload, SummariseWorkload
from bench.workloads.base import Workload
from bench.workloads.files import FilesWorkload
from bench.workloads.replay import ReplayWorkload
from bench.workloads.wide import FanoutWorkload, WideWorkload

SEEDED: tuple[type[Workload], ...] = (
    AgentWorkload,
    FilesWorkload,
    WideWorkload,
    FanoutWorkload,
    EchoWorkload,
    SummariseWorkload,
    ForkWorkload,
)
NAMES = (*(workload.name for workload in SEEDED), ReplayWorkload.name)


def make_workload(name: str, *, seed: int, trace: Path | None) -> Workload:
    """A workload by name; `replay` needs a trace file.

    Raises:
        UsageError: No such workload, or no readable trace.
    """
    if name == ReplayWorkload.name:
        if trace is None:
            raise UsageError("workload replay needs --trace FILE")
        return ReplayWorkload(seed, trace)
    for workload in SEEDED:
        if workload.name == name:
            return workload(seed)
    raise UsageError(f"unknown workload {name!r}: expected one of {', '.join(NAMES)}")
