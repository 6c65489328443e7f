"""`deltastore stats`: what a database or a thread holds, and how it grows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deltastore.cli.database import dsn_option, json_option, run_with_saver, schema_option, serde_option
from deltastore.cli.screen import console, counted, line, print_trimmed, size
from deltastore.connect import DeltaSaver
from deltastore.errors import InvalidConfigError
from deltastore.statistics import (
    Chains,
    DatabaseStatistics,
    Day,
    ThreadSize,
    ThreadWeight,
    Volume,
    database_statistics,
    thread_statistics,
)

PIPE_WIDTH = 200
NAME_WIDTH_MIN = 16
KINDS = ("checkpoints", "values", "pages", "writes", "packs", "metadata", "quarantine")
ESTIMATE = "estimate, before PostgreSQL's own compression"


@click.command()
@dsn_option
@schema_option
@serde_option
@click.option("--thread", "thread_id", metavar="ID", help="One thread, with its channels.  [default: the database]")
@click.option(
    "--days", default=7, show_default=True, type=click.IntRange(1, 3650), help="Days of growth, back from now."
)
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(0, 10_000), help="Threads and channels named."
)
@click.option("--sample", default=20, show_default=True, type=click.IntRange(0), help="Threads read for estimates.")
@json_option
def stats(thread_id: str | None, days: int, top: int, sample: int, as_json: bool, **where: Any) -> None:
    """Count checkpoints and bytes: of the database, or of one thread and its channels.

    The database counts itself; what it cannot know is computed from a sample of threads, and is marked as an estimate.
    """

    async def call(saver: DeltaSaver) -> DatabaseStatistics | ThreadWeight | None:
        if thread_id is not None:
            return await thread_statistics(saver, thread_id, days=days)
        return await database_statistics(saver, days=days, limit=top, sample=sample)

    found = run_with_saver(call=call, **where)
    if found is None:
        raise InvalidConfigError(f"there is no thread {thread_id!r}", hint="deltastore threads lists them")
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
        return
    target = console()
    if not target.is_terminal:
        target = Console(highlight=False, markup=False, emoji=False, width=PIPE_WIDTH)
    if isinstance(found, ThreadWeight):
        _print_thread(target, found, top)
    else:
        _print_database(target, found)


def _print_database(target: Console, found: DatabaseStatistics) -> None:
    counts, sample = found.counts, found.sample
    heading = f"{counted(counts.threads, 'thread')}, {_checkpoints(counts.checkpoints, counts.hidden)}"
    disk = sum(counts.disk_bytes.values())
    target.print(Text(f"{heading}, {size(counts.payload_bytes)}" + (f", {size(disk)} on disk" if disk else "")))
    _print_volumes(target, counts.volumes, {}, counts.payload_bytes)
    _print_chains(target, counts.chains)
    if sample.threads:
        of = f"from {counted(sample.threads, 'thread')} chosen by chance"
        _print_line(target, "compression", f"{sample.compression:,.1f} times ({of})")
        _print_stock(target, sample.stock_bytes, counts.payload_bytes, f"{of}; {ESTIMATE}")
    large = [f"{name} {size(used)}" for name, used in counts.disk_bytes.items() if used * 100 > disk]
    if large:
        _print_line(target, "on disk", ", ".join(large))
    _print_days(target, counts.days)
    _print_threads(target, "largest threads", counts.largest)
    _print_threads(target, f"fastest-growing threads of {counted(len(counts.days), 'day')}", counts.fastest)
    if sample.unbounded:
        rows = [(line(name) or "(root)", line(channel), f"{threads:,}") for name, channel, threads in sample.unbounded]
        title = f"channels that only grow, in {counted(sample.threads, 'thread')} chosen by chance"
        _print_table(target, title, ("namespace", "channel", "#threads"), rows)


def _print_thread(target: Console, found: ThreadWeight, top: int) -> None:
    heading = f"thread {line(found.thread_id)}: {_checkpoints(found.checkpoints, found.hidden)}"
    target.print(Text(f"{heading}, {size(found.payload_bytes)}"))
    _print_volumes(target, found.volumes, found.plain_bytes, found.payload_bytes)
    _print_chains(target, found.chains)
    _print_line(target, "compression", f"{found.compression:,.1f} times")
    _print_stock(target, found.stock_bytes, found.payload_bytes, ESTIMATE)
    _print_days(target, found.days)
    rows = [
        (
            line(each.namespace) or "(root)",
            line(each.channel),
            each.kind,
            f"{each.changes:,}",
            f"{each.length:,}",
            size(each.value_bytes),
            size(each.new_bytes),
            size(each.stock_bytes),
            "grows" if each.is_unbounded else "",
        )
        for each in found.channels[:top]
    ]
    columns = ("namespace", "channel", "kind", "#changes", "#length", "#now", "#brought", "#stock*", "")
    _print_table(target, "channels", columns, rows)
    if rows:
        target.print(Text("* what the stock saver would store, an estimate; sizes before compression", "dim"))
    if len(found.channels) > top:
        target.print(Text(f"and {counted(len(found.channels) - top, 'more channel')}: --top", "dim"))


def _print_volumes(target: Console, volumes: Mapping[str, Volume], plain: Mapping[str, int], total: int) -> None:
    ordered = sorted(volumes.items(), key=lambda each: KINDS.index(each[0]))
    rows = [
        (
            kind,
            f"{volume.rows:,}",
            size(volume.payload_bytes),
            f"{100 * volume.payload_bytes / max(total, 1):.0f} %",
            *((f"{plain[kind] / max(volume.payload_bytes, 1):,.1f}",) if plain else ()),
        )
        for kind, volume in ordered
        if volume.rows
    ]
    columns = ("kind", "#rows", "#bytes", "#share", *(("#compression",) if plain else ()))
    _print_table(target, "", columns, rows)


def _print_chains(target: Console, chains: Chains) -> None:
    text = (
        f"{chains.mean_steps:,.1f} steps back to an anchor on average, {chains.p95_steps:,} for 95 of 100, "
        f"{chains.max_steps:,} at most; {counted(chains.anchors, 'anchor')}"
    )
    _print_line(target, "chains", text)


def _print_stock(target: Console, stock_bytes: int, payload_bytes: int, note: str) -> None:
    times = stock_bytes / max(payload_bytes, 1)
    _print_line(target, "stock saver", f"{size(stock_bytes)}, {times:,.0f} times as much ({note})")


def _print_days(target: Console, days: Sequence[Day]) -> None:
    rows = [
        (
            datetime.fromtimestamp(day.start_seconds, UTC).strftime("%Y-%m-%d"),
            f"{day.checkpoints:,}",
            size(day.payload_bytes),
        )
        for day in days
        if day.checkpoints or day.payload_bytes
    ]
    if not rows:
        _print_line(target, "growth", f"none in {counted(len(days), 'day')}")
    left_out = ", without days that brought nothing" if len(rows) < len(days) else ""
    _print_table(target, f"growth per day (UTC){left_out}", ("day", "#checkpoints", "#bytes"), rows)


def _print_threads(target: Console, title: str, threads: Sequence[ThreadSize]) -> None:
    rows = [
        (
            "(its row is missing)" if each.thread_id is None else line(each.thread_id),
            f"{each.checkpoints:,}",
            size(each.payload_bytes),
        )
        for each in threads
    ]
    _print_table(target, title, ("thread", "#checkpoints", "#bytes"), rows)


def _print_line(target: Console, name: str, text: str) -> None:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=12, no_wrap=True)
    grid.add_column()
    grid.add_row(Text(name), Text(text))
    print_trimmed(target, grid)


def _print_table(target: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; columns whose name begins with `#` hold numbers, which are never cut, as texts are that do not fit."""
    rows = list(rows)
    if not rows:
        return
    if title:
        target.print()
        target.print(Text(title, "bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    longest = [
        max(len(each) - each.startswith("#"), *(len(row[at]) for row in rows)) for at, each in enumerate(columns)
    ]
    numbers = [width + 2 for width, column in zip(longest, columns, strict=True) if column.startswith("#")]
    room = (target.width - sum(numbers)) // max(1, len(columns) - len(numbers)) - 2
    for column, width in zip(columns, longest, strict=True):
        is_number = column.startswith("#")
        table.add_column(
            column.removeprefix("#"),
            justify="right" if is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=width if is_number else min(width, max(room, NAME_WIDTH_MIN)),
        )
    for row in rows:
        table.add_row(*map(Text, row))
    print_trimmed(target, table)


def _checkpoints(visible: int, hidden: int) -> str:
    return counted(visible, "checkpoint") + (f" and {hidden:,} deleted ones that others need" if hidden else "")
