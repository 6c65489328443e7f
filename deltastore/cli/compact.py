"""`deltastore compact`: threads re-packed in place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from deltastore.cli.choosing import chosen_policy, policy_options
from deltastore.cli.database import dsn_option, json_option, run_with_saver, schema_option, serde_option
from deltastore.cli.screen import counted, line
from deltastore.compaction import CompactedThread, Compaction, CompactionReport, compact_by_policy, compact_threads
from deltastore.connect import DeltaSaver


@click.command()
@click.argument("threads", nargs=-1, metavar="[THREAD…]")
@click.option("--all", "every", is_flag=True, help="All threads.")
@policy_options
@click.option("--dry-run", is_flag=True, help="Say which threads would get smaller, and by how much; change nothing.")
@dsn_option
@schema_option
@serde_option
@json_option
@click.pass_context
def compact(
    context: click.Context,
    /,
    threads: tuple[str, ...],
    every: bool,
    path: Path | None,
    idle: str | None,
    **given: Any,
) -> None:
    """Re-pack threads in place, so that they take about half the space. Every checkpoint reads as before.

    For threads that nobody goes on with for a while; they can be gone on with at any time. Run it again after a stop,
    and for what came since. Exit code 4: some threads were left as they are, with the reason.
    """
    as_json = given.pop("as_json")
    how: dict[str, Any] = {"dry_run": given.pop("dry_run"), "progress": _progress(as_json)}
    hint = "name them, or say one of --all, --policy FILE and --idle-older-than AGE"
    policy = chosen_policy(path, idle, bool(threads), every, hint=hint)

    async def call(saver: DeltaSaver) -> CompactionReport:
        if policy is None:
            return await compact_threads(saver, None if every else threads, **how)
        return await compact_by_policy(saver, policy, **how)

    report = run_with_saver(call=call, **given)
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else _summary(report))
    context.exit(report.exit_code)


def _progress(as_json: bool) -> Any:
    def show(outcome: CompactedThread) -> None:
        if not as_json:
            click.echo(_line(outcome))

    return show


def _line(outcome: CompactedThread) -> str:
    """One thread for people."""
    told = " ".join(outcome.reason.split())
    if outcome.segments:
        told = f"{counted(outcome.segments, 'segment')} in {counted(outcome.packs, 'pack')}, {_sizes(outcome)}"
    return line(f"{outcome.status:<9} {outcome.thread_id}{': ' if told else ''}{told}")


def _summary(report: CompactionReport) -> str:
    counts = ", ".join(f"{count:,} {status}" for status, count in report.counts.items())
    is_told = report.counts[Compaction.COMPACTED] + report.counts[Compaction.COUNTED]
    return f"threads: {counts or 'none'}{f'; {_sizes(report)}' if is_told else ''}"


def _sizes(sizes: CompactedThread | CompactionReport) -> str:
    return f"{sizes.before_bytes:,} bytes of payloads to {sizes.after_bytes:,}"
