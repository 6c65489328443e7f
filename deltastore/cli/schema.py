"""`deltastore schema`: look at the database schema, bring it up to date, or print the SQL for that."""

from __future__ import annotations

import click

from deltastore.cli.database import dsn_option, json_option, print_answer, run_on, schema_option
from deltastore.errors import SchemaVersionError
from deltastore.postgres.migrations import Migrator, SchemaStatus


@click.group()
def schema() -> None:
    """The database schema and its migrations."""


@schema.command()
@dsn_option
@schema_option
@json_option
@click.pass_context
def status(context: click.Context, dsn: str | None, schema: str, as_json: bool) -> None:
    """Show which version is there and what is missing.

    Exit code 0: up to date; 3: setup or another version of deltastore is needed.
    """
    found = run_on(dsn, schema, Migrator(schema).status)
    answer = {
        "schema": found.schema,
        "found": found.found,
        "expected": found.expected,
        "pending": [step.name for step in found.pending],
    }
    print_answer(answer, _describe(found), as_json=as_json)
    if found.found != found.expected:
        context.exit(SchemaVersionError.exit_code)


@schema.command()
@dsn_option
@schema_option
@json_option
@click.option("--no-create-schema", is_flag=True, help="Only make tables; the schema itself must be there.")
def up(dsn: str | None, schema: str, as_json: bool, no_create_schema: bool) -> None:
    """Bring the schema up to date; safe to run many times and from many places at once."""
    migrator = Migrator(schema, create_schema=not no_create_schema)
    applied = [step.name for step in run_on(dsn, schema, migrator.up, makes=True)]
    text = "".join(f"applied {name}\n" for name in applied)
    text += f"schema {schema} is up to date at version {migrator.expected}"
    print_answer({"schema": schema, "version": migrator.expected, "applied": applied}, text, as_json=as_json)


@schema.command()
@dsn_option
@schema_option
@click.option("--from", "found", type=click.IntRange(0), metavar="VERSION", help="Print only what follows VERSION.")
def sql(dsn: str | None, schema: str, found: int | None) -> None:
    """Print the SQL that `up` would run, for an administrator to run in its place.

    The version that is there is taken from --from, else from the database if one is given, else there is nothing yet.
    """
    migrator = Migrator(schema)
    if found is None:
        found = run_on(dsn, schema, migrator.status).found if dsn else 0
    click.echo(migrator.sql(found), nl=False)


def _describe(found: SchemaStatus) -> str:
    if found.found > found.expected:
        state = "newer than this deltastore: upgrade langgraph-checkpoint-deltastore"
    elif found.found == found.expected:
        state = "up to date"
    else:
        names = ", ".join(step.name for step in found.pending)
        state = f"{'older than this deltastore' if found.found else 'not set up'}: run deltastore schema up ({names})"
    return f"schema {found.schema}: version {found.found}, expected {found.expected}, {state}"
