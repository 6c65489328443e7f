"""Numbers from samples: percentiles and histograms of latencies, and what a process used of memory and CPU."""

from __future__ import annotations

import gc
import math
import resource
import sys
import types
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

BUCKETS_PER_DECADE = 10
_NOT_STATE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


@dataclass(frozen=True)
class Latency:
    """The distribution of one kind of call, in milliseconds.

    Args:
        histogram: Calls by bucket; bucket b holds latencies from 10^(b/10) ms up to the next bucket.
    """

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    histogram: dict[int, int]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest sample that at least this share (0 to 1) of all samples do not exceed (nearest rank).

    Raises:
        ValueError: There is no sample, or the share is not within 0 and 1.
    """
    if not ordered or not 0 <= share <= 1:
        raise ValueError(f"no percentile {share} of {len(ordered)} samples")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def latency(samples_ms: Iterable[float]) -> Latency | None:
    """Sums samples up; None if there are none."""
    ordered = sorted(samples_ms)
    if not ordered:
        return None
    p50, p95, p99, top = (round(percentile(ordered, share), 4) for share in (0.5, 0.95, 0.99, 1.0))
    return Latency(len(ordered), p50, p95, p99, top, histogram(ordered))


def histogram(samples_ms: Iterable[float]) -> dict[int, int]:
    """Samples by logarithmic bucket (`BUCKETS_PER_DECADE`)."""
    logs = (math.log10(max(sample, 1e-3)) for sample in samples_ms)
    buckets = Counter(math.floor(log * BUCKETS_PER_DECADE) for log in logs)
    return dict(sorted(buckets.items()))


def median(samples: Iterable[float]) -> float:
    """The middle sample (nearest rank, so one that was measured)."""
    return percentile(sorted(samples), 0.5)


def deep_size_bytes(root: Any) -> int:
    """The size in memory of a value with everything that it refers to, classes and functions left out."""
    seen: set[int] = set()
    stack, total_bytes = [root], 0
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, _NOT_STATE):
            continue
        seen.add(id(value))
        total_bytes += sys.getsizeof(value)
        stack.extend(gc.get_referents(value))
    return total_bytes


class PeakMemory:
    """Highest resident memory of this process since `reset` where the system can tell (Linux), else since its start."""

    _STATUS = Path("/proc/self/status")
    _CLEAR = Path("/proc/self/clear_refs")

    def reset(self) -> None:
        """Forgets the peak so far, if the system can."""
        if self._CLEAR.exists():
            self._CLEAR.write_text("5")

    def peak_bytes(self) -> int:
        """The highest resident memory."""
        if self._STATUS.exists():
            line = next(line for line in self._STATUS.read_text().splitlines() if line.startswith("VmHWM"))
            return int(line.split()[1]) * 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def now_bytes(self) -> int:
        """The resident memory now."""
        return int(psutil.Process().memory_info().rss)


def server_cpu_seconds(postmaster: psutil.Process) -> float:
    """User and system time of a PostgreSQL server: the postmaster, its living children and those that have ended."""
    times = postmaster.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in postmaster.children(recursive=True):
        try:
            child_times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue  # it has ended meanwhile: the next reading has it among the postmaster's ended children
        total += child_times.user + child_times.system
    return float(total)
