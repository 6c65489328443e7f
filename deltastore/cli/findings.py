"""How findings and repairs look: in a terminal of any width, or one line each in a pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from deltastore.cli.screen import console, counted, size
from deltastore.core.findings import Finding, Place
from deltastore.core.identifiers import shown_namespace
from deltastore.core.repair import Action
from deltastore.verification import Outcome, Report, Status

Line = tuple[str, str]
"""What a line is about, and its text."""

LABEL_WIDTH = 12
NAMED_MAX = 3
"""So many checkpoints or rows are named; the JSON form names all."""

_STYLES = {"damage": "bold red", "repaired": "green", "notice": "dim"}


@dataclass(slots=True)
class Screen:
    """Prints threads as they come.

    Attributes:
        quiet: Print nothing.
        repairs: Repairs are asked for.
        dry_run: They are only shown.
    """

    quiet: bool
    repairs: bool
    dry_run: bool
    console: Console = field(default_factory=console)
    _shown: set[str] = field(default_factory=set)

    def planned(self, outcome: Outcome) -> None:
        """A damaged thread, before it is repaired."""
        self._shown.add(outcome.found.thread_key)
        self._print(_title(outcome), [*_found(outcome), *_plan(outcome)])

    def done(self, outcome: Outcome) -> None:
        """A thread that is done."""
        if outcome.found.thread_key not in self._shown and outcome.found.findings:
            self._print(_title(outcome), [*_found(outcome), *(_plan(outcome) if self.repairs else ())])
        if outcome.status is Status.REPAIRED:
            left = [("left", _described(finding)) for finding in (outcome.left.findings if outcome.left else ())]
            self._print("", [("repaired", "no damage is left" if outcome.is_sound else "not everything"), *left])
        elif outcome.status is Status.CHANGED:
            self._print("", [("changed", "the thread was changed meanwhile and is as it was; run it again")])

    def end(self, report: Report, *, looks_up_types: bool) -> None:
        """The last lines."""
        if self.quiet:
            return
        self.console.print(Text("\n".join(_summary(report, dry_run=self.dry_run))), soft_wrap=True)
        if not looks_up_types:
            text = "types of values were not looked up: name the application's modules with --import"
            self.console.print(Text(text, "dim"), soft_wrap=True)

    def _print(self, title: str, lines: Iterable[Line]) -> None:
        if self.quiet:
            return
        if title:
            self.console.print(Text(title, "bold"), soft_wrap=True)
        if not self.console.is_terminal:
            for label, text in lines:
                self.console.print(f"  {label:{LABEL_WIDTH}}{text}", soft_wrap=True)
            return
        grid = Table.grid(padding=(0, 0))
        grid.add_column(width=LABEL_WIDTH + 2, no_wrap=True)
        grid.add_column(overflow="fold")
        for label, text in lines:
            grid.add_row(Text(f"  {label}", _STYLES.get(label, "yellow")), Text(text))
        self.console.print(grid)


def _title(outcome: Outcome) -> str:
    found = outcome.found
    name = f"thread {found.thread_id!r}" if found.thread_id is not None else f"thread with the key {found.thread_key}"
    if found.is_sound:
        return f"{name}: {counted(found.checkpoints, 'checkpoint')}, no damage"
    if not found.hurt:
        return f"{name}: damaged, all of its {counted(found.checkpoints, 'checkpoint')} can be loaded"
    saved = len(found.hurt) - len(found.lost)
    return (
        f"{name}: damaged, {len(found.hurt)} of {counted(found.checkpoints, 'checkpoint')} cannot be loaded, "
        f"{saved or 'none'} of them can be saved"
    )


def _found(outcome: Outcome) -> Iterator[Line]:
    for finding in outcome.found.findings:
        yield "notice" if finding.is_notice else str(finding.kind), _described(finding)
    for place in outcome.found.readable:
        namespace = shown_namespace(place.namespace)
        yield "readable", f"{place.checkpoint_id} is the newest checkpoint of namespace {namespace} to be loaded"
    if outcome.found.quarantined:
        yield "quarantine", f"holds {counted(outcome.found.quarantined, 'row')} of earlier repairs"


def _described(finding: Finding) -> str:
    at = finding.at
    namespace = f" of namespace {at.namespace!r}" if at is not None and at.namespace else ""
    text = f"{finding.row}{namespace}: {finding.detail}"
    if not finding.hurt:
        return text
    lost = len(finding.lost)
    share = "lost" if lost == len(finding.hurt) else f"{lost or 'none'} of them lost"
    return f"{text}; hurts {_named(finding.hurt)}: {share}"


def _named(places: Sequence[Place]) -> str:
    ids = [place.checkpoint_id for place in places]
    if len(ids) > NAMED_MAX:
        return f"{len(ids)} checkpoints ({ids[0]} to {ids[-1]})"
    return f"{counted(len(ids), 'checkpoint')} ({', '.join(ids)})"


def _plan(outcome: Outcome) -> Iterator[Line]:
    if outcome.plan.refusal:
        yield "left alone", outcome.plan.refusal
    by_verb: dict[str, list[Action]] = {}
    for action in outcome.actions:
        by_verb.setdefault(action.verb, []).append(action)
    for verb, actions in by_verb.items():
        yield verb, _rows(actions)


def _rows(actions: Sequence[Action]) -> str:
    """The rows of some steps: a few by name, many by number."""
    if len(actions) <= NAMED_MAX:
        return "; ".join(
            action.row if action.verb == "quarantine" else f"{action.row}: {action.detail}" for action in actions
        )
    kinds = Counter(action.row.partition(" ")[0] for action in actions)
    return ", ".join(
        counted(count, kind) if kind != "metadata" else f"{count} metadata" for kind, count in kinds.items()
    )


def _summary(report: Report, *, dry_run: bool) -> Iterator[str]:
    yield (
        f"{counted(report.threads, 'thread')}, {counted(report.checkpoints, 'checkpoint')}, "
        f"{counted(report.rows, 'row')}, {size(report.payload_bytes)} in {report.elapsed_seconds:,.1f} s: "
        + (f"{counted(len(report.damaged), 'thread')} damaged" if report.damaged else "no damage")
    )
    repaired = sum(outcome.status is Status.REPAIRED for outcome in report.damaged)
    if repaired:
        yield f"{counted(repaired, 'thread')} repaired; what was taken out is in delta_quarantine"
    elif dry_run and report.damaged:
        yield "nothing was written: this was a dry run"
