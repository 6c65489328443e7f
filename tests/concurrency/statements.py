"""How many statements a saver runs, and how many rows the server reads for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint

from deltastore import DeltaSaver
from tests.faults.stories import config_of

TABLES = ("delta_threads", "delta_checkpoints", "delta_segments", "delta_metadata")
ROWS_READ = """
    SELECT coalesce(sum(pg_stat_get_tuples_returned(relation) + pg_stat_get_tuples_fetched(relation)), 0)
    FROM (
        SELECT oid AS relation FROM pg_class WHERE relnamespace = 'deltastore'::regnamespace AND relkind = 'r'
    ) AS tables
"""
"""Rows that scans of the tables returned, and rows that index scans fetched from them."""


@dataclass
class Counter:
    """A pool that takes note of its statements.

    Attributes:
        pool: The pool.
        statements: The statements in order, transaction commands among them.
    """

    pool: asyncpg.Pool[Any]
    statements: list[str] = field(default_factory=list)

    async def new_saver(self, **options: Any) -> DeltaSaver:
        """A saver with an empty cache, like that of another process, past its look at the schema's version.

        The driver looks up each type that it meets, once for each connection: that is not counted either.
        """
        saver = DeltaSaver(self.pool, **options)
        checkpoint = create_checkpoint(empty_checkpoint(), None, 1)
        await saver.aput(config_of("another thread"), checkpoint, {}, {})
        await saver.aget_tuple(config_of("another thread"))
        await self.forget()
        return saver

    async def forget(self) -> None:
        await asyncio.sleep(0)  # the driver reports a statement in the next round of the loop
        self.statements.clear()

    async def count(self) -> int:
        """How many statements ran since the last look."""
        await asyncio.sleep(0)
        count = len(self.statements)
        self.statements.clear()
        return count

    async def rows_read(self) -> int:
        """How many rows the server has read so far; exact for a pool of one connection."""
        await self.pool.fetchval("SELECT pg_stat_force_next_flush()")
        await self.pool.execute("SELECT pg_stat_clear_snapshot()")
        read = int(await self.pool.fetchval(ROWS_READ))
        await self.forget()
        return read


@asynccontextmanager
async def counting(dsn: str, **options: Any) -> AsyncIterator[Counter]:
    """A counter on the database."""
    statements: list[str] = []

    async def listen(connection: Any) -> None:
        connection.add_query_logger(lambda record: statements.append(record.query))

    async def nothing(connection: Any) -> None:
        """Nothing of the session is to be undone, and the driver's own reset would be counted."""

    async with asyncpg.create_pool(dsn, min_size=1, init=listen, reset=nothing, **options) as pool:
        yield Counter(pool, statements)
