"""Two records side by side: every figure that both have, and how it changed.

A change is called better or worse only where the two could have come out alike: beyond a tenth and beyond what is noise
for the figure, with ranges of the repeats that do not overlap, and between runs that share the options which the figure
depends on (most depend on the number of turns).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from bench.record import Record, WorkloadResult
from bench.report.bars import find_cell
from bench.report.figures import DASH, Metric, Spread, groups, spread_text
from bench.report.markdown import table

NOTABLE = 0.10
DIGEST_CHARACTERS = 12
_OPTIONS = (
    "seed",
    "snapshot_frequency",
    "durability",
    "trace",
    "dsn",
    "sweep_turns",
    "history_checkpoints",
    "load_times",
)


def compare_markdown(old: Record, new: Record) -> str:
    """Tables of all figures of the workloads that both records have; notable changes are marked."""
    lines = [f"# {old.commit} ({old.started_at}) against {new.commit} ({new.started_at})", ""]
    for note in _differences(old, new):
        lines += [note, ""]
    before = {workload.name: workload for workload in old.workloads}
    shared = [workload for workload in new.workloads if workload.name in before]
    unlike = {option for option in _OPTIONS if old.options.get(option) != new.options.get(option)}
    for workload in shared:
        lines += _workload(before[workload.name], workload, unlike)
    if not shared:
        lines += ["The records have no workload in common."]
    return "\n".join(lines).rstrip() + "\n"


def _differences(old: Record, new: Record) -> Iterator[str]:
    """What to know before reading the figures, in lines."""
    for key in ("processor", "cores"):
        if old.machine.get(key) != new.machine.get(key):
            yield f"**Other machine**: {_both(key, old.machine, new.machine)}."
    for name, record in (("before", old), ("now", new)):
        if record.interrupted:
            yield f"**Interrupted**: the record {name} has only what was played and measured until then."
    for what in sorted({*old.digests, *new.digests}):
        if old.digests.get(what) != new.digests.get(what):
            before, now = (record.digests.get(what, "unknown")[:DIGEST_CHARACTERS] for record in (old, new))
            yield f"**Other {what}**: sha256 {before} before, {now} now; bytes and times are of different data."
    options = [key for key in _OPTIONS if old.options.get(key) != new.options.get(key)]
    if options:
        yield f"**Other options**: {'; '.join(_both(key, old.options, new.options) for key in options)}."


def _both(key: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    return f"{key} {old.get(key)} before, {new.get(key)} now"


def _workload(old: WorkloadResult, new: WorkloadResult, unlike: Collection[str]) -> Iterator[str]:
    yield f"## Workload {new.name}"
    yield ""
    if old.turns != new.turns:
        unlike = {*unlike, "turns"}
        yield (
            f"**Other length**: {old.turns:,} turns before, {new.turns:,} now. Figures that depend on it are neither "
            "better nor worse."
        )
        yield ""
    rows: list[list[str]] = []
    for cell in new.cells:
        other = find_cell(old.cells, cell.target, cell.graph)
        for group in list(groups(new))[1:] if other else ():  # the first one repeats figures of the others
            for metric in group.metrics:
                before, after = metric.of(other) if other else None, metric.of(cell)
                if before and after:
                    name = f"{group.title.lower()}: {metric.name}"
                    mark = "" if set(metric.depends_on) & set(unlike) else _mark(metric, before, after)
                    rows.append([f"{cell.target} {cell.graph}", name, *_texts(metric, before, after), mark])
    if rows:
        yield from table(["target", "figure", "before", "now", "now / before", ""], rows, text_columns=2)
    else:
        yield "No target has figures in both records."
    yield ""


def _texts(metric: Metric, before: Spread, after: Spread) -> list[str]:
    ratio = f"{after.median / before.median:.2f}" if before.median else DASH
    return [spread_text(before, metric.unit), spread_text(after, metric.unit), ratio]


def _mark(metric: Metric, before: Spread, after: Spread) -> str:
    if metric.more_is_better is None or not (before.median or metric.least_change):
        return ""
    change = after.median - before.median
    apart = after.low > before.high or after.high < before.low
    if not apart or abs(change) <= max(NOTABLE * before.median, metric.least_change):
        return ""
    return "better" if (change > 0) == metric.more_is_better else "**worse**"
