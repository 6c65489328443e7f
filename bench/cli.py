"""`python -m bench run | report | compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from bench.errors import BenchError, NotVerifiedError, TargetError, UsageError, one_line
from bench.options import RunOptions
from bench.output import RunOutput
from bench.record import Record, read_record
from bench.report import write_report
from bench.report.compare import compare_markdown
from bench.report.markdown import markdown
from bench.runner import run as run_all
from bench.targets import TargetSpec, target_spec
from bench.workloads import NAMES
from bench.workloads.base import GraphKind

INTERRUPTED_EXIT_CODE = 130
_GRAPHS = ("plain", "delta")


class _Bar:
    """A progress bar with the time left (`bench.runner.Progress`)."""

    def __init__(self, bar: RichProgress, total: int) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=total)

    def say(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def advance(self, turns: int) -> None:
        self._bar.advance(self._task, turns)

    def note(self, text: str) -> None:
        _print(self._bar.console, text)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Measures deltastore against the savers people use."""


@cli.command()
@click.option(
    "--workload", "workloads", default="agent", show_default=True, help=f"Comma-separated: {', '.join(NAMES)}."
)
@click.option(
    "--targets", default="deltastore,postgres,memory", show_default=True, help="Comma-separated; also sqlite."
)
@click.option("--target", "more_targets", multiple=True, help="Another saver: name=package.module:factory. Repeatable.")
@click.option("--graphs", default="plain,delta", show_default=True, help="Ordinary channels, DeltaChannels, or both.")
@click.option("--turns", default=500, show_default=True, type=click.IntRange(min=2))
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=1, show_default=True, type=int)
@click.option(
    "--snapshot-frequency", default=50, show_default=True, type=click.IntRange(min=1), help="Of DeltaChannels."
)
@click.option("--durability", default="async", show_default=True, type=click.Choice(["sync", "async", "exit"]))
@click.option("--trace", type=click.Path(path_type=Path), help="Recorded conversations for the workload replay.")
@click.option("--dsn", default="embedded", show_default=True, help="embedded, embedded:<folder> or postgresql://…")
@click.option(
    "--concurrency", default="1,8,64,256", show_default=True, help="Threads of work to sweep over; none: no sweep."
)
@click.option(
    "--sweep-turns", default=20, show_default=True, type=click.IntRange(min=1), help="Turns a thread of work."
)
@click.option("--history", "history_checkpoints", default=500, show_default=True, type=click.IntRange(min=0))
@click.option(
    "--loads", "load_times", default=7, show_default=True, type=click.IntRange(min=1), help="Cold loads of a kind."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Record to write, NAME.json; NAME.md and NAME.html are written beside it. Without it nothing is saved.",
)
def run(
    workloads: str, targets: str, more_targets: tuple[str, ...], graphs: str, out: Path | None, **rest: Any
) -> None:
    """Runs workloads on targets, verifies what they stored and reports."""
    options = RunOptions(
        workloads=tuple(_names(workloads, NAMES, "workload")),
        targets=_targets([*_split(targets), *more_targets]),
        graphs=cast("tuple[GraphKind, ...]", tuple(_names(graphs, _GRAPHS, "graph"))),
        concurrency=_numbers(rest.pop("concurrency")),
        **rest,
    )
    output, console = RunOutput(out), Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=console) as bar:
        record = run_all(options, _Bar(bar, options.work()), output.keep)
    try:
        lines = output.finish(record)
    finally:  # on a full disk the figures are at least shown
        _show(markdown([record]))
    for line in lines:
        _print(console, line)
    sys.exit(_exit_code(record, console))


@cli.command()
@click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File to write, NAME.md or NAME.html. Without it: Markdown to stdout.",
)
def report(records: tuple[Path, ...], out: Path | None) -> None:
    """Makes a report from one or more records (a long run beside the reference, say)."""
    read = [read_record(path) for path in records]
    if out is None:
        _show(markdown(read))
        return
    write_report(read, out)
    click.echo(f"written: {out}", err=True)


@cli.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
def compare(old: Path, new: Path) -> None:
    """Compares two records figure by figure."""
    _show(compare_markdown(read_record(old), read_record(new)))


def main() -> None:
    """Entry point: problems become one line and an exit code."""
    try:
        cli.main(standalone_mode=False)
    except BenchError as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(problem.exit_code)
    except OSError as problem:
        click.echo(f"error: {one_line(problem)}", err=True)
        sys.exit(TargetError.exit_code)
    except click.ClickException as problem:
        problem.show()
        sys.exit(UsageError.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED_EXIT_CODE)


def _show(text: str) -> None:
    """Writes a report to stdout; click deals with a reader that has gone."""
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"the output cannot be written: {error.strerror}") from error


def _print(console: Console, text: str) -> None:
    """Prints a line as it is, above the progress bar if there is one."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _exit_code(record: Record, console: Console) -> int:
    """0, or what the worst cell says; each problem is said in a line."""
    if not record.workloads and record.interrupted:
        _print(console, "interrupted before anything was finished")
        return INTERRUPTED_EXIT_CODE
    codes = [INTERRUPTED_EXIT_CODE] if record.interrupted else []
    for workload in record.workloads:
        for cell in workload.cells:
            if cell.status != "verified":
                _print(console, f"{workload.name}: {cell.target} {cell.graph}: {cell.status}: {cell.problem}")
                codes.append(NotVerifiedError.exit_code if cell.status == "not verified" else TargetError.exit_code)
    return max(codes, default=0)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _names(text: str, known: tuple[str, ...], what: str) -> list[str]:
    names = _split(text)
    for name in names:
        if name not in known:
            raise UsageError(f"unknown {what} {name!r}: expected one of {', '.join(known)}")
        if names.count(name) > 1:
            raise UsageError(f"{what} {name!r} is given twice: expected each once")
    if not names:
        raise UsageError(f"no {what} given: expected one of {', '.join(known)}")
    return names


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in _split(text) if part != "none")
    except ValueError:
        numbers = (0,)
    if any(number < 1 for number in numbers):
        raise UsageError(f"--concurrency {text!r}: expected numbers from 1, as in 1,8,64, or none")
    return numbers


def _targets(texts: list[str]) -> tuple[TargetSpec, ...]:
    specs = tuple(target_spec(text) for text in texts)
    names = [spec.name for spec in specs]
    if not specs or len(set(names)) < len(names):
        raise UsageError(f"targets {', '.join(names) or 'missing'}: expected at least one, and each name once")
    return specs
