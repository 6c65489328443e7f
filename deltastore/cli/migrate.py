"""`deltastore migrate`: threads of other savers moved into deltastore, and back to LangGraph's tables."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime
from typing import Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from deltastore.cli.database import (
    given_dsn,
    json_option,
    schema_option,
    search_current_folder,
    serde_option,
    serializer,
)
from deltastore.errors import InvalidConfigError
from deltastore.importer.api import migrate as move
from deltastore.importer.landing import PartLimits
from deltastore.importer.migration import Options
from deltastore.importer.report import Outcome, Report, Status, megabytes, summary
from deltastore.importer.stock import is_stock, move_back

HELP_FROM = "postgresql://… (LangGraph's tables), sqlite:///FILE, or package.module:factory of any saver."
HELP_TO = "postgresql://…, embedded or embedded:FOLDER; stock-postgresql://… for the way back."

HELP_PARTS = "Threads of so much data land in parts, so that a later run can go on within them."
MEGABYTE = 1024 * 1024


@click.command()
@click.option("--from", "source", required=True, metavar="SOURCE", help=HELP_FROM)
@click.option("--to", "target", required=True, metavar="DSN", help=HELP_TO)
@click.option("--stock-schema", metavar="NAME", help="Schema of LangGraph's tables.  [default: the search path]")
@schema_option
@serde_option
@click.option("--snapshot-frequency", default=50, show_default=True, type=click.IntRange(1))
@click.option("--dry-run", is_flag=True, help="Count, and estimate size and time; write nothing.")
@click.option("--verify", type=click.Choice(["sample", "full", "none"]), default="sample", show_default=True)
@click.option("--threads", metavar="ID,ID,…", help="Only these threads.")
@click.option("--prefix", default="", metavar="TEXT", help="Only threads whose id begins with this.")
@click.option("--newer-than", type=click.DateTime(), help="Only threads with a checkpoint newer than this (UTC).")
@click.option("--latest-only", is_flag=True, help="Only the newest checkpoint of each namespace.")
@click.option("--since-last", is_flag=True, help="Look at threads that are there already, and catch up.")
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1), help="Threads at the same time.")
@click.option("--parts-from", default=512, show_default=True, type=click.IntRange(0), metavar="MB", help=HELP_PARTS)
@json_option
@click.pass_context
def migrate(context: click.Context, /, source: str, target: str, as_json: bool, **given: Any) -> None:
    """Move threads from another saver into deltastore.

    The source is only read. Each thread lands as a whole or not at all; run it again to go on after a stop.
    Exit code 4: some threads were left out, with the reason.
    """
    options = Options(
        thread_ids=None if given["threads"] is None else given["threads"].split(","),
        prefix=given["prefix"],
        newer_than=_iso(given["newer_than"]),
        latest_only=given["latest_only"],
        since_last=given["since_last"],
        verify=given["verify"],
        workers=given["workers"],
        limits=PartLimits(from_bytes=given["parts_from"] * MEGABYTE),
    )
    search_current_folder()
    shared = {"serde": serializer(given["serde"]), "schema": given["schema"]}
    with _Bar(quiet=as_json or not sys.stderr.isatty()) as bar:
        if is_stock(target):
            _refuse_options(context)
            back = move_back(
                given_dsn(source, makes=False),
                target,
                options,
                target_schema=given["stock_schema"],
                dry_run=given["dry_run"],
                progress=bar.done,
                started=bar.started,
                **shared,
            )
            report = asyncio.run(back)
        else:
            call = move(
                source,
                target,
                options,
                source_schema=given["stock_schema"],
                snapshot_frequency=given["snapshot_frequency"],
                dry_run=given["dry_run"],
                progress=bar.done,
                started=bar.started,
                advance=bar.read,
                **shared,
            )
            report = asyncio.run(call)
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else summary(report))
    context.exit(report.exit_code)


def _refuse_options(context: click.Context) -> None:
    """Options that say nothing about the way back are refused, rather than ignored."""
    for name in ("workers", "snapshot_frequency", "parts_from"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise InvalidConfigError(f"--{name.replace('_', '-')} says nothing about the way back: leave it out")


class _Bar:
    """A progress line on standard error: threads, MB/s, ratio so far, time left."""

    def __init__(self, *, quiet: bool) -> None:
        self._report = Report()
        self._read_bytes = 0
        self._started = time.monotonic()
        self._progress = Progress(
            TextColumn("threads"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet,
        )
        self._task = self._progress.add_task("threads", total=None, speed="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, threads: int) -> None:
        """Told how many threads there are."""
        self._progress.update(self._task, total=threads)

    def read(self, value_bytes: int) -> None:
        """Told how many bytes were read."""
        self._read_bytes += value_bytes
        speed = f"{megabytes(self._read_bytes / max(time.monotonic() - self._started, 0.001))}/s"
        if self._report.ratio is not None:
            speed += f", {self._report.ratio:.0f} times smaller"
        self._progress.update(self._task, speed=speed)

    def done(self, outcome: Outcome) -> None:
        """Told each thread's outcome."""
        self._report.add(outcome)
        self._progress.update(self._task, advance=1)
        if outcome.status in (Status.FAILED, Status.DIVERGED):
            self._progress.console.print(f"{outcome.status}: {outcome.thread_id}: {outcome.reason}", markup=False)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.replace(tzinfo=UTC).isoformat()
