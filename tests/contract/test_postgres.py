"""The contract on PostgreSQL: as it comes, with partitioned tables in an awkwardly named schema, and through a pooler.

One database serves all tests of a module; each finds its tables empty.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from deltastore.postgres.migrations import schema_folder
from deltastore.postgres.naming import quote_schema, render
from deltastore.postgres.pool import PoolOptions
from deltastore.postgres.storage import PostgresStorage
from deltastore.storage import Storage
from tests.contract.storage_contract import StorageContract
from tests.support.poolers import pgbouncer
from tests.support.servers import database

TABLES = (
    "delta_threads",
    "delta_checkpoints",
    "delta_segments",
    "delta_metadata",
    "delta_quarantine",
    "delta_staging",
    "delta_tombstones",
)


async def opened(dsn: str, schema: str = "deltastore", options: PoolOptions | None = None) -> AsyncIterator[Storage]:
    storage = await PostgresStorage.open(dsn, schema, options)
    yield storage
    for table in TABLES:
        await storage._pool.execute(f"DELETE FROM {quote_schema(schema)}.{table}")
    await storage.close()


@pytest.fixture(scope="module")
def shared_dsn(server_dsn: str, _template: str) -> Iterator[str]:
    with database(server_dsn, _template) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def pooled_dsn(shared_dsn: str) -> Iterator[str]:
    with pgbouncer(shared_dsn, server_connections=4) as dsn:
        yield dsn


class TestPostgresStorage(StorageContract):
    @pytest.fixture
    async def storage(self, shared_dsn: str) -> AsyncIterator[Storage]:
        async for storage in opened(shared_dsn):
            yield storage


class TestPartitionedStorage(StorageContract):
    SCHEMA = 'it\'s "b-ü"'

    @pytest.fixture
    async def storage(self, shared_dsn: str) -> AsyncIterator[Storage]:
        connection = await asyncpg.connect(shared_dsn)
        if not await connection.fetchval("SELECT to_regnamespace($1)", quote_schema(self.SCHEMA)):
            variant = schema_folder().joinpath("variants", "partitioned.sql").read_text(encoding="utf-8")
            few = variant.replace("integer := 16;", "integer := 3;")
            assert few != variant
            await connection.execute(render("CREATE SCHEMA {schema};" + few, self.SCHEMA))
        await connection.close()
        async for storage in opened(shared_dsn, self.SCHEMA):
            yield storage


class TestPooledStorage(StorageContract):
    """PgBouncer in transaction mode with four server connections; its version may know no prepared statements."""

    @pytest.fixture
    async def storage(self, pooled_dsn: str) -> AsyncIterator[Storage]:
        async for storage in opened(pooled_dsn, options=PoolOptions(statement_cache_size=0)):
            yield storage
