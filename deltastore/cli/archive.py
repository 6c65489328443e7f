"""`deltastore archive` and `restore`: threads moved into files, and back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from deltastore.archive import (
    Outcome,
    Report,
    Status,
    archive_by_policy,
    archive_threads,
    check_archives,
    check_target,
    restore_archives,
)
from deltastore.cli.choosing import chosen_policy, policy_options
from deltastore.cli.database import DSN_HELP, dsn_option, json_option, run_with_saver, schema_option, serde_option
from deltastore.cli.database import serializer as made
from deltastore.cli.screen import counted, line
from deltastore.connect import DeltaSaver

target_option = click.option(
    "--to", "--dsn", "dsn", envvar="DELTASTORE_DSN", show_envvar=True, metavar="DSN", help=DSN_HELP
)


@click.command()
@click.argument("threads", nargs=-1, metavar="[THREAD…]")
@click.option("--to", "place", required=True, metavar="URL", help="Folder: file:///…, s3://…, or a path.")
@policy_options
@click.option("--make-folder", is_flag=True, help="Make the folder if it is missing.")
@click.option("--dry-run", is_flag=True, help="Say which threads would go into which files; write and remove nothing.")
@click.option("--keep", is_flag=True, help="Write and verify the files, but leave the threads in the database.")
@dsn_option
@schema_option
@serde_option
@json_option
@click.pass_context
def archive(
    context: click.Context, /, threads: tuple[str, ...], place: str, path: Path | None, idle: str | None, **given: Any
) -> None:
    """Move threads into files, one for each: those that are named, or those that retention would delete as a whole.

    A thread is removed when its file was read back in full, and only if nobody wrote to it meanwhile. Run it again
    after a stop. Exit code 4: some threads were left out, with the reason.
    """
    as_json = given.pop("as_json")
    how: dict[str, Any] = {"keep": given.pop("keep"), "dry_run": given.pop("dry_run"), "progress": _progress(as_json)}
    hint = "name them, or say one of --policy FILE and --idle-older-than AGE"
    policy = chosen_policy(path, idle, bool(threads), hint=hint)
    check_target(place, make_folder=given.pop("make_folder"))

    async def call(saver: DeltaSaver) -> Report:
        if policy is None:
            return await archive_threads(saver, threads, place, **how)
        return await archive_by_policy(saver, policy, place, **how)

    _finish(context, run_with_saver(call=call, **given), as_json=as_json)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@target_option
@schema_option
@serde_option
@click.option("--as", "thread_id", metavar="THREAD", help="Call the thread so, if there is one file.")
@click.option("--replace", is_flag=True, help="Replace threads that are there already.")
@click.option("--check", is_flag=True, help="Only read the files in full; no database is needed.")
@json_option
@click.pass_context
def restore(
    context: click.Context, /, files: tuple[str, ...], thread_id: str | None, replace: bool, check: bool, **given: Any
) -> None:
    """Bring archived threads back into any deltastore. The files stay.

    Each is read in full before anything is written, and its thread lands whole or not at all. What is wrong with one
    file does not hold up the others. Exit code 2: a thread is there already, or a file cannot be opened; 4: a file is
    damaged.
    """
    as_json = given.pop("as_json")
    progress = _progress(as_json)
    if check:
        report = asyncio.run(check_archives(files, serde=made(given["serde"]), progress=progress))
    else:

        async def call(saver: DeltaSaver) -> Report:
            return await restore_archives(
                saver, files, thread_id=thread_id, replace=replace, go_on=True, progress=progress
            )

        report = run_with_saver(call=call, makes=True, **given)
    _finish(context, report, as_json=as_json)


def _progress(as_json: bool) -> Any:
    def show(outcome: Outcome) -> None:
        if not as_json:
            click.echo(_line(outcome))

    return show


def _line(outcome: Outcome) -> str:
    """One thread for people."""
    told = " ".join(outcome.reason.split()) or f"{counted(outcome.checkpoints, 'checkpoint')}, {outcome.file}"
    if outcome.status in (Status.FAILED, Status.REFUSED) and not outcome.thread_id:
        return line(f"{outcome.status:<9} {told}")  # which begins with the file
    return line(f"{outcome.status:<9} {outcome.thread_id}: {told}")


def _finish(context: click.Context, report: Report, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        counts = ", ".join(f"{count:,} {status}" for status, count in report.counts.items())
        click.echo(f"threads: {counts or 'none'}{_sizes(report)}")
    context.exit(report.exit_code)


def _sizes(report: Report) -> str:
    if not report.counts[Status.ARCHIVED] + report.counts[Status.COPIED] + report.counts[Status.COUNTED]:
        return ""
    return f"; {report.payload_bytes:,} bytes of payloads in {report.file_bytes:,} bytes of files"
