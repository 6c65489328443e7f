"""Saves, edits and deletions of one thread at the same moment, in orders that a third connection forces.

The third connection holds what the others need; `waiting` tells when they have queued up for it. Nothing sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest

from deltastore.core.edits import RowUpdate, ThreadChanges
from deltastore.core.model import CheckpointRow, NewSegment, Refusal, Save, Saved, SaveWrites
from deltastore.errors import DatabaseUnavailableError
from deltastore.postgres.pool import PoolOptions
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

LOCK = "SELECT FROM deltastore.delta_threads WHERE thread_key = $1 FOR UPDATE"


@pytest.fixture
async def storage(database_dsn: str) -> AsyncIterator[PostgresStorage]:
    storage = await PostgresStorage.open(database_dsn, options=PoolOptions(max_size=5))
    yield storage
    await storage.close()


@pytest.fixture
async def third(database_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_dsn)
    yield connection
    await connection.close()


async def waiting(connection: asyncpg.Connection, count: int) -> None:
    """Returns when so many sessions wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(10):
        while await connection.fetchval(query) != count:
            await asyncio.sleep(0.005)
            await connection.execute("SELECT pg_stat_clear_snapshot()")


async def queue_up(connection: asyncpg.Connection, calls: Sequence) -> list[asyncio.Task]:
    """Starts the calls one after the other, each when the one before it waits."""
    tasks = []
    for call in calls:
        tasks.append(asyncio.create_task(call))
        await waiting(connection, len(tasks))
    return tasks


def child_of(saved: Saved) -> Save:
    return Save(T, row(2, 1, 1, segments=saved.segment_ids), (NewSegment(VALUES, b"v"),), epoch=saved.epoch)


async def test_a_save_behind_a_removal_is_refused(storage: PostgresStorage, third: asyncpg.Connection) -> None:
    saved = await save(storage, row(1), NewSegment(VALUES, b"v"))
    writes = SaveWrites(T, "", key(1), NewSegment(WRITES, b"w", saved.segment_ids), epoch=saved.epoch)
    async with third.transaction():
        await third.execute(LOCK, T.key)
        removal = apply(storage, ThreadChanges(delete_segments=saved.segment_ids))
        tasks = await queue_up(third, [removal, storage.save(child_of(saved)), storage.save_writes(writes)])
    assert await asyncio.gather(*tasks) == [None, Refusal.STALE, Refusal.STALE]
    checkpoints, segments, _ = await structure(storage)
    assert (len(checkpoints), segments) == (1, [])


async def test_a_removal_behind_a_save_sees_it(storage: PostgresStorage, third: asyncpg.Connection) -> None:
    saved = await save(storage, row(1), NewSegment(VALUES, b"v"))
    seen: list[CheckpointRow] = []

    async def edit() -> None:
        async with storage.edit(T.key) as edit:
            rows = await edit.rows()
            assert rows is not None
            seen.extend(rows.checkpoints)

    async with third.transaction():
        await third.execute(LOCK, T.key)
        tasks = await queue_up(third, [storage.save(child_of(saved)), edit()])
    assert isinstance((await asyncio.gather(*tasks))[0], Saved)
    assert len(seen) == 2


async def test_a_removal_waits_for_a_save_that_is_under_way(
    storage: PostgresStorage, third: asyncpg.Connection
) -> None:
    saved = await save(storage, row(1), NewSegment(VALUES, b"v"))
    text = storage._queries.text["save"]
    storage._queries.text["save"] = text + ", (SELECT pg_advisory_xact_lock(1))"
    async with third.transaction():
        await third.execute("SELECT pg_advisory_xact_lock(1)")
        tasks = await queue_up(third, [storage.save(child_of(saved)), storage.delete_thread(T.key)])
    assert isinstance((await asyncio.gather(*tasks))[0], Saved)
    assert await structure(storage) is None


async def test_saves_of_one_thread_do_not_wait_for_each_other(
    storage: PostgresStorage, third: asyncpg.Connection
) -> None:
    await save(storage, row(1))
    async with third.transaction():
        await third.execute("SELECT FROM deltastore.delta_threads WHERE thread_key = $1 FOR KEY SHARE", T.key)
        await save(storage, row(2))
        await storage.copy_thread(T.key, OTHER)
        await load(storage)


async def test_a_save_behind_a_deletion_makes_the_thread_again(
    storage: PostgresStorage, third: asyncpg.Connection
) -> None:
    saved = await save(storage, row(1), NewSegment(VALUES, b"v"))
    async with third.transaction():
        await third.execute(LOCK, T.key)
        calls = [
            storage.delete_thread(T.key),
            storage.save(Save(T, row(1), metadata=METADATA)),
            storage.save(child_of(saved)),
        ]
        tasks = await queue_up(third, calls)
    _, again, stale = await asyncio.gather(*tasks)
    assert isinstance(again, Saved)
    assert again.epoch != saved.epoch
    assert stale is Refusal.STALE
    assert [each.key for each in (await structure(storage))[0]] == [("", key(1))]


@pytest.mark.parametrize("behind_rewrite", [False, True])
async def test_a_save_behind_a_marking_sees_the_mark(
    storage: PostgresStorage, third: asyncpg.Connection, behind_rewrite: bool
) -> None:
    saved = await save(storage, row(1))
    changes = ThreadChanges(updates=(RowUpdate(row(1, hidden=True)),)) if behind_rewrite else hide(1)
    async with third.transaction():
        await third.execute(LOCK, T.key)
        epoch = None if behind_rewrite else saved.epoch
        tasks = await queue_up(third, [apply(storage, changes), storage.save(Save(T, row(2, 1, 1), epoch=epoch))])
    assert isinstance((await asyncio.gather(*tasks))[1], Saved)
    rows = {each.checkpoint_id: each for each in (await load(storage, 2)).rows}
    assert rows[key(2)].orphaned


