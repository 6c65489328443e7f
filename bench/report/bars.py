"""The bars that deltastore has set itself: ratios computed from records, defined in words in `docs/benchmarks.md`.

"ours" is the target `deltastore`, "stock" is `postgres`, "floor" is `memory`. The bars are defined for runs of `agent`:
those about growth for a long one, the others for a reference with both rivals. Shorter runs and other workloads say
nothing about them, so rows whose run is not among the records are left out, and `missing_bars` says so in a line. A row
is empty where its run has not measured what it needs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.record import CellResult, Figures, GrowthPoint, Load, Record, WorkloadResult

OURS, STOCK, FLOOR = "deltastore", "postgres", "memory"
WORKLOAD = "agent"
USUAL_DURABILITY = "async"
REFERENCE_TURNS = 500
LONG_RUN_TURNS = 5_000
GRAPHS = ("plain", "delta")
EARLY_TURN = 100
SWEEP_THREADS = 64
MEMORY_FREE_BYTES = 64_000_000

Reader = Callable[[WorkloadResult, Figures], float | None]


@dataclass(frozen=True)
class BarRow:
    """One bar and how the targets stand to it.

    Args:
        bar: The value to reach, in the direction of `at_least`.
        best: What the best would reach, in words.
        values: By target; None if not measured.
        run: Workload and length of the run that it is of.
    """

    measure: str
    graph: str
    bar: float
    at_least: bool
    best: str
    values: dict[str, float | None]
    run: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether deltastore is over the bar; None if that was not measured."""
        ours = self.values.get(OURS)
        if ours is None:
            return None
        return ours >= self.bar if self.at_least else ours <= self.bar


@dataclass(frozen=True)
class _Measure:
    """How to make a row: from absolute figures of each target, or from their ratios to stock."""

    name: str
    bar: float
    best: str
    read: Reader
    graphs: tuple[str, ...] = GRAPHS
    at_least: bool = False
    stock_over_target: bool | None = None  # None: the figure itself; else the ratio to stock and which way round
    long_run: bool = False


def _wall(_workload: WorkloadResult, figures: Figures) -> float | None:
    return figures.wall_s


def _stored(_workload: WorkloadResult, figures: Figures) -> float | None:
    return figures.stored_bytes


def _stored_over_limit(workload: WorkloadResult, figures: Figures) -> float | None:
    return figures.stored_bytes / workload.limits.zstd3_bytes


def _load_over_decode(_workload: WorkloadResult, figures: Figures) -> float | None:
    load = figures.loads.get("head")
    return _over_decode(load) if load else None


def _middle_over_head(_workload: WorkloadResult, figures: Figures) -> float | None:
    middle, head = figures.loads.get("middle"), figures.loads.get("middle as head")
    return _over_decode(middle) / _over_decode(head) if middle and head else None


def _over_decode(load: Load) -> float:
    return load.state_ms / load.decode_ms


def _throughput(_workload: WorkloadResult, figures: Figures) -> float | None:
    return next((point.turns_per_s for point in figures.sweep if point.threads == SWEEP_THREADS), None)


def _history(_workload: WorkloadResult, figures: Figures) -> float | None:
    return figures.history_s


def _growth(workload: WorkloadResult, figures: Figures) -> float | None:
    points = {point.turns: point.stored_bytes for point in figures.growth}
    tenth = workload.turns // 10
    first, last = (points.get(end, 0) - points.get(start, 0) for start, end in _tenths(workload.turns, tenth))
    return last / first if first > 0 else None


