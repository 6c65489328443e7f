"""`deltastore retain`: what a policy does not want to stay is removed, once or again and again; `pin`, `undelete`."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from deltastore.cli.database import (
    dsn_option,
    json_option,
    print_answer,
    run_with_saver,
    schema_option,
    serde_option,
)
from deltastore.cli.screen import counted, line, size
from deltastore.connect import DeltaSaver
from deltastore.core.retained import RetentionReport, RuleReport
from deltastore.core.retention import RetentionPolicy, age_seconds, rule_from
from deltastore.errors import DatabaseUnavailableError, InvalidConfigError, StoredDataError

RULE_OPTIONS = ("idle", "max_age", "keep_last", "heads_only", "daily_after", "filter")


@click.command()
@click.option("--dry-run", "mode", flag_value="dry run", help="Say what would be removed; remove nothing.")
@click.option("--once", "mode", flag_value="once", help="Remove it, in one pass over all threads.")
@click.option("--every", metavar="AGE", help="Remove it again and again, with this time between, until interrupted.")
@click.option("--policy", "path", type=click.Path(path_type=Path), metavar="FILE.toml", help="Rules from a file.")
@click.option("--idle", metavar="AGE", help="Threads whose newest checkpoint is older go as a whole.")
@click.option("--max-age", metavar="AGE", help="Checkpoints that are older go.")
@click.option("--keep-last", type=click.IntRange(1), metavar="N", help="So many of each namespace stay.")
@click.option("--heads-only", is_flag=True, help="The newest of each namespace stays; as --keep-last 1.")
@click.option("--daily-after", metavar="AGE", help="What is younger stays, of what is older one a day.")
@click.option("--filter", "filters", multiple=True, metavar="KEY=VALUE", help="Only threads with such metadata.")
@click.option("--grace", metavar="AGE", help="How long a young branch that goes can be gone on with.  [default: 10m]")
@dsn_option
@schema_option
@serde_option
@json_option
@click.pass_context
def retain(
    context: click.Context, /, mode: str | None, every: str | None, path: Path | None, as_json: bool, **given: Any
) -> None:
    """Remove what a retention policy does not want to stay, while runs go on.

    An AGE is a number with a unit: 45s, 30m, 12h, 90d, 2w. The rules are those of the file, or one rule of the options.
    Every checkpoint that stays is what it was. Exit code 4: some threads could not be read; they were left as they are.
    """
    if (mode is None) is (every is None):
        raise InvalidConfigError("say one of --dry-run, --once and --every AGE")
    where = {name: given.pop(name) for name in ("dsn", "schema", "serde")}
    policy = _policy(path, given)
    pause_seconds = None if every is None else age_seconds("--every", every)

    async def passes(saver: DeltaSaver) -> RetentionReport:
        while True:
            try:
                report = await saver.aretain(policy, dry_run=mode == "dry run")
            except DatabaseUnavailableError as error:
                if pause_seconds is None:
                    raise
                click.echo(f"deltastore: {' '.join(str(error).split())}; the next pass tries again", err=True)
            else:
                click.echo(json.dumps(report.as_json()) if as_json else summary(report))
                sys.stdout.flush()
                if pause_seconds is None:
                    return report
            await asyncio.sleep(pause_seconds)

    try:
        report = run_with_saver(call=passes, **where)
    except KeyboardInterrupt:
        context.exit(0)
    context.exit(StoredDataError.exit_code if report.failures else 0)


@click.command()
@click.argument("thread", metavar="THREAD")
@click.option("--off", is_flag=True, help="Take the pin away.")
@dsn_option
@schema_option
@json_option
def pin(thread: str, off: bool, dsn: str | None, schema: str, as_json: bool) -> None:
    """Exempt a thread from retention. `threads --pinned` lists such threads."""

    async def call(saver: DeltaSaver) -> None:
        await (saver.aunpin(thread) if off else saver.apin(thread))

    run_with_saver(dsn, schema, call=call)
    text = f"{thread!r} is {'not pinned any more' if off else 'pinned: retention leaves it alone'}"
    print_answer({"thread": thread, "pinned": not off}, text, as_json=as_json)


@click.command()
@click.argument("thread", metavar="THREAD")
@dsn_option
@schema_option
@json_option
@click.pass_context
def undelete(context: click.Context, thread: str, dsn: str | None, schema: str, as_json: bool) -> None:
    """Let runs save again that hold a checkpoint of a deleted thread. What was deleted stays gone.

    Exit code 1 if the thread is not known to be deleted.
    """

    async def call(saver: DeltaSaver) -> bool:
        return await saver.aundelete_thread(thread)

    found = run_with_saver(dsn, schema, call=call)
    text = "runs may save to it again" if found else "it is not known to be deleted; nothing was done"
    print_answer({"thread": thread, "undeleted": found}, f"{thread!r}: {text}", as_json=as_json)
    context.exit(0 if found else 1)


def _policy(path: Path | None, given: dict[str, Any]) -> RetentionPolicy:
    """The policy of the file, or of the options."""
    given["filter"] = dict(_condition(each) for each in given.pop("filters"))
    rule = {name: given[name] for name in RULE_OPTIONS if given[name] not in (None, False, {})}
    if path is not None:
        others = [*rule, *(["grace"] if given["grace"] else [])]
        if others:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in others)
            raise InvalidConfigError(f"--policy and {names} do not go together", hint="write it into the file")
        return policy_in(path)
    if not rule:
        raise InvalidConfigError("no rule is given", hint="say --policy FILE.toml, or an option such as --idle 90d")
    ages = {} if given["grace"] is None else {"grace_seconds": age_seconds("--grace", given["grace"])}
    return RetentionPolicy((rule_from(rule, "options"),), **ages)


def policy_in(path: Path) -> RetentionPolicy:
    """The policy in a file. Raises `InvalidConfigError`."""
    try:
        return RetentionPolicy.from_toml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfigError(f"the policy {str(path)!r} cannot be read", detail=str(error)) from error


def _condition(text: str) -> tuple[str, Any]:
    """A metadata key and the value it must have: JSON, or else the text itself."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidConfigError(f"--filter must be KEY=VALUE, got {text!r}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def summary(report: RetentionReport) -> str:
    """The report for people."""
    verb = "would be removed" if report.dry_run else "removed"
    gone = f"{counted(report.checkpoints, 'checkpoint')} of {counted(report.threads, 'thread')}"
    seen = f"{counted(report.seen_threads, 'thread')}, {report.pinned_threads:,} of them pinned"
    lines = [
        f"{verb}: {gone}, {report.deleted_threads:,} of them as a whole",
        f"payloads: {size(report.freed_bytes)}; longest lock: {report.lock_ms_max:,.1f} ms",
        f"looked at {seen}, in {report.elapsed_seconds:,.1f} s",
    ]
    rules = [rule for rule in report.rules if rule.name or rule.threads]
    if len(rules) > 1:
        lines += [f"{'rule':<24} {'threads':>10} {'as a whole':>10} {'checkpoints':>12} {'payloads':>12}"]
        lines += [_line(rule) for rule in rules]
    if report.busy_threads:
        lines.append(f"in use all the time, left to the next pass: {counted(len(report.busy_threads), 'thread')}")
    lines += [line(f"left as it is: {each.thread_id}: {' '.join(each.reason.split())}") for each in report.failures]
    return "\n".join(lines)


def _line(rule: RuleReport) -> str:
    name = re.sub(r"\s+", " ", rule.name) or "(never got a checkpoint)"
    name = name if len(name) <= 24 else f"{name[:23]}…"
    return (
        f"{name:<24} {rule.threads:>10,} {rule.deleted_threads:>10,} {rule.checkpoints:>12,}"
        f" {size(rule.freed_bytes):>12}"
    )
