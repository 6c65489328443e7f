"""Records as one HTML page that needs nothing else: no script, no font, no file beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from statistics import median

from bench.record import CellResult, Limits, Record, WorkloadResult
from bench.report.bars import FLOOR, OURS, STOCK, WORKLOAD, BarRow, bar_rows, find_cell, missing_bars
from bench.report.charts import charts, stored_by_table, styles
from bench.report.figures import DASH, Group, Metric, bytes_text, groups, spread_text, text_of
from bench.report.markdown import bar_text, options_text, ratio_text

NOTABLE_RATIO = 1.05
_STYLE = Path(__file__).with_name("style.css")
_KEY = (
    '<div class="key"><span><i></i>rows</span><span><i class="index"></i>indexes</span>'
    '<span><i class="toast"></i>TOAST</span></div>'
)
# graph, group and name of a figure, words for better and worse, and what they are said of
_TILES = (
    ("plain", "The run/stored", "smaller", "larger", "with ordinary channels"),
    ("delta", "The run/stored", "smaller", "larger", "with DeltaChannels"),
    ("plain", "The run/wall", "faster", "slower", "run, ordinary channels"),
    ("delta", "The run/wall", "faster", "slower", "run, DeltaChannels"),
    ("plain", "Cold loads/history", "faster", "slower", "history, ordinary channels"),
    ("delta", "Threads of work at the same time/64: turns", "more", "fewer", "turns/s by 64 threads, DeltaChannels"),
    ("plain", "Cold loads/head", "faster", "slower", "cold load, ordinary channels"),
    ("plain", "The run/memory above state", "less", "more", "client memory, ordinary channels"),
)
_REACHED = {True: '<span class="yes">reached</span>', False: '<span class="no">not yet</span>', None: DASH}


def page(records: Sequence[Record]) -> str:
    """The page of one or more records."""
    rows = bar_rows(records)
    body = [
        *_head(records),
        *(part for record in records for workload in record.workloads for part in _workload(workload)),
        *_bars(rows, missing_bars(records)),
        *_environment(records),
    ]
    style = _STYLE.read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>deltastore benchmark</title><style>\n{style}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def _card(inner: str, *, title: str = "", note: str = "", kind: str = "card") -> str:
    head = f"<h3>{escape(title)}</h3>" if title else ""
    explanation = f'<p class="note">{escape(note)}</p>' if note else ""
    return f'<section class="{kind}">{head}{explanation}{inner}</section>'


def _scrolling_table(head: str, rows: str) -> str:
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _head(records: Sequence[Record]) -> Iterator[str]:
    workloads = [workload for record in records for workload in record.workloads]
    pairs = [workload for workload in workloads if _pair(workload, "plain") or _pair(workload, "delta")]
    reference = next((workload for workload in pairs if workload.name == WORKLOAD), pairs[0] if pairs else None)
    yield f'<p class="eyebrow">Benchmark of {escape(records[0].started_at[:10])}</p>'
    if reference is None:
        measured = any(record.has_figures for record in records)
        names = ", ".join(workload.name for workload in workloads)
        yield f"<h1>{escape(names) if measured else 'Nothing was measured'}</h1>"
        return
    yield f"<h1>{escape(_headline(reference))}</h1>"
    text = (
        f"Workload {reference.name}: {reference.summary}. {reference.turns:,} turns, {reference.checkpoints:,} "
        f"checkpoints, {bytes_text(reference.limits.state_bytes)} of final state. Every figure is of a run whose "
        "stored states were read back by a new saver and found equal."
    )
    repeats = len(next(cell.figures for cell in reference.cells if cell.figures))
    if repeats > 1:
        text += f" Medians of {repeats} repeats, with lowest and highest."
    yield f'<p class="lead">{escape(text)}</p>'
    yield f'<div class="tiles">{"".join(_tiles(reference))}</div>'


def _pair(workload: WorkloadResult, graph: str) -> tuple[CellResult, CellResult] | None:
    ours, stock = (find_cell(workload.cells, target, graph) for target in (OURS, STOCK))
    return (ours, stock) if ours and stock and ours.figures and stock.figures else None


def _headline(workload: WorkloadResult) -> str:
    graph = "plain" if _pair(workload, "plain") else "delta"
    pair = _pair(workload, graph)
    assert pair is not None
    ours, stock = (bytes_text(median(figures.stored_bytes for figures in cell.figures)) for cell in pair)
    what = "A conversation of" if workload.name == WORKLOAD else f"{workload.name.capitalize()} with"
    return f"{what} {workload.turns:,} turns takes {ours} in deltastore, and {stock} in the stock saver"


def _tiles(workload: WorkloadResult) -> Iterator[str]:
    metrics = {f"{group.title}/{metric.name}": metric for group in groups(workload) for metric in group.metrics}
    for graph, name, better, worse, what in _TILES:
        pair = _pair(workload, graph)
        if pair and (metric := metrics.get(name)):
            yield from _tile(metric, *pair, words=(better, worse), what=what)


def _tile(metric: Metric, ours: CellResult, stock: CellResult, *, words: tuple[str, str], what: str) -> Iterator[str]:
    mine, theirs = metric.of(ours), metric.of(stock)
    if not mine or not theirs or not mine.median or not theirs.median:
        return
    ratio = mine.median / theirs.median if metric.more_is_better else theirs.median / mine.median
    texts = " instead of ".join(spread_text(spread, metric.unit) for spread in (mine, theirs))
    texts = re.sub(r"(?<=\d) (?=[kMG]?(B|s|ms)\b)", "&nbsp;", texts)
    kind, word, times = ("", words[0], ratio) if ratio >= 1 else (" worse", words[1], 1 / ratio)
    if times < NOTABLE_RATIO:
        kind, word = " equal", "about equal:"
    label = f"{word} {what}"
    yield f'<div class="tile{kind}"><b>{ratio_text(times)} &times;</b><span>{label}</span><small>{texts}</small></div>'


def _workload(workload: WorkloadResult) -> Iterator[str]:
    yield f"<h2>{escape(workload.name.capitalize())}, {workload.turns:,} turns</h2>"
    yield f'<p class="note">{escape(workload.summary)}. {_limits(workload.limits)}</p>'
    for cell in workload.cells:
        if cell.status != "verified":
            problem = f"{cell.target} {cell.graph}: {cell.status}. {cell.problem}"
            yield _card(escape(problem), kind="card warning")
    plots = "".join(_card(chart.svg, title=chart.title, note=chart.note) for chart in charts(workload))
    yield f'<div class="cards">{plots}</div>'
    stacks = stored_by_table(workload)
    if stacks:
        note = "of the first repeat" if any(len(cell.figures) > 1 for cell in workload.cells) else ""
        yield _card(f'{_KEY}<div class="bytes">{stacks}</div>', title="Bytes by table", note=note, kind="card wide")
    tables = "".join(_table(group, workload) for group in groups(workload))
    if tables:
        yield f'<details class="card wide"><summary>All figures</summary><div class="inner">{tables}</div></details>'


def _limits(limits: Limits) -> str:
    row = f", read as one row in {text_of(limits.row_ms, 'ms')}" if limits.row_ms is not None else ""
    return (
        f"The limits on this data: {bytes_text(limits.zstd3_bytes)} (final state with zstd level 3 in one piece){row}, "
        f"decoded in {text_of(limits.decode_ms, 'ms')}."
    )


def _table(group: Group, workload: WorkloadResult) -> str:
    cells = [cell for cell in workload.cells if cell.figures]
    shown = [metric for metric in group.metrics if any(metric.of(cell) for cell in cells)]
    if not shown:
        return ""
    style = styles(cells)
    head = "<th></th>" + "".join(f"<th>{escape(metric.name)}</th>" for metric in shown)
    rows = "".join(
        f'<tr class="{style[cell.target, cell.graph]}"><td>{escape(cell.target)} {cell.graph}</td>'
        f"{''.join(_figure(metric, cell) for metric in shown)}</tr>"
        for cell in cells
    )
    return f'<h3>{escape(group.title)}</h3><p class="note">{escape(group.note)}</p>{_scrolling_table(head, rows)}'


def _figure(metric: Metric, cell: CellResult) -> str:
    spread = metric.of(cell)
    if spread is None:
        return "<td>&ndash;</td>"
    text = text_of(spread.median, metric.unit)
    low, high = text_of(spread.low, metric.unit), text_of(spread.high, metric.unit)
    return f"<td>{text}<small>{low} to {high}</small></td>" if low != high else f"<td>{text}</td>"


def _bars(rows: Sequence[BarRow], missing: str) -> Iterator[str]:
    if rows or missing:
        yield "<h2>The bars</h2>"
    if missing:
        yield f'<p class="note">{escape(missing)}</p>'
    if not rows:
        return
    yield (
        '<p class="note">Ratios from the runs above. Ours is deltastore, stock the AsyncPostgresSaver of LangGraph, '
        "the floor its InMemorySaver; the rows about growth are of the longest run.</p>"
    )
    names = ("measure", "graph", "bar", "ours", "", "stock", "floor", "the best would reach", "run")
    head = "".join(f"<th>{name}</th>" for name in names)
    yield _card(_scrolling_table(head, "".join(_bar(row) for row in rows)), kind="card wide")


def _bar(row: BarRow) -> str:
    ours, stock, floor = (ratio_text(row.values.get(target)) for target in (OURS, STOCK, FLOOR))
    standing = (bar_text(row), f"<b>{ours}</b>", _REACHED[row.reached], stock, floor)
    figures = (row.graph, *standing, row.best or DASH, escape(row.run))
    return f'<tr><td class="wrap">{escape(row.measure)}</td>{"".join(f"<td>{figure}</td>" for figure in figures)}</tr>'


def _environment(records: Sequence[Record]) -> Iterator[str]:
    yield "<h2>How it was measured</h2>"
    yield (
        '<p class="note">Targets play the same seeded turns by turns, each in a process and a database of its own '
        "on the same server, in an order drawn anew for every few turns. Medians over the repeats, with lowest and "
        "highest.</p>"
    )
    for record in records:
        facts = {
            "commit": record.commit,
            "started": record.started_at + (" (interrupted)" if record.interrupted else ""),
            "took": f"{record.seconds:,.0f} s",
            "machine": ", ".join(record.machine.values()),
            "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
            "server": ", ".join(f"{name} {value}" for name, value in record.server.items()) or DASH,
            "options": options_text(record),
            "SHA-256": ", ".join(f"{name} {digest}" for name, digest in record.digests.items()) or DASH,
        }
        items = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
        yield _card(f"<dl>{items}</dl>", kind="card wide")