@pytest.mark.parametrize("commits", [True, False])
async def test_a_thread_created_by_two_at_once(
    storage: PostgresStorage, third: asyncpg.Connection, commits: bool
) -> None:
    await save(storage, row(1), thread=OTHER)
    transaction = third.transaction()
    await transaction.start()
    epoch = await third.fetchval(
        "INSERT INTO deltastore.delta_threads (thread_key, thread_id) VALUES ($1, $2) RETURNING epoch",
        T.key,
        T.thread_id,
    )
    writes = SaveWrites(T, "", key(1), NewSegment(WRITES, b"w"))
    save_one = Save(T, row(1), (NewSegment(VALUES, b"v"),), METADATA)
    tasks = await queue_up(third, [storage.save(save_one), storage.save_writes(writes)])
    await (transaction.commit() if commits else transaction.rollback())
    one, two = await asyncio.gather(*tasks)
    assert one.epoch == two.epoch
    assert (one.epoch == epoch) is commits
    assert len((await structure(storage))[1]) == 2


@pytest.mark.parametrize("commits", [True, False])
async def test_a_checkpoint_saved_by_two_at_once(
    storage: PostgresStorage, third: asyncpg.Connection, commits: bool
) -> None:
    await save(storage, row(1))
    transaction = third.transaction()
    await transaction.start()
    await third.execute(
        "INSERT INTO deltastore.delta_checkpoints SELECT metadata_id, depth, hidden, orphaned, thread_key, namespace,"
        " $1, parent_id, segments, payload FROM deltastore.delta_checkpoints",
        key(2),
    )
    mine = Save(T, row(2, 1, 1), (NewSegment(VALUES, b"v"),), METADATA)
    (task,) = await queue_up(third, [storage.save(mine)])
    await (transaction.commit() if commits else transaction.rollback())
    assert (await task is Refusal.EXISTS) is commits
    checkpoints, segments, _ = await structure(storage)
    assert (len(checkpoints), len(segments)) == ((2, 0) if commits else (2, 1))


@pytest.mark.parametrize("commits", [True, False])
async def test_a_copy_to_a_thread_that_is_just_created(
    storage: PostgresStorage, third: asyncpg.Connection, commits: bool
) -> None:
    await save(storage, row(1))
    transaction = third.transaction()
    await transaction.start()
    await third.execute(
        "INSERT INTO deltastore.delta_threads (thread_key, thread_id) VALUES ($1, $2)", OTHER.key, OTHER.thread_id
    )
    (task,) = await queue_up(third, [storage.copy_thread(T.key, OTHER)])
    await (transaction.commit() if commits else transaction.rollback())
    assert await task is not commits
    checkpoints, _, _ = await structure(storage, OTHER)
    assert len(checkpoints) == (0 if commits else 1)


async def test_a_copy_is_of_one_moment(
    storage: PostgresStorage, third: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two statements of the copy the source is rewritten."""
    await save(storage, row(1), NewSegment(VALUES, b"v"))
    before = await structure(storage)
    original = storage._queries.copy_segments

    async def copy_segments(*arguments) -> None:
        async with third.transaction():
            await third.execute(
                "UPDATE deltastore.delta_checkpoints SET payload = 'rewritten' WHERE thread_key = $1", T.key
            )
            await third.execute("DELETE FROM deltastore.delta_segments WHERE thread_key = $1", T.key)
        await original(*arguments)

    monkeypatch.setattr(storage._queries, "copy_segments", copy_segments)
    assert await storage.copy_thread(T.key, OTHER)
    assert await structure(storage, OTHER) == before


async def test_a_thread_that_changes_all_the_time_ends_in_an_error_not_in_a_loop(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def changed(*arguments) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(storage._queries, "save", changed)
    with pytest.raises(DatabaseUnavailableError, match="faster than it can be saved"):
        await storage.save(Save(T, row(1), metadata=METADATA))


async def test_ten_writers_and_three_sweepers(storage: PostgresStorage, database_dsn: str) -> None:
    """Whatever the order: no save is lost, and no accepted one refers to a segment that was removed."""
    other = await PostgresStorage.open(database_dsn, options=PoolOptions(max_size=5))
    saved: list[int] = []

    async def write(number: int) -> None:
        for step in range(15):
            anchor = await save(storage, row(1000 * number + 2 * step), NewSegment(VALUES, b"v"))
            child = row(1000 * number + 2 * step + 1, 1000 * number + 2 * step, 1, segments=anchor.segment_ids)
            if await storage.save(Save(T, child, epoch=anchor.epoch)) is not Refusal.STALE:
                saved.append(1000 * number + 2 * step + 1)

    async def sweep() -> None:
        for _ in range(10):
            async with other.edit(T.key) as edit:
                if rows := await edit.rows():
                    used = {number for each in rows.checkpoints for number in each.segments if each.depth}
                    gone = tuple(each.segment_id for each in rows.segments if each.segment_id not in used)
                    await edit.apply(ThreadChanges(delete_segments=gone))

    await save(storage, row(10**6))
    await asyncio.gather(*map(write, range(10)), *(sweep() for _ in range(3)))
    checkpoints, segments, _ = await structure(storage)
    stored = {each.segment_id for each in segments}
    children = [each for each in checkpoints if each.depth]
    assert sorted(each.checkpoint_id for each in children) == sorted(map(key, saved))
    assert all(set(each.segments) <= stored for each in children)
    await other.close()
