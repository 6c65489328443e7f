from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bench.errors import UsageError
from bench.record import CellResult, Figures, GrowthPoint, Memory, Record, WorkloadResult, read_record, write_record
from bench.report.axes import axis
from bench.report.bars import BarRow, bar_rows, missing_bars
from bench.report.charts import charts
from bench.report.compare import compare_markdown
from bench.report.figures import Spread, bytes_text, spread_text, text_of
from bench.report.markdown import markdown, ratio_text
from bench.report.page import page
from bench.wire import Traffic

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def record() -> Record:
    """A small run of all kinds of targets, one of which failed."""
    return read_record(GOLDEN / "record.json")


def test_the_report_of_the_golden_record_is_the_golden_report(record: Record):
    """After a wanted change write it anew: `python -m bench report golden/record.json --out golden/report.md`."""
    assert markdown([record]) == (GOLDEN / "report.md").read_text()


def test_a_record_is_the_same_after_writing_and_reading(record: Record, tmp_path: Path):
    write_record(record, tmp_path / "again.json")
    assert read_record(tmp_path / "again.json") == record


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: raw.update(format=2), "no record of format 1"),
        (lambda raw: raw.update(seconds="long"), "damaged at seconds"),
        (lambda raw: raw["workloads"][0].pop("turns"), "damaged at workloads.0.turns"),
        (lambda raw: raw["workloads"][0]["cells"][0].update(status="fine"), "damaged at workloads.0.cells.0.status"),
    ],
)
def test_a_damaged_record_is_named(change: Any, said: str, tmp_path: Path):
    raw = json.loads((GOLDEN / "record.json").read_text())
    change(raw)
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(UsageError, match=re.escape(said)):
        read_record(path)


def test_what_is_no_record_is_named(tmp_path: Path):
    for text in ("", "[]", "null", "{"):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(UsageError, match=r"x\.json"):
            read_record(tmp_path / "x.json")


