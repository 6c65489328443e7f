"""All workloads by name."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from bench.errors import UsageError
from bench.text import standard_library
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


def digests(names: Collection[str], trace: Path | None) -> dict[str, str]:
    """SHA-256 of what the workloads of these names are made of: `text` of the library, and `trace`, the file as it is.

    Raises:
        UsageError: No readable trace.
    """
    found: dict[str, str] = {}
    if set(names) - {ReplayWorkload.name}:
        found["text"] = standard_library().digest()
    if ReplayWorkload.name in names and trace is not None:
        try:
            found["trace"] = hashlib.sha256(trace.read_bytes()).hexdigest()
        except OSError as error:
            raise UsageError(f"trace {trace} cannot be read: {error}") from error
    return found


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
