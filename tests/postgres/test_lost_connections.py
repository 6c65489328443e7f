"""Connections that die, servers that stop, full pools: the caller notices a delay at most, or gets one error."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from deltastore.core.edits import ThreadChanges
from deltastore.core.model import ListQuery, NewSegment, Refusal, Save, Saved, SaveWrites
from deltastore.errors import DatabaseRefusedError, DatabaseUnavailableError, InvalidConfigError
from deltastore.postgres.pool import PoolOptions, address, open_pool
from deltastore.postgres.storage import PostgresStorage
from tests.contract.calls import (
    METADATA,
    OTHER,
    VALUES,
    WRITES,
    T,
    apply,
    hide,
    key,
    load,
    row,
    save,
    structure,
)
from tests.support.proxies import Proxy, proxy_to
from tests.support.servers import DurableServer

WRITE = SaveWrites(T, "", key(1), NewSegment(WRITES, b"w"))

CALLS: dict[str, Callable[[PostgresStorage], Awaitable[object]]] = {
    "setup": lambda storage: storage.setup(),
    "save": lambda storage: storage.save(Save(T, row(2, 1, 1), (NewSegment(VALUES, b"v"),), METADATA)),
    "save_writes": lambda storage: storage.save_writes(WRITE),
    "load_chains": load,
    "load_segments": lambda storage: storage.load_segments(T.key, [1]),
    "list_checkpoints": lambda storage: storage.list_checkpoints(ListQuery(T.key)),
    "copy_thread": lambda storage: storage.copy_thread(T.key, OTHER),
    "find_runs": lambda storage: storage.find_runs(["r"]),
    "edit": lambda storage: apply(storage, hide(1)),
    "delete_thread": lambda storage: storage.delete_thread(T.key),
}


@pytest.fixture
async def storage(database_dsn: str) -> AsyncIterator[PostgresStorage]:
    options = PoolOptions(min_size=3, max_size=3)
    storage = await PostgresStorage.open(database_dsn, options=options)
    await save(storage, row(1))
    yield storage
    await storage.close()


async def kill_backends(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    killed = await connection.fetchval(
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    await connection.close()
    assert killed == 3


@pytest.mark.parametrize("noticed", [False, True], ids=["unnoticed", "noticed"])
@pytest.mark.parametrize("verb", CALLS)
async def test_every_call_succeeds_after_all_backends_were_killed(
    storage: PostgresStorage, database_dsn: str, verb: str, noticed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if noticed:
        await kill_backends(database_dsn)
        await asyncio.sleep(0.05)
    else:  # the loop has no chance to read that the connections were closed
        _kill_without_the_loop(database_dsn)
    caplog.clear()
    await CALLS[verb](storage)
    assert len([record for record in caplog.records if record.name.startswith("deltastore")]) <= 1
    assert len(caplog.records) <= 1, caplog.text


def _kill_without_the_loop(dsn: str) -> None:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


async def test_one_log_line_tells_of_a_retry(
    storage: PostgresStorage, database_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    _kill_without_the_loop(database_dsn)
    with caplog.at_level(logging.WARNING, logger="deltastore"):
        await save(storage, row(2))
    assert len(caplog.records) == 1
    assert re.match(r"save succeeded at attempt [2-4], after \w+Error", caplog.records[0].getMessage())
    caplog.clear()
    await save(storage, row(3))
    assert not caplog.records


async def test_many_calls_at_once_survive_the_kill(storage: PostgresStorage, database_dsn: str) -> None:
    calls = [asyncio.create_task(storage.save(Save(T, row(number), (), METADATA))) for number in range(2, 200)]
    await asyncio.sleep(0.03)
    _kill_without_the_loop(database_dsn)
    answers = await asyncio.gather(*calls)
    assert set(map(type, answers)) <= {Saved, Refusal}
    assert set(answers) - {Refusal.EXISTS} == {answer for answer in answers if isinstance(answer, Saved)}
    checkpoints, _, _ = await structure(storage)
    assert len(checkpoints) == 199


@pytest.fixture
async def proxy(database_dsn: str) -> AsyncIterator[Proxy]:
    async with proxy_to(database_dsn) as proxy:
        yield proxy


async def test_a_save_whose_answer_got_lost_is_found_stored(proxy: Proxy) -> None:
    storage = await PostgresStorage.open(proxy.dsn, options=PoolOptions(max_size=1))
    await save(storage, row(1), NewSegment(VALUES, b"v"))
    proxy.cuts_answers = True
    call = asyncio.create_task(storage.save(Save(T, row(2, 1, 1), (NewSegment(VALUES, b"v"),), METADATA)))
    await asyncio.sleep(0.3)
    proxy.cuts_answers = False
    assert await call is Refusal.EXISTS
    checkpoints, segments, _ = await structure(storage)
    assert (len(checkpoints), len(segments)) == (2, 2)
    await storage.close()


async def test_an_edit_whose_line_breaks_ends_with_an_error_and_changes_nothing(proxy: Proxy) -> None:
    storage = await PostgresStorage.open(proxy.dsn, options=PoolOptions(max_size=1))
    await save(storage, row(1))
    before = await structure(storage)

    async def edit() -> None:
        async with storage.edit(T.key) as edit:
            await edit.rows()
            proxy.cuts_answers = True
            await edit.apply(ThreadChanges(delete_checkpoints=(("", key(1)),)))

    with pytest.raises(DatabaseUnavailableError, match=address(proxy.dsn)):
        await edit()
    proxy.cuts_answers = False
    assert await structure(storage) == before
    await storage.close()


async def test_a_silent_line_ends_with_an_error_in_time(proxy: Proxy) -> None:
    options = PoolOptions(max_size=1, timeout_seconds=1, command_timeout_seconds=0.5, connect_timeout_seconds=0.5)
    storage = await PostgresStorage.open(proxy.dsn, options=options)
    await save(storage, row(1))
    proxy.swallows = True
    for call in (save(storage, row(2)), load(storage)):
        started = time.monotonic()
        with pytest.raises(DatabaseUnavailableError, match=address(proxy.dsn)):
            await call
        assert time.monotonic() - started < 3
    proxy.swallows = False
    await save(storage, row(3))
    await storage.close()


async def test_a_full_pool_gives_an_error_in_time(database_dsn: str) -> None:
    storage = await PostgresStorage.open(database_dsn, options=PoolOptions(max_size=1, timeout_seconds=0.3))
    await save(storage, row(1))
    async with storage.edit(OTHER.key):
        started = time.monotonic()
        results = await asyncio.gather(*(load(storage) for _ in range(50)), return_exceptions=True)
        assert time.monotonic() - started < 2
    assert {type(result) for result in results} == {DatabaseUnavailableError}
    assert "1 connections, 0 of them idle, 1 allowed" in str(results[0])
    await load(storage)
    await storage.close()


@pytest.mark.parametrize("calls", [100])
async def test_calls_use_the_whole_pool(database_dsn: str, calls: int) -> None:
    """Twenty saves that take 50 ms each on a pool of ten."""
    storage = await PostgresStorage.open(database_dsn, options=PoolOptions(min_size=10, max_size=10))
    await save(storage, row(1))
    await asyncio.gather(*(load(storage) for _ in range(calls)))
    original = storage._queries.text["save"]
    slowed = original.replace("WITH seen AS", "WITH slow AS MATERIALIZED (SELECT pg_sleep(0.05)), seen AS", 1)
    storage._queries.text["save"] = slowed + ", (SELECT pg_sleep FROM slow) AS slow"
    started = time.monotonic()
    answers = await asyncio.gather(*(storage.save(Save(T, row(number), (), METADATA)) for number in range(2, 22)))
    elapsed_seconds = time.monotonic() - started
    assert all(isinstance(answer, Saved) for answer in answers)
    assert 0.1 <= elapsed_seconds < 0.25
    await storage.close()


async def test_a_server_that_comes_back_is_waited_for(durable_server: DurableServer) -> None:
    storage = await PostgresStorage.open(durable_server.dsn)
    await storage.setup()
    await save(storage, row(1))
    durable_server.kill()
    call = asyncio.create_task(save(storage, row(2)))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(durable_server.start)
    await call
    assert len((await load(storage, 1, 2)).rows) == 2
    await storage.close()


async def test_a_server_that_stays_away_gives_an_error_in_time(durable_server: DurableServer) -> None:
    options = PoolOptions(timeout_seconds=1)
    storage = await PostgresStorage.open(durable_server.dsn, options=options)
    await storage.setup()
    await save(storage, row(1))
    dsn = durable_server.dsn
    durable_server.kill()
    for verb, call in CALLS.items():
        started = time.monotonic()
        with pytest.raises(DatabaseUnavailableError):
            await call(storage)
        assert time.monotonic() - started < 2, verb
    with pytest.raises(DatabaseUnavailableError):
        await open_pool(dsn, options)
    await storage.close()


async def test_a_closed_pool_is_not_waited_for(database_dsn: str) -> None:
    storage = await PostgresStorage.open(database_dsn)
    await storage.close()
    await storage.close()
    started = time.monotonic()
    with pytest.raises(DatabaseUnavailableError, match="closed"):
        await storage.setup()
    assert time.monotonic() - started < 1


async def test_a_pool_of_the_callers_stays_open(database_dsn: str) -> None:
    pool = await asyncpg.create_pool(database_dsn, min_size=1, max_size=2)
    storage = PostgresStorage(pool)
    await save(storage, row(1))
    await storage.close()
    assert await pool.fetchval("SELECT 1") == 1
    await pool.close()


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        ("postgresql://postgres:s3cret@127.0.0.1:1/x", DatabaseUnavailableError),
        ("postgresql://postgres:s3cret@127.0.0.1:port/x", InvalidConfigError),
        ("mysql://postgres:s3cret@127.0.0.1/x", InvalidConfigError),
        ("s3cret", InvalidConfigError),
        ("postgresql://postgres:s3cret@no-such-host.invalid/x", DatabaseUnavailableError),
    ],
)
async def test_passwords_are_never_shown(dsn: str, error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    options = PoolOptions(password="s3cret", timeout_seconds=2)
    assert "s3cret" not in repr(options)
    with caplog.at_level(logging.DEBUG), pytest.raises(error) as caught:
        await open_pool(dsn, options)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in caplog.text


async def test_a_database_that_is_not_there(server_dsn: str, database_dsn: str) -> None:
    from tests.support.servers import with_database

    with pytest.raises(DatabaseRefusedError, match="create the database"):
        await open_pool(with_database(database_dsn, "no_such_database"))


@pytest.mark.parametrize(("smallest", "largest"), [(3, 2), (-1, 2), (0, 0)])
def test_pool_sizes_that_do_not_fit(smallest: int, largest: int) -> None:
    with pytest.raises(InvalidConfigError, match="pool sizes"):
        PoolOptions(min_size=smallest, max_size=largest)