class _Checker(HTMLParser):
    """Finds tags that are not closed and anything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [f"{name}={value}" for name, value in attrs if name in {"src", "href", "xlink:href"}]
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else_and_is_well_formed(record: Record):
    html = page([record])
    checker = _Checker()
    checker.feed(html)
    assert checker.open == []
    assert checker.fetched == []
    assert "script" not in checker.tags
    assert "url(" not in html
    assert "@import" not in html
    assert {"svg", "table", "details"} <= checker.tags
    assert "nan" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL).lower().split()


def test_the_headline_has_medians_with_their_spread(record: Record):
    html = page([record])
    assert "A conversation of 10 turns takes 299 kB in deltastore, and 1.22 MB in the stock saver" in html
    assert "Medians of 2 repeats, with lowest and highest." in html
    tile = "<small>299 kB (295 kB to 303 kB) instead of 1.22 MB (1.21 MB to 1.22 MB)</small>"
    assert re.sub(r"(?<=\d) (?=\wB)", "&nbsp;", tile) in html
    assert "of the first repeat" in html
    workload = record.workloads[0]
    cells = [dataclasses.replace(cell, figures=cell.figures[:1]) for cell in workload.cells]
    once = page([with_turns(record, 10, cells=cells)])
    assert "Medians of" not in once.partition("How it was measured")[0]
    assert "of the first repeat" not in once


def test_the_headline_is_of_the_agent_or_says_of_what(record: Record):
    wide, agent = with_turns(record, 30, name="wide"), with_turns(record, 20)
    assert "<h1>A conversation of 20 turns takes" in page([wide, agent])
    assert "<h1>Wide with 30 turns takes" in page([wide])


def test_all_repeats_are_in_the_plot_of_saves(record: Record):
    cell = record.workloads[0].cells[0]
    (saves,) = [chart for chart in charts(with_turns(record, 10, cells=[cell]).workloads[0]) if chart.title == "Saves"]
    assert "p50 6.52 ms, p99 38.4 ms" in saves.svg
    assert "of all repeats" in saves.note


def test_the_page_says_what_failed_and_escapes_it(record: Record):
    workload = record.workloads[0]
    cells = [dataclasses.replace(cell, problem="<script>alert(1)</script>") for cell in workload.cells]
    html = page([dataclasses.replace(record, workloads=[dataclasses.replace(workload, cells=cells)])])
    assert "<script>" not in html
    assert "broken plain: failed. &lt;script&gt;" in html


def without_figures(record: Record) -> Record:
    def emptied(workload: WorkloadResult) -> WorkloadResult:
        cells = [CellResult(cell.target, cell.graph, "not verified", "lost", []) for cell in workload.cells]
        return dataclasses.replace(workload, cells=cells)

    return dataclasses.replace(record, workloads=[emptied(workload) for workload in record.workloads])


def test_reports_of_nothing_verified_and_of_nothing_at_all_are_made(record: Record):
    for hollow in (without_figures(record), dataclasses.replace(record, workloads=[], interrupted=True)):
        assert markdown([hollow])
        assert "</html>" in page([hollow])
        assert compare_markdown(record, hollow)
    assert "not verified" in markdown([without_figures(record)])
    assert "| deltastore plain |" not in markdown([without_figures(record)])


def test_reports_say_that_nothing_was_measured(record: Record):
    for hollow in (without_figures(record), dataclasses.replace(record, workloads=[])):
        shown, html = markdown([hollow]), page([hollow])
        assert shown.count("**Nothing was measured**: no target was played and verified.") == 1
        assert "<h1>Nothing was measured</h1>" in html
        assert "## Bars" not in shown
        assert "The bars" not in html
        assert "No target has figures in both records." in compare_markdown(record, without_figures(record))


def with_turns(record: Record, turns: int, **changes: Any) -> Record:
    """The record as if its workload had had so many turns."""
    workload = dataclasses.replace(record.workloads[0], turns=turns, **changes)
    return dataclasses.replace(record, workloads=[workload])


def memory_above_state(record: Record, above_bytes: int) -> Record:
    """The record with this difference of peak, start and state in all cells."""

    def changed(cell: CellResult) -> CellResult:
        memory = Memory(start_bytes=50_000_000, peak_bytes=60_000_000 + above_bytes, state_bytes=10_000_000)
        return dataclasses.replace(cell, figures=[dataclasses.replace(each, memory=memory) for each in cell.figures])

    return with_turns(record, record.workloads[0].turns, cells=[changed(cell) for cell in record.workloads[0].cells])


def test_bars_are_ratios_of_the_record(record: Record):
    rows = {(row.measure, row.graph): row for row in bar_rows([with_turns(record, 500)])}
    cells = {(cell.target, cell.graph): cell.figures for cell in record.workloads[0].cells}

    def mean_stored(target: str) -> float:
        return sum(figures.stored_bytes for figures in cells[target, "plain"]) / len(cells[target, "plain"])

    stored = rows["stored bytes: stock / target", "plain"]
    assert stored.values["deltastore"] == pytest.approx(mean_stored("postgres") / mean_stored("deltastore"))
    assert stored.values["postgres"] == 1
    assert stored.reached is False
    assert not [measure for measure, _ in rows if measure.startswith("bytes per step")]


def test_bars_are_shown_for_the_runs_that_they_are_defined_for(record: Record):
    short = markdown([with_turns(record, 499)])
    assert short.count("| measure |") == 0
    assert (
        "Bars not shown, for their runs are not here: against the stock saver in plain and delta (defined for a run of "
        "agent with 500 turns or more of deltastore and postgres); about growth in plain and delta (defined for a run "
        "of agent with 5,000 turns or more of deltastore)." in short
    )
    reference = markdown([with_turns(record, 500)])
    assert "| stored bytes: stock / target | plain | ≥ 400 | 4.07 | **no** | 1 | 0.641 | 800 |" in reference
    assert "| 800 | agent, 500 turns |" in reference
    assert "bytes per step" not in reference
    assert "Bars not shown, for their runs are not here: about growth in plain and delta" in reference
    assert "<td" in page([with_turns(record, 500)]).partition("The bars")[2].partition("How it was measured")[0]
    complete = markdown([with_turns(record, 500, name="wide"), with_turns(record, 500), with_turns(record, 5_000)])
    assert "| wide, " not in complete
    assert "| 1.0 | agent, 5,000 turns |" in complete
    assert "bytes per step" in complete
    assert "Bars not shown" not in complete


def test_bars_are_of_the_agent_and_of_targets_that_were_verified(record: Record):
    assert bar_rows([with_turns(record, 500, name="wide")]) == []
    cells = [
        dataclasses.replace(cell, figures=[] if (cell.target, cell.graph) == ("postgres", "plain") else cell.figures)
        for cell in record.workloads[0].cells
    ]
    half = with_turns(record, 500, cells=cells)
    assert {row.graph for row in bar_rows([half])} == {"delta"}
    assert "against the stock saver in plain (defined" in missing_bars([half])
    assert {row.graph for row in bar_rows([half, with_turns(record, 500)])} == {"plain", "delta"}


def test_memory_below_the_state_counts_as_none(record: Record):
    below = memory_above_state(record, -258_000)
    rows = bar_rows([with_turns(below, 500)])
    peaks = [row for row in rows if row.measure.startswith("peak memory")]
    assert [row.values["deltastore"] for row in peaks] == [0.0, 0.0]
    assert "-" not in "".join(ratio_text(value) for row in peaks for value in row.values.values())


@pytest.mark.parametrize(
    ("before", "after", "row"),
    [
        (-258_000, 42_900_000, "| 0 B | 42.9 MB | \N{EN DASH} | **worse** |"),
        (-258_000, -198_000, "| 0 B | 0 B | \N{EN DASH} |  |"),
        (-258_000, 300_000, "| 0 B | 300 kB | \N{EN DASH} |  |"),
        (42_900_000, -258_000, "| 42.9 MB | 0 B | 0.00 | better |"),
        (42_900_000, 50_000_000, "| 42.9 MB | 50 MB | 1.17 | **worse** |"),
        (300_000, 900_000, "| 300 kB | 900 kB | 3.00 |  |"),
    ],
)
def test_more_memory_is_worse_whatever_it_was_before(before: int, after: int, row: str, record: Record):
    shown = compare_markdown(memory_above_state(record, before), memory_above_state(record, after))
    assert f"| deltastore plain | the run: memory above state {row}" in shown


def test_growth_bars_come_from_the_long_run(record: Record):
    workload = record.workloads[0]
    long_run = dataclasses.replace(workload, turns=5_000, cells=[stretched(cell) for cell in workload.cells])
    rows = bar_rows([record, dataclasses.replace(record, workloads=[long_run])])
    growth = next(row for row in rows if row.measure.startswith("bytes per step") and row.graph == "delta")
    assert growth.values["deltastore"] == pytest.approx(1.5)
    put = next(row for row in rows if row.measure.startswith("put p50"))
    assert put.values["deltastore"] == pytest.approx(2.0)
    assert put.run == "agent, 5,000 turns"


def test_growth_bars_stand_once_for_each_durability(record: Record):
    long_run = with_turns(record, 5_000)
    waiting = dataclasses.replace(long_run, options={**long_run.options, "durability": "sync"})
    rows = bar_rows([waiting, long_run, with_turns(record, 6_000)])
    runs = [row.run for row in rows if row.measure.startswith("put p50")]
    assert runs == ["agent, 6,000 turns", "agent, 5,000 turns, durability sync"]


def stretched(cell: CellResult) -> CellResult:
    """The cell with a growth curve of 5,000 turns that bends: 10 bytes a turn, then 15; puts of 1 ms, then 2."""

    def point(turns: int, stored_bytes: int, put_ms: float) -> Any:
        return GrowthPoint(turns, stored_bytes, wall_s=1.0, p50_ms={"put": put_ms}, p95_ms={})

    points = [point(0, 100, 0), point(200, 2_100, 1), point(500, 5_100, 1), point(4_500, 50_000, 2)]
    points.append(point(5_000, 57_500, 2))
    return dataclasses.replace(cell, figures=[dataclasses.replace(figures, growth=points) for figures in cell.figures])


@pytest.mark.parametrize(("at_least", "value", "reached"), [(True, 5, True), (True, 4, False), (False, 4, True)])
def test_a_bar_has_a_direction(at_least: bool, value: float, reached: bool):
    assert BarRow("x", "plain", 5, at_least, "", {"deltastore": value}).reached is reached


def test_a_comparison_marks_what_changed_beyond_the_spread(record: Record):
    workload = record.workloads[0]
    cells = [
        dataclasses.replace(cell, figures=[dataclasses.replace(each, wall_s=each.wall_s * 10) for each in cell.figures])
        for cell in workload.cells
    ]
    slower = dataclasses.replace(record, workloads=[dataclasses.replace(workload, cells=cells)])
    lines = compare_markdown(record, slower).splitlines()
    marked = [line for line in lines if "**worse**" in line]
    assert len(marked) == 6
    assert all("the run: wall" in line for line in marked)
    assert not [line for line in compare_markdown(record, record).splitlines() if "worse" in line or "better" in line]
    assert [line for line in compare_markdown(slower, record).splitlines() if line.endswith("better |")]


def faster(record: Record) -> Record:
    """The record with runs, sweeps and turns on the wire that took a tenth."""

    def changed(figures: Figures) -> Figures:
        sweep = [dataclasses.replace(point, turns_per_s=point.turns_per_s * 10) for point in figures.sweep]
        traffic = Traffic(1, 1, 1, 1, 1) if figures.turn_traffic else None
        history_s = (figures.history_s or 0) / 10
        return dataclasses.replace(
            figures, wall_s=figures.wall_s / 10, history_s=history_s, sweep=sweep, turn_traffic=traffic
        )

    cells = [
        dataclasses.replace(cell, figures=[changed(figures) for figures in cell.figures])
        for cell in record.workloads[0].cells
    ]
    return with_turns(record, record.workloads[0].turns, cells=cells)


def marked_figures(old: Record, new: Record) -> set[str]:
    rows = [line.split(" | ") for line in compare_markdown(old, new).splitlines()]
    return {row[1].partition(":")[0] for row in rows if row[-1].strip(" |*") in {"better", "worse"}}


def test_runs_of_different_length_are_compared_only_where_it_does_not_matter(record: Record):
    every = {"the run", "cold loads", "one turn over the wire", "threads of work at the same time"}
    assert marked_figures(record, faster(record)) == every
    longer = with_turns(faster(record), 20)
    assert marked_figures(record, longer) == {"one turn over the wire", "threads of work at the same time"}
    assert "**Other length**: 10 turns before, 20 now. Figures that depend on it" in compare_markdown(record, longer)


def test_other_options_are_named_and_figures_of_theirs_not_marked(record: Record):
    options = {**record.options, "sweep_turns": 5, "history_checkpoints": 50, "durability": "sync"}
    other = dataclasses.replace(faster(record), options=options)
    assert marked_figures(record, other) == {"the run", "one turn over the wire"}
    said = "**Other options**: durability async before, sync now; sweep_turns 1 before, 5 now; history_checkpoints 500"
    assert said in compare_markdown(record, other)


def test_a_report_shows_what_was_played_and_a_comparison_warns_of_other_text(record: Record):
    played = dataclasses.replace(record, digests={"text": "a" * 64, "trace": "b" * 64})
    assert f"- text sha256 {'a' * 64}, trace sha256 {'b' * 64}\n" in markdown([played])
    assert f"text {'a' * 64}, trace {'b' * 64}" in page([played])
    assert "**Other t" not in compare_markdown(played, played)
    assert "**Other t" not in compare_markdown(record, record)
    other = dataclasses.replace(record, digests={"text": "c" * 64, "trace": "b" * 64})
    said = compare_markdown(played, other)
    assert (
        "**Other text**: sha256 aaaaaaaaaaaa before, cccccccccccc now; bytes and times are of different data." in said
    )
    assert "**Other trace**" not in said
    assert "**Other text**: sha256 unknown before, aaaaaaaaaaaa now;" in compare_markdown(record, played)


def test_an_interrupted_record_is_named_in_a_comparison(record: Record):
    cut = dataclasses.replace(record, interrupted=True)
    assert "Interrupted" not in compare_markdown(record, record)
    assert "**Interrupted**: the record before has only" in compare_markdown(cut, record)
    assert "**Interrupted**: the record now has only" in compare_markdown(record, cut)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "bytes", "0 B"),
        (999, "bytes", "999 B"),
        (1_756_000_000, "bytes", "1.76 GB"),
        (-75_000, "bytes", "-75 kB"),
        (0.0154, "ms", "0.015 ms"),
        (12.34, "ms", "12.3 ms"),
        (4321, "ms", "4.32 s"),
        (61.25, "s", "61.2 s"),
        (105.4, "per s", "105/s"),
        (12_345, "count", "12,345"),
    ],
)
def test_figures_have_three_digits_and_a_unit(value: float, unit: Any, text: str):
    assert text_of(value, unit) == text


def test_a_spread_is_shown_only_where_there_is_one():
    assert spread_text(Spread(2.0, 2.0, 2.0), "s") == "2 s"
    assert spread_text(Spread(2.5, 2.25, 3.0), "s") == "2.50 s (2.25 s to 3 s)"
    assert spread_text(None, "s") == "\N{EN DASH}"
    assert bytes_text(2_500) == "2.50 kB"


@pytest.mark.parametrize("values", [[1.0], [0.0], [0.0, 3.0], [1e-3, 1e9], [5, 5.1], []])
@pytest.mark.parametrize("log", [True, False])
def test_axes_hold_their_values_and_have_ticks(values: list[float], log: bool):
    scale = axis(values, 0, 100, log=log, text=str)
    assert all(0 <= scale.at(value) <= 100 for value in values)
    assert scale.ticks()
