"""Targets on PostgreSQL: deltastore, the stock saver, and savers by import path."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
from langgraph.checkpoint.base import BaseCheckpointSaver

from bench.errors import TargetError, UsageError, one_line
from bench.targets.base import Place, Saver, TableBytes, Target

POOL_CONNECTIONS_MAX = 10
_SIZES = """
    SELECT n.nspname || '.' || c.relname AS name,
           pg_table_size(c.oid) - coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0) AS table_bytes,
           pg_indexes_size(c.oid) AS index_bytes,
           coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0) AS toast_bytes
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'm')
       AND n.nspname NOT IN ('pg_catalog', 'information_schema')
       AND n.nspname NOT LIKE 'pg_toast%'
     ORDER BY 1
"""


class PostgresTarget(Target):
    """Any saver that keeps its rows in the database of the place."""

    async def stored(self) -> list[TableBytes]:
        connection = await asyncpg.connect(self.place.dsn)
        try:
            return [TableBytes(**dict(row)) for row in await connection.fetch(_SIZES)]
        finally:
            await connection.close()


class StockPostgresTarget(PostgresTarget):
    """LangGraph's own `AsyncPostgresSaver` on a pool, as its documentation sets one up."""

    async def setup(self) -> None:
        async with self.open() as saver:
            await saver.setup()  # type: ignore[attr-defined]

    @asynccontextmanager
    async def open(self, *, dsn: str | None = None) -> AsyncIterator[Saver]:
        try:
            from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
            from psycopg.rows import dict_row
            from psycopg_pool import AsyncConnectionPool
        except ImportError as error:
            raise UsageError(f"target postgres needs the package langgraph-checkpoint-postgres: {error}") from error
        settings: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            dsn or self.place.dsn, min_size=1, max_size=POOL_CONNECTIONS_MAX, kwargs=settings, open=False
        )
        async with pool:
            yield AsyncPostgresSaver(pool)


class DeltastoreTarget(PostgresTarget):
    """`DeltaSaver` with its default settings."""

    async def setup(self) -> None:
        async with self.open() as saver:
            await saver.setup()  # type: ignore[attr-defined]

    @asynccontextmanager
    async def open(self, *, dsn: str | None = None) -> AsyncIterator[Saver]:
        try:
            from deltastore import DeltaSaver
        except ImportError as error:
            raise UsageError(f"target deltastore cannot be imported: {error}") from error
        async with DeltaSaver.from_conn_string(dsn or self.place.dsn) as saver:
            yield saver


class ImportedTarget(PostgresTarget):
    """A saver by import path: `factory(dsn)` gives an async context manager of a saver that is ready to use."""

    def __init__(self, place: Place, factory: Callable[[str], AbstractAsyncContextManager[Saver]]) -> None:
        super().__init__(place)
        self._factory = factory

    @asynccontextmanager
    async def open(self, *, dsn: str | None = None) -> AsyncIterator[Saver]:
        async with self._factory(dsn or self.place.dsn) as saver:
            if not isinstance(saver, BaseCheckpointSaver):
                raise TargetError(f"the factory gave a {type(saver).__name__}, expected a BaseCheckpointSaver")
            yield saver


def import_factory(path: str) -> Callable[[str], AbstractAsyncContextManager[Saver]]:
    """Finds `package.module:factory`.

    Raises:
        UsageError: It cannot be imported.
    """
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute:
        raise UsageError(f"{path!r} is no import path: expected package.module:factory")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # whatever the module does while it is imported
        raise UsageError(f"{path} cannot be imported: {one_line(error)}") from error
    if not callable(factory):
        raise UsageError(f"{path} is a {type(factory).__name__}, expected a function that takes a DSN")
    found: Callable[[str], AbstractAsyncContextManager[Saver]] = factory
    return found
