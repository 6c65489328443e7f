"""The plots of one workload: which figures go into which plot."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from bench.measure import median
from bench.record import CellResult, GrowthPoint, WorkloadResult
from bench.report.figures import bytes_text, text_of
from bench.report.plots import Row, Series, distribution_plot, line_plot

# Targets that have a colour of their own; others take the remaining ones in order.
COLOURS = {"deltastore": 0, "postgres": 1, "sqlite": 2, "memory": 3}
COLOURS_COUNT = 8


@dataclass(frozen=True)
class Chart:
    """A plot with its heading."""

    title: str
    note: str
    svg: str


def styles(cells: Sequence[CellResult]) -> dict[tuple[str, str], str]:
    """Class names of each cell: a colour by target, a dash by graph."""
    others = list(dict.fromkeys(cell.target for cell in cells if cell.target not in COLOURS))
    colours = {name: len(COLOURS) + position % (COLOURS_COUNT - len(COLOURS)) for position, name in enumerate(others)}
    return {(cell.target, cell.graph): f"t{(COLOURS | colours)[cell.target]} {cell.graph}" for cell in cells}


def charts(workload: WorkloadResult) -> Iterator[Chart]:
    """All plots that the figures of a workload are enough for."""
    cells = [cell for cell in workload.cells if cell.figures]
    if not cells:
        return
    style = styles(cells)
    yield _growth(cells, style)
    yield _by_turn(cells, style, "turn", "Time of a turn", "median wall time of a whole turn as the conversation grows")
    yield _by_turn(cells, style, "put", "Time of a save", "median put latency as the conversation grows")
    yield _puts(cells, style)
    yield from _loads(cells, style, workload)
    yield from _throughput(cells, style)


def _name(cell: CellResult) -> str:
    return f"{cell.target} {cell.graph}"


def _style(style: dict[tuple[str, str], str], cell: CellResult) -> str:
    return style[cell.target, cell.graph]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _milliseconds(value: float) -> str:
    if value >= 1000:
        return f"{value / 1000:g} s"
    return f"{float(f'{value:.3g}'):g} ms"


def _size(value: float) -> str:
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor * 0.999:
            return f"{float(f'{value / factor:.3g}'):g} {unit}"
    return f"{value:.0f} B"


def _growth(cells: Sequence[CellResult], style: dict[tuple[str, str], str]) -> Chart:
    series = [
        Series(_name(cell), _style(style, cell), _points(cell, lambda point: point.stored_bytes or None))
        for cell in cells
    ]
    svg = line_plot(series, x_title="turns", x_text=_count, y_text=_size, y_log=True)
    return Chart("Stored bytes", "all tables with all indexes, as the conversation grows; logarithmic", svg)


def _by_turn(
    cells: Sequence[CellResult], style: dict[tuple[str, str], str], operation: str, title: str, note: str
) -> Chart:
    series = [
        Series(_name(cell), _style(style, cell), _points(cell, lambda point: point.p50_ms.get(operation)))
        for cell in cells
    ]
    svg = line_plot(series, x_title="turns", x_text=_count, y_text=_milliseconds, y_log=True)
    return Chart(title, f"{note}; logarithmic", svg)


def _points(cell: CellResult, read: Callable[[GrowthPoint], float | None]) -> list[tuple[float, float]]:
    """Medians over the repeats at each point of the growth curve."""
    points: list[tuple[float, float]] = []
    for same in zip(*(figures.growth for figures in cell.figures), strict=True):
        values = [value for point in same if (value := read(point)) is not None]
        if values:
            points.append((same[0].turns, median(values)))
    return points


def _puts(cells: Sequence[CellResult], style: dict[tuple[str, str], str]) -> Chart:
    rows = []
    for cell in cells:
        calls = [figures.latencies["put"] for figures in cell.figures]
        p50_ms, p99_ms = (statistics.median(getattr(each, name) for each in calls) for name in ("p50_ms", "p99_ms"))
        note = f"p50 {text_of(p50_ms, 'ms')}, p99 {text_of(p99_ms, 'ms')}"
        histogram = sum((Counter(each.histogram) for each in calls), Counter[int]())
        rows.append(Row(_name(cell), _style(style, cell), p50_ms, note, histogram))
    svg = distribution_plot(rows, x_title="logarithmic", x_text=_milliseconds)
    return Chart("Saves", "latencies of all puts of all repeats; the tick is the median", svg)


def _loads(cells: Sequence[CellResult], style: dict[tuple[str, str], str], workload: WorkloadResult) -> Iterator[Chart]:
    rows = []
    for cell in cells:
        loads = [figures.loads["head"] for figures in cell.figures if "head" in figures.loads]
        samples = [sample for load in loads for sample in load.samples_ms]
        if samples:
            decode_ms = median(load.decode_ms for load in loads)
            middle = median(samples)
            note = f"{text_of(middle, 'ms')}, {middle / decode_ms:.1f} times decoding"
            rows.append(Row(_name(cell), _style(style, cell), middle, note, {}, samples))
    if rows:
        note = (
            f"state of the head ({bytes_text(workload.limits.state_bytes)}) by a new saver each time; "
            f"decoding it alone takes {text_of(workload.limits.decode_ms, 'ms')}"
        )
        yield Chart("Cold loads", note, distribution_plot(rows, x_title="logarithmic", x_text=_milliseconds))


def _throughput(cells: Sequence[CellResult], style: dict[tuple[str, str], str]) -> Iterator[Chart]:
    series = []
    for cell in cells:
        by_threads: dict[int, list[float]] = {}
        for figures in cell.figures:
            for point in figures.sweep:
                by_threads.setdefault(point.threads, []).append(point.turns_per_s)
        if by_threads:
            points = [(float(threads), median(values)) for threads, values in sorted(by_threads.items())]
            series.append(Series(_name(cell), _style(style, cell), points))
    if series:
        svg = line_plot(series, x_title="threads of work", x_text=_count, y_text=_count, x_log=True)
        yield Chart("Throughput", "turns per second of all threads of work together, on one saver", svg)


def stored_by_table(workload: WorkloadResult) -> str:
    """One bar per cell, of the same length each, cut by table and there by rows, indexes and TOAST."""
    cells = [cell for cell in workload.cells if cell.figures and cell.figures[0].stored_bytes]
    style = styles(workload.cells)
    return "".join(_stack(cell, _style(style, cell)) for cell in cells)


def _stack(cell: CellResult, style: str) -> str:
    figures = cell.figures[0]
    tables = sorted(figures.tables, key=lambda part: -part.total_bytes)
    pieces, names = [], []
    for part in tables:
        kinds = (("rows", part.table_bytes), ("index", part.index_bytes), ("toast", part.toast_bytes))
        for kind, size_bytes in kinds:
            if size_bytes:
                title = f"{escape(part.name)}, {kind}: {bytes_text(size_bytes)}"
                share = f"{100 * size_bytes / figures.stored_bytes:.2f}%"
                pieces.append(f'<i class="{kind}" style="width:{share}" title="{title}"></i>')
        names.append(f"<li>{escape(part.name.rpartition('.')[2])} {bytes_text(part.total_bytes)}</li>")
    total = bytes_text(figures.stored_bytes)
    head = f'<div class="head"><span class="name">{escape(_name(cell))}</span><span>{total}</span></div>'
    return f'<div class="{style}">{head}<div class="stack">{"".join(pieces)}</div><ul>{"".join(names)}</ul></div>'
