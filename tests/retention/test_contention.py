"""Threads that others hold or change while retention looks at them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from deltastore import DeltaSaver, RetentionPolicy, RetentionRule
from deltastore.conversion import validate
from deltastore.core.edits import LockBounds
from deltastore.retention import passes as retaining
from tests.retention.storm import Thread

POLICY = RetentionPolicy((RetentionRule(keep_last=2),), grace_seconds=0)


@pytest.fixture(params=["memory", "postgresql"])
async def saver(request: pytest.FixtureRequest) -> AsyncIterator[DeltaSaver]:
    if request.param == "memory":
        yield DeltaSaver.in_memory()
        return
    async with DeltaSaver.from_conn_string(request.getfixturevalue("database_dsn")) as opened:
        yield opened


async def grown(saver: DeltaSaver, name: str, steps: int = 6) -> Thread:
    thread = Thread(name, "chat")
    await more(saver, thread, steps)
    return thread


async def more(saver: DeltaSaver, thread: Thread, steps: int = 1) -> None:
    chance = random.Random(1)
    for _ in range(steps):
        newest = thread.newest("")
        await thread.step(saver, "", newest[0] if newest else None, 1_780_000_000 + thread.version, chance)


async def left(saver: DeltaSaver, thread: Thread) -> int:
    """How many checkpoints are left; each must be what it was."""
    found = [each async for each in saver.alist(thread.config(""))]
    assert all([await thread.is_right(saver, each) for each in found])
    return len(found)


async def test_a_thread_that_others_hold_is_left_to_the_next_pass(
    saver: DeltaSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retaining, "LONG_WAIT", LockBounds(50, 5000))
    held, free = await grown(saver, "held"), await grown(saver, "free")

    storage: Any = saver._bridge.engine.storage
    async with storage.edit(validate.thread("held").key):
        report = await saver.aretain(POLICY)
    assert report.busy_threads == ("held",)
    assert (report.threads, report.checkpoints, report.failures) == (1, 4, ())
    assert (await left(saver, held), await left(saver, free)) == (6, 2)
    assert (await saver.aretain(POLICY)).checkpoints == 4
    assert await left(saver, held) == 2


@pytest.mark.parametrize("changes", [1, 3, 4, 9])
async def test_a_thread_that_changes_all_the_time(
    saver: DeltaSaver, changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it was looked at another checkpoint comes; in the end all is done under the lock."""
    thread = await grown(saver, "t")
    storage: Any = saver._bridge.engine.storage
    view, seen = type(storage).view, []

    @asynccontextmanager
    async def changing(self: Any, key: bytes) -> AsyncIterator[Any]:
        async with view(self, key) as opened:
            yield opened
        seen.append(key)
        if len(seen) <= changes:
            await more(saver, thread)

    monkeypatch.setattr(type(storage), "view", changing)
    report = await saver.aretain(POLICY)
    assert len(seen) == min(changes + 1, retaining.UNLOCKED_ATTEMPTS)
    monkeypatch.undo()
    assert report.checkpoints == 6 + min(changes, len(seen)) - 2
    assert await left(saver, thread) == 2
    await more(saver, thread, 3)
    assert await left(saver, thread) == 5


async def test_several_passes_at_once_do_the_work_once(saver: DeltaSaver) -> None:
    threads = [await grown(saver, f"t{number}") for number in range(12)]
    reports = await asyncio.gather(*(saver.aretain(POLICY) for _ in range(4)))
    assert sum(report.checkpoints for report in reports) == 12 * 4
    assert sum(report.threads for report in reports) == 12
    assert not any(report.failures or report.busy_threads for report in reports)
    for thread in threads:
        assert await left(saver, thread) == 2


async def test_more_threads_than_a_page(saver: DeltaSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retaining, "THREADS_PER_PAGE", 3)
    for number in range(11):
        await grown(saver, f"t{number}", 3)
    for _ in range(5):
        assert (await saver.aretain(POLICY, dry_run=True)).seen_threads == 11
    assert (await saver.aretain(POLICY)).checkpoints == 11


async def test_a_thread_pinned_or_deleted_meanwhile(saver: DeltaSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pinned", "deleted"):
        await grown(saver, name)
    storage: Any = saver._bridge.engine.storage
    view = type(storage).view

    @asynccontextmanager
    async def changing(self: Any, key: bytes) -> AsyncIterator[Any]:
        async with view(self, key) as opened:
            yield opened
        await self.pin(validate.thread("pinned").key, True)
        await self.delete_thread(validate.thread("deleted").key)

    monkeypatch.setattr(type(storage), "view", changing)
    report = await saver.aretain(POLICY)
    assert (report.seen_threads, report.threads, report.failures) == (2, 0, ())


SLOW_DELETION = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(20); RETURN old; END';
CREATE TRIGGER slow BEFORE DELETE ON deltastore.delta_checkpoints FOR EACH STATEMENT
WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION slow()
"""


async def test_a_removal_that_takes_too_long_is_undone_and_holds_nobody_up_for_longer(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retaining, "SHORT_WAIT", LockBounds(20, 300))
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        thread = await grown(saver, "t")
        connection = await asyncpg.connect(database_dsn)
        await connection.execute(SLOW_DELETION)
        retain = asyncio.create_task(saver.aretain(POLICY))
        while not await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):  # noqa: ASYNC110 - it is the server that is asked
            await asyncio.sleep(0)
        await asyncio.wait_for(more(saver, thread), 10)
        report = await retain
        assert [each.thread_id for each in report.failures] == ["t"]
        assert "statement timeout" in report.failures[0].reason
        assert report.lock_ms_max < 5000
        assert await left(saver, thread) == 7
        await connection.execute("DROP TRIGGER slow ON deltastore.delta_checkpoints")
        await connection.close()
        assert (await saver.aretain(POLICY)).checkpoints == 5
        assert await left(saver, thread) == 2
