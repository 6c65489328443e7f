"""Threads far larger than a page of anything."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from deltastore.core.edits import ThreadChanges
from deltastore.core.model import ListQuery, ThreadRef
from deltastore.postgres.storage import PostgresStorage
from tests.contract.calls import key, thread

THREAD = """
INSERT INTO deltastore.delta_threads (thread_key, thread_id) VALUES ($1, $2);
"""
CHECKPOINTS = """
INSERT INTO deltastore.delta_checkpoints
SELECT step % 100, step % 50, step % 7 = 0, false, $1, namespace, '\\x01'::bytea || '\\x0000000000000000'
    || int8send(step), '\\x01'::bytea || '\\x0000000000000000' || int8send(step - 1), ARRAY[step],
    convert_to(repeat('p', 100), 'UTF8')
FROM generate_series(1::bigint, 4000) AS step, unnest(ARRAY['', 'a', 'a|b']) AS namespace
"""
SEGMENTS = """
INSERT INTO deltastore.delta_segments (kind, thread_key, namespace, checkpoint_id, payload)
SELECT 1 + 2 * (step % 2), $1, 'a', int8send(step), convert_to(repeat('s', 3000), 'UTF8')
FROM generate_series(1::bigint, 12000) AS step
"""
METADATA = """
INSERT INTO deltastore.delta_metadata
SELECT step, $1, jsonb_build_object('run_id', step::text), '' FROM generate_series(0, 99) AS step
"""
TABLES = ("delta_threads", "delta_checkpoints", "delta_segments", "delta_metadata")
BIG, SIBLINGS = thread("t1"), [thread(name) for name in ("t10", "t%", "t_", "T1")]


@pytest.fixture
async def storage(database_dsn: str) -> AsyncIterator[PostgresStorage]:
    storage = await PostgresStorage.open(database_dsn)
    await fill(storage, BIG)
    yield storage
    await storage.close()


async def fill(storage: PostgresStorage, ref: ThreadRef) -> None:
    await storage._pool.execute(THREAD, ref.key, ref.thread_id)
    for statement in (CHECKPOINTS, SEGMENTS, METADATA):
        await storage._pool.execute(statement, ref.key)


async def counts(storage: PostgresStorage, ref: ThreadRef) -> list[int]:
    return [
        await storage._pool.fetchval(f"SELECT count(*) FROM deltastore.{table} WHERE thread_key = $1", ref.key)
        for table in TABLES
    ]


async def test_copies_and_deletions_are_complete(storage: PostgresStorage) -> None:
    assert await counts(storage, BIG) == [1, 12_000, 12_000, 100]
    for sibling in SIBLINGS:
        assert await storage.copy_thread(BIG.key, sibling)
        assert await counts(storage, sibling) == [1, 12_000, 12_000, 100]
    started = time.monotonic()
    await storage.delete_thread(BIG.key)
    assert time.monotonic() - started < 5
    assert await counts(storage, BIG) == [0, 0, 0, 0]
    for sibling in SIBLINGS:
        assert await counts(storage, sibling) == [1, 12_000, 12_000, 100]


async def test_any_checkpoint_is_as_near_as_the_newest(storage: PostgresStorage) -> None:
    await storage._pool.execute("ANALYZE")
    for number in (1, 49, 50, 999, 1000, 1001, 2500, 3999):
        chains = await storage.load_chains(BIG.key, "a", [key(number)])
        assert chains is not None
        assert len(chains.rows) == number % 50 + (number >= 50), number


async def test_pages_of_a_long_listing(storage: PostgresStorage) -> None:
    query, seen = ListQuery(BIG.key, "a", limit=500), 0
    while page := await storage.list_checkpoints(query):
        seen += len(page)
        query = ListQuery(BIG.key, "a", limit=500, cursor=page[-1].cursor)
    assert seen == 4000 - 4000 // 7


async def test_an_edit_of_everything(storage: PostgresStorage) -> None:
    async with storage.edit(BIG.key) as edit:
        rows = await edit.rows()
        assert rows is not None
        assert sum(len(segment.payload) for segment in rows.segments) == 0
        await edit.apply(
            ThreadChanges(
                marks=tuple((each.namespace, each.checkpoint_id, True, True) for each in rows.checkpoints[:6000]),
                delete_checkpoints=tuple(each.key for each in rows.checkpoints[6000:]),
                delete_segments=tuple(each.segment_id for each in rows.segments[:-1]),
                delete_metadata=tuple(number for number, _ in rows.metadata[1:]),
            )
        )
    assert await counts(storage, BIG) == [1, 6000, 1, 1]
