"""A saver over the caller's own pool: open from the start, never closed by us."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import asyncpg
import pytest

from deltastore import DatabaseError, DeltaSaver, InvalidConfigError, WrongLoopError
from deltastore.langgraph import bridge
from tests.bridge.savers import config, echo_graph


async def test_usable_without_entering_and_never_closed(database_dsn: str) -> None:
    async with asyncpg.create_pool(database_dsn, min_size=1, max_size=3) as pool:
        saver = DeltaSaver(pool)
        await saver.setup()
        await echo_graph(saver).ainvoke({"words": ["a"]}, config())
        for _ in range(2):
            async with saver as entered:
                assert entered is saver
                state = await echo_graph(entered).aget_state(config())
                assert state.values["words"] == ["a", "A"]
            with saver:
                pass
        assert not pool.is_closing()
        assert await pool.fetchval("SELECT 1") == 1
        assert await saver.aget(config()) is not None


async def test_synchronous_calls_from_a_worker_thread_and_on_the_loop(database_dsn: str) -> None:
    async with asyncpg.create_pool(database_dsn, min_size=1, max_size=3) as pool:
        saver = DeltaSaver(pool)
        result = await asyncio.to_thread(echo_graph(saver).invoke, {"words": ["a"]}, config())
        assert result["words"] == ["a", "A"]
        with pytest.raises(WrongLoopError, match="would wait for itself"):
            saver.get_tuple(config())
        with saver, pytest.raises(WrongLoopError, match="would wait for itself"):
            saver.get_tuple(config())


def test_the_saver_belongs_to_the_pools_loop_wherever_it_is_made(database_dsn: str) -> None:
    """The pool lives on a loop in a thread; the saver is made outside of any loop, and inside of another one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def open_pool() -> asyncpg.Pool:
        return await asyncpg.create_pool(database_dsn, min_size=1, max_size=3)

    async def use(word: str) -> Any:
        saver = DeltaSaver(pool)
        return (await echo_graph(saver).ainvoke({"words": [word]}, config()))["words"]

    pool = asyncio.run_coroutine_threadsafe(open_pool(), loop).result(20)
    try:
        assert echo_graph(DeltaSaver(pool)).invoke({"words": ["a"]}, config())["words"] == ["a", "A"]
        with asyncio.Runner() as runner:
            assert runner.run(use("b")) == ["a", "A", "b", "B"]
    finally:
        asyncio.run_coroutine_threadsafe(pool.close(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def test_a_pool_that_the_caller_closed(database_dsn: str) -> None:
    pool = await asyncpg.create_pool(database_dsn, min_size=1, max_size=2)
    saver = DeltaSaver(pool)
    assert await saver.aget_tuple(config()) is None
    await pool.close()
    with pytest.raises(DatabaseError, match="pool is clos"):
        await saver.aget_tuple(config())


async def test_options_are_checked(database_dsn: str) -> None:
    async with asyncpg.create_pool(database_dsn, min_size=0, max_size=1) as pool:
        with pytest.raises(TypeError, match="unexpected keyword"):
            DeltaSaver(pool, snapshot_freqency=3)  # type: ignore[call-arg]
        with pytest.raises(InvalidConfigError, match="snapshot_frequency"):
            DeltaSaver(pool, snapshot_frequency=0)
        with pytest.raises(InvalidConfigError, match="timeout_seconds"):
            DeltaSaver(pool, timeout_seconds=0)
        with pytest.raises(InvalidConfigError, match="schema"):
            DeltaSaver(pool, schema="")


@pytest.mark.parametrize("commits", ["on", "off", None])
async def test_durability_is_the_servers_unless_the_saver_says_otherwise(
    database_dsn: str, commits: str | None
) -> None:
    settings = {"synchronous_commit": commits} if commits else None
    async with DeltaSaver.from_conn_string(database_dsn, server_settings=settings) as saver:
        pool: Any = saver._bridge.engine.storage._pool  # type: ignore[attr-defined]
        found = await pool.fetchval("SHOW synchronous_commit")
    async with asyncpg.create_pool(database_dsn, min_size=1, max_size=1) as other:
        assert found == (commits or await other.fetchval("SHOW synchronous_commit"))


def test_a_call_right_after_the_loop_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of the loop begins late, as it may on a busy machine."""
    run_loop = bridge._run_loop

    def late(loop: asyncio.AbstractEventLoop) -> None:
        time.sleep(0.05)
        run_loop(loop)

    monkeypatch.setattr(bridge, "_run_loop", late)
    assert DeltaSaver.in_memory().get_tuple(config()) is None