def _tenths(turns: int, tenth: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (0, tenth), (turns - tenth, turns)


def _put_growth(_workload: WorkloadResult, figures: Figures) -> float | None:
    early = next((point for point in figures.growth if point.turns >= EARLY_TURN), None)
    return _put_p50(figures.growth[-1]) / _put_p50(early) if early else None


def _put_p50(point: GrowthPoint) -> float:
    return point.p50_ms["put"]


def _memory_over_allowance(_workload: WorkloadResult, figures: Figures) -> float | None:
    return figures.memory.above_state_bytes / (MEMORY_FREE_BYTES + 2 * figures.memory.state_bytes)


_MEASURES = (
    _Measure("stored bytes: stock / target", 400, "800", _stored, ("plain",), at_least=True, stock_over_target=True),
    _Measure("stored bytes: stock / target", 10, "20", _stored, ("delta",), at_least=True, stock_over_target=True),
    _Measure("stored bytes / zstd-3 of the final state in one piece", 5, "2.5", _stored_over_limit),
    _Measure("wall time of the run: target / stock", 0.30, "below memory", _wall, ("plain",), stock_over_target=False),
    _Measure("wall time of the run: target / stock", 0.65, "below memory", _wall, ("delta",), stock_over_target=False),
    _Measure("cold load of the head / decoding alone", 1.5, "1.2", _load_over_decode),
    _Measure("load of the middle checkpoint / of the head at that size", 1.3, "1", _middle_over_head),
    _Measure(
        f"{SWEEP_THREADS} threads of work, turns/s: target / stock",
        1.7,
        "2.5",
        _throughput,
        ("delta",),
        at_least=True,
        stock_over_target=False,
    ),
    _Measure("state history: stock time / target", 2.5, "5", _history, at_least=True, stock_over_target=True),
    _Measure("bytes per step, last tenth / first tenth of the turns", 1.1, "1.0", _growth, long_run=True),
    _Measure(f"put p50, last turns / at turn {EARLY_TURN}", 1.3, "1.0", _put_growth, ("delta",), long_run=True),
    _Measure("peak memory above the state / (64 MB + 2 states)", 1.0, "", _memory_over_allowance),
)


def bar_rows(records: Sequence[Record]) -> list[BarRow]:
    """The bars whose runs are among the records."""
    references, long_runs = _runs(records)
    return [
        _row(measure, graph, run)
        for measure in _MEASURES
        for graph in measure.graphs
        for run in (long_runs if measure.long_run else references)[graph]
    ]


def missing_bars(records: Sequence[Record]) -> str:
    """Why bars are not shown, in a line; empty if all are, or if the records have no figures at all."""
    if not any(record.has_figures for record in records):
        return ""
    references, long_runs = _runs(records)
    needs = (
        ("against the stock saver", references, f"{REFERENCE_TURNS:,} turns or more of {OURS} and {STOCK}"),
        ("about growth", long_runs, f"{LONG_RUN_TURNS:,} turns or more of {OURS}"),
    )
    missing = [
        f"{what} in {' and '.join(graphs)} (defined for a run of {WORKLOAD} with {needed})"
        for what, found, needed in needs
        if (graphs := [graph for graph in GRAPHS if not found[graph]])
    ]
    return f"Bars not shown, for their runs are not here: {'; '.join(missing)}." if missing else ""


class _Run(NamedTuple):
    workload: WorkloadResult
    durability: str


_Runs = dict[str, list[_Run]]


def _runs(records: Sequence[Record]) -> tuple[_Runs, _Runs]:
    """By graph: the first reference, and the longest of the long runs of each durability."""
    runs = [_Run(workload, record.options["durability"]) for record in records for workload in record.workloads]
    references, long_runs = _Runs(), _Runs()
    for graph in GRAPHS:
        of_graph = [run for run in runs if run.workload.name == WORKLOAD and OURS in _targets(run.workload, graph)]
        references[graph] = [
            run for run in of_graph if run.workload.turns >= REFERENCE_TURNS and STOCK in _targets(run.workload, graph)
        ][:1]
        longest: dict[str, _Run] = {}
        for run in sorted(of_graph, key=lambda run: run.workload.turns, reverse=True):
            if run.workload.turns >= LONG_RUN_TURNS:
                longest.setdefault(run.durability, run)
        long_runs[graph] = [*longest.values()]
    return references, long_runs


def _targets(workload: WorkloadResult, graph: str) -> set[str]:
    """Targets with figures."""
    return {cell.target for cell in workload.cells if cell.graph == graph and cell.figures}


def _row(measure: _Measure, graph: str, of_run: _Run) -> BarRow:
    workload = of_run.workload
    values = {target: _value(measure, workload, target, graph) for target in (OURS, STOCK, FLOOR)}
    stock = values[STOCK]
    if measure.stock_over_target is not None:
        values = {target: _ratio(stock, value, measure) for target, value in values.items()}
    run = f"{workload.name}, {workload.turns:,} turns"
    if of_run.durability != USUAL_DURABILITY:
        run += f", durability {of_run.durability}"
    return BarRow(measure.name, graph, measure.bar, measure.at_least, measure.best, values, run)


def _ratio(stock: float | None, value: float | None, measure: _Measure) -> float | None:
    if not stock or not value:
        return None
    return stock / value if measure.stock_over_target else value / stock


def _value(measure: _Measure, workload: WorkloadResult, target: str, graph: str) -> float | None:
    cell = find_cell(workload.cells, target, graph)
    values = [measure.read(workload, figures) for figures in cell.figures] if cell else []
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def find_cell(cells: Iterable[CellResult], target: str, graph: str) -> CellResult | None:
    """The cell of a target in a graph."""
    return next((cell for cell in cells if (cell.target, cell.graph) == (target, graph)), None)
