"""`deltastore threads`, `history`, `show` and `diff`: looking at threads; `copy`, `delete` and `prune`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from deltastore.archive import open_archive
from deltastore.cli import desk
from deltastore.cli.database import (
    dsn_option,
    imported,
    json_option,
    print_answer,
    run_with_saver,
    schema_option,
    serde_option,
    serializer,
)
from deltastore.connect import DeltaSaver
from deltastore.errors import InvalidConfigError
from deltastore.inspection import diff as differences
from deltastore.inspection import find_thread, namespaces
from deltastore.inspection import history as checkpoints
from deltastore.inspection import show as checkpoint
from deltastore.inspection import threads as listed

Command = TypeVar("Command", bound=Callable[..., Any])

namespace_option = click.option(
    "--namespace", default="", metavar="NAME", help="Namespace of a subgraph.  [default: the root graph's]"
)
archive_option = click.option("--archive", metavar="FILE", help="Look at the thread in this archive; no database.")
reducer_option = click.option(
    "--reducer", "reducers", multiple=True, metavar="CHANNEL=MODULE:NAME", help="Reducer of a DeltaChannel."
)
import_option = click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="Import this first, so that its classes are opened."
)
full_option = click.option("--full", is_flag=True, help="Cut nothing.")
lines_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")


def on_database(command: Command) -> Command:
    """The options of every command here: where, and how values are decoded."""
    return dsn_option(schema_option(serde_option(command)))


@click.command()
@on_database
@click.option("--filter", "filters", multiple=True, metavar="KEY=VALUE", help="Only threads with such metadata.")
@click.option("--pinned", is_flag=True, help="Only pinned threads.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(0), help="At most so many; 0 for all.")
@click.option("--after", metavar="CURSOR", help="Continue where an earlier list ended.")
@lines_option
def threads(filters: tuple[str, ...], pinned: bool, limit: int, after: str | None, as_json: bool, **where: Any) -> None:
    """List threads, that with the newest checkpoint first.

    VALUE is JSON, or else a text. A thread is found by the metadata of any of its checkpoints.
    """
    wanted = dict(map(_condition, filters))

    async def call(saver: DeltaSaver) -> None:
        most = limit + (not as_json) if limit else None  # one more shows whether to go on
        found = listed(saver, filter=wanted, after=after, limit=most, pinned=pinned)
        await (_print_lines(found) if as_json else desk.print_threads(found, limit))

    run_with_saver(call=call, **where)


@click.command()
@click.argument("thread", required=False)
@on_database
@archive_option
@namespace_option
@click.option("--namespaces", "of_namespaces", is_flag=True, help="List the namespaces of the thread instead.")
@click.option("--limit", default=0, type=click.IntRange(0), help="At most so many.  [default: all]")
@lines_option
def history(namespace: str, of_namespaces: bool, limit: int, as_json: bool, **where: Any) -> None:
    """Draw the checkpoints of a thread as the tree that they are, newest first."""

    async def call(saver: DeltaSaver, thread: str) -> None:
        await find_thread(saver, thread)
        if of_namespaces:
            names = namespaces(saver, thread, limit=limit or None)
            await (_print_lines(names) if as_json else desk.print_namespaces(names))
        else:
            found = checkpoints(saver, thread, namespace=namespace, limit=limit or None)
            await (_print_lines(found) if as_json else desk.print_history(found))

    _run_on_thread(call=call, **where)


@click.command()
@click.argument("thread", required=False)
@on_database
@archive_option
@namespace_option
@click.option("--at", metavar="ID", help="Checkpoint, or the beginning of its id.  [default: the newest]")
@click.option("--channel", "channels", multiple=True, metavar="NAME", help="Only this channel; may be repeated.")
@reducer_option
@import_option
@full_option
@json_option
def show(namespace: str, at: str | None, channels: tuple[str, ...], reducers: tuple[str, ...], **given: Any) -> None:
    """Show a checkpoint: messages as a conversation, other channels, pending writes and interrupts."""
    as_json, full, where = _taken(given)
    known = _reducers(reducers)

    async def call(saver: DeltaSaver, thread: str) -> None:
        view = await checkpoint(saver, thread, at=at, namespace=namespace, channels=channels or None, reducers=known)
        if as_json:
            click.echo(json.dumps(view.as_json(), indent=2))
        else:
            desk.print_checkpoint(view, full=full)

    _run_on_thread(call=call, **where)


@click.command()
@click.argument("thread")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@on_database
@archive_option
@namespace_option
@reducer_option
@import_option
@full_option
@json_option
def diff(first: str, second: str, namespace: str, reducers: tuple[str, ...], **given: Any) -> None:
    """Show what differs between checkpoints A and B of a thread, channel by channel."""
    as_json, full, where = _taken(given)
    known = _reducers(reducers)

    async def call(saver: DeltaSaver, thread: str) -> None:
        found = await differences(saver, thread, first, second, namespace=namespace, reducers=known)
        if as_json:
            click.echo(json.dumps(found.as_json(), indent=2))
        else:
            desk.print_difference(found, full=full)

    _run_on_thread(call=call, **where)


@click.command()
@click.argument("source")
@click.argument("target")
@dsn_option
@schema_option
@json_option
def copy(source: str, target: str, dsn: str | None, schema: str, as_json: bool) -> None:
    """Copy thread SOURCE to the new thread TARGET, with its whole history."""

    async def call(saver: DeltaSaver) -> None:
        await find_thread(saver, source)
        await saver.acopy_thread(source, target)

    run_with_saver(dsn, schema, call=call)
    print_answer({"source": source, "target": target}, f"copied {source!r} to {target!r}", as_json=as_json)


@click.command()
@click.argument("thread")
@dsn_option
@schema_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(thread: str, dsn: str | None, schema: str, yes: bool, as_json: bool) -> None:
    """Delete a thread with all its namespaces, checkpoints and writes."""

    async def call(saver: DeltaSaver) -> None:
        await find_thread(saver, thread)
        if not yes:
            click.confirm(f"Delete thread {thread!r} for ever?", abort=True, err=True)
        await saver.adelete_thread(thread)

    run_with_saver(dsn, schema, call=call)
    print_answer({"deleted": thread}, f"deleted {thread!r}", as_json=as_json)


@click.command()
@click.argument("thread")
@on_database
@json_option
def prune(thread: str, as_json: bool, **where: Any) -> None:
    """Remove all but the newest checkpoint of each namespace of a thread."""

    async def call(saver: DeltaSaver) -> None:
        await find_thread(saver, thread)
        await saver.aprune([thread])

    run_with_saver(call=call, **where)
    print_answer(
        {"pruned": thread}, f"pruned {thread!r}: the newest checkpoint of each namespace is left", as_json=as_json
    )


COMMANDS: Iterable[click.Command] = (threads, history, show, diff, copy, delete, prune)


def _run_on_thread(
    call: Callable[[DeltaSaver, str], Awaitable[None]], *, thread: str | None, archive: str | None, **where: Any
) -> None:
    """Runs a call on a thread of the database, or on that of an archive, whose name need not be given."""

    async def on_archive(file: str) -> None:
        saver = await open_archive(file, serde=serializer(where["serde"]))
        await call(saver, thread or (await anext(listed(saver))).thread_id)

    async def on_database(saver: DeltaSaver) -> None:
        await call(saver, thread or "")

    if archive is not None:
        asyncio.run(on_archive(archive))
    elif thread is None:
        raise InvalidConfigError("no thread is named", hint="deltastore threads lists them")
    else:
        run_with_saver(call=on_database, **where)


async def _print_lines(records: AsyncIterator[Any]) -> None:
    async for record in records:
        click.echo(json.dumps(record.as_json()))


def _taken(given: dict[str, Any]) -> tuple[bool, bool, dict[str, Any]]:
    """`--json`, `--full`, and the options that say where; modules are imported."""
    logging.getLogger("langgraph.checkpoint.serde").addHandler(logging.NullHandler())  # the screen says it
    for module in given.pop("modules"):
        imported(module)
    return given.pop("as_json"), given.pop("full"), given


def _condition(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidConfigError(f"the filter {text!r} has a wrong form", hint="say --filter KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _reducers(given: Iterable[str]) -> Mapping[str, Any]:
    found = {}
    for text in given:
        channel, equals, name = text.partition("=")
        if not equals or ":" not in name:
            raise InvalidConfigError(
                f"the reducer {text!r} has a wrong form", hint="say --reducer CHANNEL=package.module:function"
            )
        found[channel] = imported(name)
    return found
