"""Two records side by side: every figure that both have, and how it changed."""

from __future__ import annotations

from collections.abc import Iterator

from bench.record import Record, WorkloadResult
from bench.report.bars import find_cell
from bench.report.figures import DASH, Metric, Spread, groups, spread_text
from bench.report.markdown import table

NOTABLE = 0.10


def compare_markdown(old: Record, new: Record) -> str:
    """Tables of all figures of the workloads that both records have; changes beyond a tenth are marked.

    A change is marked only if the ranges of the repeats do not overlap either.
    """
    lines = [f"# {old.commit} ({old.started_at}) against {new.commit} ({new.started_at})", ""]
    for key in ("processor", "cores"):
        if old.machine.get(key) != new.machine.get(key):
            lines += [f"**Other machine**: {key} {old.machine.get(key)} before, {new.machine.get(key)} now.", ""]
    before = {workload.name: workload for workload in old.workloads}
    shared = [workload for workload in new.workloads if workload.name in before]
    for workload in shared:
        lines += _workload(before[workload.name], workload)
    if not shared:
        lines += ["The records have no workload in common."]
    return "\n".join(lines).rstrip() + "\n"


def _workload(old: WorkloadResult, new: WorkloadResult) -> Iterator[str]:
    yield f"## Workload {new.name}"
    yield ""
    if old.turns != new.turns:
        yield f"**Other length**: {old.turns:,} turns before, {new.turns:,} now."
        yield ""
    rows: list[list[str]] = []
    for cell in new.cells:
        other = find_cell(old.cells, cell.target, cell.graph)
        for group in list(groups(new))[1:] if other else ():  # the first one repeats figures of the others
            for metric in group.metrics:
                before, after = metric.of(other) if other else None, metric.of(cell)
                if before and after:
                    name = f"{group.title.lower()}: {metric.name}"
                    rows.append([f"{cell.target} {cell.graph}", name, *_change(metric, before, after)])
    yield from table(["target", "figure", "before", "now", "now / before", ""], rows, text_columns=2)
    yield ""


def _change(metric: Metric, before: Spread, after: Spread) -> list[str]:
    texts = [spread_text(before, metric.unit), spread_text(after, metric.unit)]
    if not before.median:
        return [*texts, DASH, ""]
    ratio = after.median / before.median
    apart = after.low > before.high or after.high < before.low
    mark = ""
    if apart and abs(ratio - 1) > NOTABLE:
        mark = "better" if (ratio > 1) == metric.more_is_better else "**worse**"
    return [*texts, f"{ratio:.2f}", mark]
