"""`deltastore verify`: damage found, named and repaired."""

from __future__ import annotations

import json
from typing import Any

import click

from deltastore.cli.database import (
    dsn_option,
    imported,
    json_option,
    run_with_saver,
    schema_option,
    serde_option,
)
from deltastore.cli.findings import Screen
from deltastore.connect import DeltaSaver
from deltastore.errors import InvalidConfigError
from deltastore.importer.unopened import UnopenedSerializer
from deltastore.verification import Report, verify_threads


@click.command()
@click.argument("threads", nargs=-1, metavar="[THREAD]...")
@dsn_option
@schema_option
@serde_option
@click.option("--all", "every", is_flag=True, help="All threads.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="N threads by chance.")
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Import this first, and look whether types are readable.",
)
@click.option("--repair", is_flag=True, help="Repair what can be repaired; nothing is destroyed.")
@click.option("--dry-run", is_flag=True, help="With --repair: show what it would do, and do nothing.")
@json_option
@click.pass_context
def verify(context: click.Context, /, threads: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Verify threads: open every row, walk every chain, read every value.

    Values are read with the serializer that --serde makes, or with the default one if --import names modules; else they
    are read without making objects of them.

    Exit code 0: no damage, or none any more; 1: damage was found, or is left.
    """
    if sum((bool(threads), given["every"], given["sample"] is not None)) != 1:
        raise InvalidConfigError("which threads?", hint="name some, or say --all or --sample N")
    if given["dry_run"] and not given["repair"]:
        raise InvalidConfigError("--dry-run is for --repair", hint="without --repair nothing is written anyway")
    for module in given["modules"]:
        imported(module)
    looks_up_types = bool(given["modules"] or given["serde"])
    screen = Screen(quiet=as_json, repairs=given["repair"], dry_run=given["dry_run"])

    async def call(saver: DeltaSaver) -> Report:
        if not looks_up_types:
            saver.serde = UnopenedSerializer()
        return await verify_threads(
            saver,
            threads or None,
            sample=given["sample"],
            repair=given["repair"] and not given["dry_run"],
            planned=screen.planned,
            progress=screen.done,
        )

    report = run_with_saver(given["dsn"], given["schema"], serde=given["serde"], call=call)
    if as_json:
        click.echo(json.dumps({"types": looks_up_types, **report.as_json()}, indent=2))
    else:
        screen.end(report, looks_up_types=looks_up_types)
    context.exit(report.exit_code)
