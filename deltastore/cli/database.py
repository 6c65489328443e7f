"""What commands on a database share: where it is, a connection to it, and how the answer is printed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

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
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def run_on(dsn: str | None, schema: str, call: Callable[[AnyConnection], Awaitable[Answer]]) -> Answer:
    """Runs a call on a connection of its own.

    Raises:
        InvalidConfigError: There is no DSN.
        DatabaseError: The database did not do what was asked.
    """
    if not dsn:
        raise InvalidConfigError("no database given", hint="say --dsn DSN, or set DELTASTORE_DSN")

    async def run(given: str) -> Answer:
        async with _connected(given) as connection:
            try:
                return await call(connection)
            except DRIVER_ERRORS as error:
                raise translate(error, schema=schema) from error

    return asyncio.run(run(dsn))


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[AnyConnection]:
    if dsn.partition(":")[0] == "embedded":
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
