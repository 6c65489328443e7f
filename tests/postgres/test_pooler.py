"""PgBouncer in transaction mode: more clients than server connections, and a version without prepared statements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from deltastore.core.edits import ThreadChanges
from deltastore.core.model import ListQuery, NewSegment, Save, Saved
from deltastore.errors import DatabaseRefusedError
from deltastore.postgres.pool import PoolOptions
from deltastore.postgres.storage import PostgresStorage
from tests.contract.calls import METADATA, VALUES, key, row, thread
from tests.support.poolers import pgbouncer


@pytest.fixture
def pooled_dsn(database_dsn: str) -> Iterator[str]:
    with pgbouncer(database_dsn, server_connections=2) as dsn:
        yield dsn


async def work(storage: PostgresStorage, name: str, rounds: int) -> None:
    """Every call, again and again, with its answers checked."""
    ref, copy = thread(name), thread(name + " copy")
    for number in range(1, rounds + 1):
        checkpoint = row(number, number - 1 or None, number - 1, payload=name.encode())
        saved = await storage.save(Save(ref, checkpoint, (NewSegment(VALUES, name.encode()),), METADATA))
        assert isinstance(saved, Saved)
        chains = await storage.load_chains(ref.key, "", None)
        assert chains is not None
        assert (len(chains.rows), {each.payload for each in chains.rows}) == (number, {name.encode()})
        assert [each.payload for each in await storage.load_segments(ref.key, saved.segment_ids)] == [name.encode()]
        assert len(await storage.list_checkpoints(ListQuery(ref.key, "", limit=1000))) == number
        async with storage.edit(ref.key) as edit:
            await edit.apply(ThreadChanges(marks=(("", key(number), False, number % 2 == 0),)))
        assert await storage.copy_thread(ref.key, copy)
        await storage.delete_thread(copy.key)
    assert await storage.find_runs(["r"]) == []


async def test_many_clients_share_two_server_connections(pooled_dsn: str) -> None:
    options = PoolOptions(max_size=4, statement_cache_size=0)
    storages = [await PostgresStorage.open(pooled_dsn, options=options) for _ in range(4)]
    await storages[0].setup()
    names = [f"{client}.{number}" for client in range(4) for number in range(3)]
    await asyncio.gather(*(work(storages[int(name[0])], name, 12) for name in names))
    for storage in storages:
        await storage.close()


async def test_a_pooler_without_prepared_statements_is_named_in_the_error(pooled_dsn: str) -> None:
    storages = [await PostgresStorage.open(pooled_dsn, options=PoolOptions(max_size=4)) for _ in range(4)]
    names = [f"{client}.{number}" for client in range(4) for number in range(3)]
    calls = (work(storages[int(name[0])], name, 12) for name in names)
    refused = [each for each in await asyncio.gather(*calls, return_exceptions=True) if each is not None]
    assert refused
    for error in refused:
        assert isinstance(error, DatabaseRefusedError)
        assert "set statement_cache_size=0" in str(error)
    for storage in storages:
        await storage.close()
