"""Records as Markdown tables, to paste into an issue or a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bench.record import CellResult, Record, WorkloadResult
from bench.report.bars import FLOOR, OURS, STOCK, BarRow, bar_rows, missing_bars
from bench.report.figures import DASH, bytes_text, groups, spread_text, text_of

NOTHING_MEASURED = "**Nothing was measured**: no target was played and verified."
_REACHED = {True: "yes", False: "**no**", None: DASH}


def markdown(records: Sequence[Record]) -> str:
    """The report of one or more records."""
    lines: list[str] = []
    for record in records:
        lines += _header(record)
        for workload in record.workloads:
            lines += _workload(workload)
        if not record.workloads:
            lines += [NOTHING_MEASURED, ""]
    rows, missing = bar_rows(records), missing_bars(records)
    if rows or missing:
        lines += ["## Bars", ""]
    if rows:
        lines += [*_bars(rows), ""]
    lines += [missing]
    return "\n".join(lines).rstrip() + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1) -> list[str]:
    """A Markdown table; all columns but the first ones are aligned right."""
    rule = ["---" if position < text_columns else "---:" for position in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def _header(record: Record) -> Iterator[str]:
    versions = {**record.versions, "PostgreSQL": record.server.get("server_version", DASH)}
    yield f"# Benchmark of {record.started_at}" + (" (interrupted)" if record.interrupted else "")
    yield ""
    yield f"- commit {record.commit}; {record.seconds:,.0f} s in all"
    yield f"- {', '.join(f'{name} {value}' for name, value in record.machine.items())}"
    yield f"- {', '.join(f'{name} {value}' for name, value in versions.items())}"
    yield f"- {options_text(record)}"
    if record.digests:
        yield f"- {', '.join(f'{name} sha256 {digest}' for name, digest in record.digests.items())}"
    yield ""


def _workload(workload: WorkloadResult) -> Iterator[str]:
    limits = workload.limits
    yield f"## Workload {workload.name}: {workload.turns:,} turns, {workload.checkpoints:,} checkpoints"
    yield ""
    yield f"{workload.summary}"
    yield ""
    row = f"; as one row from PostgreSQL {text_of(limits.row_ms, 'ms')}" if limits.row_ms is not None else ""
    yield (
        f"Limits: final state {bytes_text(limits.state_bytes)}, with zstd level 3 in one piece "
        f"{bytes_text(limits.zstd3_bytes)}; decoded in {text_of(limits.decode_ms, 'ms')}{row}."
    )
    yield ""
    for cell in workload.cells:
        if cell.status != "verified":
            yield f"- **{cell.target} {cell.graph}: {cell.status}**: {cell.problem}"
            yield ""
    verified = [cell for cell in workload.cells if cell.figures]
    if not verified:
        yield from (NOTHING_MEASURED, "")
    for group in groups(workload):
        shown = [metric for metric in group.metrics if any(metric.of(cell) for cell in verified)]
        if shown:
            rows = [
                [_name(cell), *(spread_text(metric.of(cell), metric.unit) for metric in shown)] for cell in verified
            ]
            yield from (f"### {group.title}", "", f"{group.note}.", "")
            yield from table(["target", *(metric.name for metric in shown)], rows)
            yield ""
    yield from _stored(verified)


def _stored(cells: Sequence[CellResult]) -> Iterator[str]:
    rows = [
        [
            _name(cell),
            part.name,
            *map(bytes_text, (part.table_bytes, part.index_bytes, part.toast_bytes, part.total_bytes)),
        ]
        for cell in cells
        for part in sorted(cell.figures[0].tables, key=lambda part: -part.total_bytes)
    ]
    if rows:
        yield from ("### Bytes by table", "")
        if any(len(cell.figures) > 1 for cell in cells):
            yield from ("of the first repeat.", "")
        yield from table(["target", "table", "rows", "indexes", "TOAST", "all"], rows, text_columns=2)
        yield ""


def _bars(rows: Sequence[BarRow]) -> list[str]:
    head = ["measure", "graph", "bar", OURS, "reached", STOCK, FLOOR, "the best would reach", "run"]
    shown = [[row.measure, row.graph, bar_text(row), *_standing(row), row.best, row.run] for row in rows]
    return table(head, shown, text_columns=2)


def _standing(row: BarRow) -> list[str]:
    ours, stock, floor = (ratio_text(row.values.get(target)) for target in (OURS, STOCK, FLOOR))
    return [ours, _REACHED[row.reached], stock, floor]


def options_text(record: Record) -> str:
    """The options of a run, without those that were not given."""
    shown = {name: value for name, value in record.options.items() if value is not None}
    return ", ".join(f"{name} {_option(value)}" for name, value in shown.items())


def _option(value: object) -> str:
    return "/".join(str(part) for part in value) or "none" if isinstance(value, (list, tuple)) else str(value)


def bar_text(row: BarRow) -> str:
    """The bar with its direction."""
    return f"{'≥' if row.at_least else '≤'} {row.bar:g}"


def ratio_text(value: float | None) -> str:
    """A ratio with three digits that matter."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _name(cell: CellResult) -> str:
    return f"{cell.target} {cell.graph}"
