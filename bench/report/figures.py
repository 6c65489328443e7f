"""What reports show of a cell: named figures with their spread over the repeats, in groups."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from bench.record import CellResult, Figures, WorkloadResult
from bench.wire import Traffic

Unit = Literal["bytes", "ms", "s", "per s", "count"]
DASH = "\N{EN DASH}"  # what was not measured
MEMORY_NOISE_BYTES = 1_000_000  # Python takes memory from the system by the megabyte
OPERATIONS = {
    "turn": "turn",
    "put": "put",
    "put_writes": "put_writes",
    "get_tuple": "get_tuple",
    "delta_history": "delta history",
}


@dataclass(frozen=True)
class Spread:
    """A figure over all repeats: the median, and the lowest and highest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Metric:
    """A figure of a cell.

    Args:
        read: Finds it in one repeat; None if it was not measured.
        more_is_better: For throughput; None if neither is.
        least_change: Smaller differences between records are noise.
        depends_on: Options that two records have to share for this figure to be better or worse.
    """

    name: str
    unit: Unit
    read: Callable[[Figures], float | None]
    more_is_better: bool | None = False
    least_change: float = 0.0
    depends_on: tuple[str, ...] = ("turns",)

    def of(self, cell: CellResult) -> Spread | None:
        """The figure of a cell; None if it is not verified or any repeat lacks it."""
        values = [value for figures in cell.figures if (value := self.read(figures)) is not None]
        if not values or len(values) < len(cell.figures):
            return None
        return Spread(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Group:
    """Figures that are shown in one table."""

    title: str
    note: str
    metrics: tuple[Metric, ...]


def groups(workload: WorkloadResult) -> Iterator[Group]:
    """All groups of figures that a workload may have, the most important ones first."""
    yield Group(
        "At a glance",
        "each figure is explained where it stands again below",
        (
            Metric("stored", "bytes", lambda figures: figures.stored_bytes),
            Metric("run", "s", lambda figures: figures.wall_s),
            Metric("put p50", "ms", partial(_latency_figure, "put", "p50_ms")),
            Metric("put p99", "ms", partial(_latency_figure, "put", "p99_ms")),
            Metric("load of the head", "ms", partial(_load_figure, "head", "state_ms")),
            Metric("between snapshots", "ms", partial(_load_figure, "between snapshots", "state_ms")),
            Metric("history", "s", lambda figures: figures.history_s),
            *(
                Metric(
                    f"{threads} threads", "per s", partial(_sweep_figure, threads, "turns_per_s"), more_is_better=True
                )
                for threads in sweep_levels(workload)[-1:]
            ),
        ),
    )
    yield Group(
        "The run",
        "stored: all tables with all indexes and TOAST; CPU and wall time of the turns alone; memory: highest resident "
        "size of the client during the turns, less its size at the start and the final state as objects",
        (
            Metric("stored", "bytes", lambda figures: figures.stored_bytes),
            Metric("WAL", "bytes", lambda figures: figures.wal_bytes),
            Metric("wall", "s", lambda figures: figures.wall_s),
            Metric("client CPU", "s", lambda figures: figures.client_cpu_s),
            Metric("server CPU", "s", lambda figures: figures.server_cpu_s),
            Metric("memory above state", "bytes", _memory_above_state, least_change=MEMORY_NOISE_BYTES),
        ),
    )
    for operation, title in OPERATIONS.items():
        note = "wall time of a whole turn" if operation == "turn" else "as LangGraph waits for it during the run"
        yield Group(f"Latency of {title}", note, tuple(_latency_metrics(operation)))
    yield Group(
        "Cold loads",
        "the graph's state by a new saver that has its connection up; decoding alone: the same values from one piece, "
        "by the serializer, in the same process; over the wire: one load of the head",
        tuple(_load_metrics()),
    )
    yield Group(
        "One turn over the wire",
        "the fourth turn of a new conversation, all statements counted",
        (
            Metric("statements", "count", partial(_turn_traffic, "statements"), depends_on=()),
            Metric("round trips", "count", partial(_turn_traffic, "round_trips"), depends_on=()),
            Metric("rows", "count", partial(_turn_traffic, "rows"), depends_on=()),
            Metric("sent", "bytes", partial(_turn_traffic, "sent_bytes"), depends_on=()),
            Metric("received", "bytes", partial(_turn_traffic, "received_bytes"), depends_on=()),
        ),
    )
    yield Group(
        "Threads of work at the same time",
        "new conversations in one event loop on one saver; turns per second of all together, and the p99 of a turn",
        tuple(_sweep_metrics(workload)),
    )


def _memory_above_state(figures: Figures) -> float:
    return figures.memory.above_state_bytes


def _turn_traffic(field: str, figures: Figures) -> float | None:
    return _traffic(figures.turn_traffic, field)


def _latency_metrics(operation: str) -> Iterator[Metric]:
    for name in ("p50", "p95", "p99", "max"):
        yield Metric(name, "ms", partial(_latency_figure, operation, f"{name}_ms"))


def _latency_figure(operation: str, field: str, figures: Figures) -> float | None:
    calls = figures.latencies.get(operation)
    return getattr(calls, field) if calls else None


def _load_metrics() -> Iterator[Metric]:
    for name in ("head", "between snapshots", "middle", "middle as head"):
        yield Metric(name, "ms", partial(_load_figure, name, "state_ms"))
    for name in ("head", "between snapshots"):
        updates = partial(_load_figure, name, "updates_since_snapshot")
        yield Metric(f"{name}: updates since a snapshot", "count", updates, more_is_better=None)
    yield Metric("decoding alone", "ms", partial(_load_figure, "head", "decode_ms"))
    yield Metric("connect", "ms", partial(_load_figure, "head", "connect_ms"), depends_on=())
    for field in ("statements", "round_trips", "rows"):
        yield Metric(field.replace("_", " "), "count", partial(_load_traffic, field))
    yield Metric("received", "bytes", partial(_load_traffic, "received_bytes"))
    yield Metric("history", "s", lambda figures: figures.history_s, depends_on=("turns", "history_checkpoints"))
    yield Metric("its checkpoints", "count", lambda figures: figures.history_checkpoints or None, more_is_better=None)


def _load_figure(name: str, field: str, figures: Figures) -> float | None:
    load = figures.loads.get(name)
    return getattr(load, field) if load else None


def _load_traffic(field: str, figures: Figures) -> float | None:
    load = figures.loads.get("head")
    return _traffic(load.traffic, field) if load else None


def _sweep_metrics(workload: WorkloadResult) -> Iterator[Metric]:
    for threads in sweep_levels(workload):
        rate, p99 = (partial(_sweep_figure, threads, field) for field in ("turns_per_s", "p99_ms"))
        yield Metric(f"{threads}: turns", "per s", rate, more_is_better=True, depends_on=("sweep_turns",))
        yield Metric(f"{threads}: p99", "ms", p99, depends_on=("sweep_turns",))


def _sweep_figure(threads: int, field: str, figures: Figures) -> float | None:
    for point in figures.sweep:
        if point.threads == threads:
            return point.turns_per_s if field == "turns_per_s" else point.turn.p99_ms
    return None


def sweep_levels(workload: WorkloadResult) -> list[int]:
    """Numbers of threads that any cell was measured at."""
    return sorted({point.threads for cell in workload.cells for figures in cell.figures for point in figures.sweep})


def _traffic(traffic: Traffic | None, field: str) -> float | None:
    return getattr(traffic, field) if traffic else None


def text_of(value: float, unit: Unit) -> str:
    """A figure as a reader wants it: three digits that matter and a unit that fits."""
    if unit == "bytes":
        return bytes_text(value)
    if unit == "ms":
        return f"{_digits(value)} ms" if abs(value) < 1000 else f"{_digits(value / 1000)} s"
    if unit in {"s", "per s"}:
        return f"{_digits(value)} s" if unit == "s" else f"{_digits(value)}/s"
    return _digits(value)


def bytes_text(value: float) -> str:
    """Bytes in decimal units."""
    for factor, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= factor:
            return f"{_digits(value / factor)} {name}"
    return f"{value:.0f} B"


def _digits(value: float) -> str:
    size = abs(value)
    if size == int(size) or size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.3f}"


def spread_text(spread: Spread | None, unit: Unit) -> str:
    """A figure with its range, if the repeats differ."""
    if spread is None:
        return DASH
    text, low, high = (text_of(value, unit) for value in (spread.median, spread.low, spread.high))
    return text if low == high else f"{text} ({low} to {high})"
