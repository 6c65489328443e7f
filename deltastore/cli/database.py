"""What commands share: where the database is, a connection or a saver on it, names of Python objects, the answer."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from deltastore.connect import DeltaSaver
from deltastore.errors import InvalidConfigError
from deltastore.postgres.failures import DRIVER_ERRORS, translate
from deltastore.postgres.pool import PoolOptions, open_pool
from deltastore.postgres.queries import AnyConnection

DSN_HELP = "postgresql://…, or embedded, or embedded:FOLDER."

Answer = TypeVar("Answer")

dsn_option = click.option("--dsn", envvar="DELTASTORE_DSN", show_envvar=True, metavar="DSN", help=DSN_HELP)
schema_option = click.option(
    "--schema", default="deltastore", show_default=True, metavar="NAME", help="PostgreSQL schema of the tables."
)
serde_option = click.option(
    "--serde", metavar="MODULE:NAME", help="Factory of the serializer, if it encrypts or is your own."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def run_on(
    dsn: str | None, schema: str, call: Callable[[AnyConnection], Awaitable[Answer]], *, makes: bool = False
) -> Answer:
    """Runs a call on a connection of its own. `makes`: an embedded database is made if it is not there.

    Raises:
        InvalidConfigError: There is no DSN, or it names an embedded database that is not there.
        DatabaseError: The database did not do what was asked.
    """

    async def run(given: str) -> Answer:
        async with _connected(given) as connection:
            try:
                return await call(connection)
            except DRIVER_ERRORS as error:
                raise translate(error, schema=schema) from error

    return asyncio.run(run(given_dsn(dsn, makes=makes)))


def run_with_saver(
    dsn: str | None,
    schema: str,
    *,
    call: Callable[[DeltaSaver], Awaitable[Answer]],
    serde: str | None = None,
    makes: bool = False,
) -> Answer:
    """Runs a call with an open saver; no statement has a time limit. `makes`: as for `run_on`.

    Raises:
        InvalidConfigError: There is no DSN, it names an embedded database that is not there, or the serializer cannot
            be made.
        DeltastoreError: What the call raises.
    """

    async def run(given: str) -> Answer:
        opened = DeltaSaver.from_conn_string(
            given, schema=schema, serde=serializer(serde), max_size=2, command_timeout_seconds=None
        )
        async with opened as saver:
            return await call(saver)

    return asyncio.run(run(given_dsn(dsn, makes=makes)))


def given_dsn(dsn: str | None, *, makes: bool) -> str:
    """The DSN. Raises `InvalidConfigError` if there is none, or it names an embedded database that is not there."""
    if not dsn:
        raise InvalidConfigError("no database given", hint="say --dsn DSN, or set DELTASTORE_DSN")
    if not makes and _is_embedded(dsn):
        from deltastore.embedded import EmbeddedServer, embedded_folder  # noqa: PLC0415 - an extra

        server = EmbeddedServer(embedded_folder(dsn))
        if not server.is_made:
            raise InvalidConfigError(
                f"there is no embedded database in {server.folder}",
                hint="correct the folder; deltastore schema up makes a new database",
            )
    return dsn


def _is_embedded(dsn: str) -> bool:
    return dsn.partition(":")[0] == "embedded"


def serializer(name: str | None) -> Any:
    """The serializer that a factory makes; None for none. Raises `InvalidConfigError`."""
    if name is None:
        return None
    try:
        return imported(name)()
    except (ImportError, TypeError, ValueError) as error:
        raise InvalidConfigError(f"the serializer {name!r} cannot be made", detail=str(error)) from error


def search_current_folder() -> None:
    """Modules are looked for in the current folder, too, after all other places."""
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)


def imported(name: str) -> Any:
    """What `package.module:name` names, or the module if no name is given; the current folder is looked at, too.

    Raises:
        InvalidConfigError: There is no such thing.
    """
    module_name, colon, attribute = name.partition(":")
    search_current_folder()
    try:
        module = importlib.import_module(module_name)
        return getattr(module, attribute) if colon else module
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidConfigError(
            f"{name!r} cannot be imported", detail=str(error), hint="give package.module:name"
        ) from error


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[AnyConnection]:
    if _is_embedded(dsn):
        from deltastore.embedded import EmbeddedServer, embedded_folder  # noqa: PLC0415 - an extra

        async with EmbeddedServer(embedded_folder(dsn)) as server, _connected(server.dsn) as connection:
            yield connection
        return
    pool = await open_pool(dsn, PoolOptions(min_size=1, max_size=1))
    try:
        async with pool.acquire() as connection:
            yield connection
    finally:
        await pool.close()


def print_answer(answer: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Prints the answer as one JSON object, or as text."""
    click.echo(json.dumps(answer, indent=2) if as_json else text)
