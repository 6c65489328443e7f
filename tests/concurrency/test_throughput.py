"""No lock around the saver: slow saves use the whole pool, and a full pool is an error in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint

from deltastore import DatabaseUnavailableError, DeltaSaver
from tests.faults.stories import Story, assert_reads_as, config_of, until

SLOW_INSERTS = """
    CREATE FUNCTION wait_50_ms() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(0.05); RETURN NEW; END $$;
    CREATE TRIGGER wait_50_ms BEFORE INSERT ON deltastore.delta_checkpoints
        FOR EACH ROW EXECUTE FUNCTION wait_50_ms();
"""
SAVES = 20
SECONDS_MAX = 0.25
"""One after the other, the saves take a second; side by side on ten connections, a tenth."""


@pytest.fixture
def slow_dsn(database_dsn: str) -> str:
    """A database that takes 50 ms for each checkpoint."""
    with psycopg.connect(database_dsn) as connection:
        connection.execute(SLOW_INSERTS)
    return database_dsn


def put_arguments(thread_id: str) -> tuple[Any, ...]:
    checkpoint = create_checkpoint(empty_checkpoint(), None, 1)
    checkpoint["channel_values"] = {"words": ["a"]}
    checkpoint["channel_versions"] = {"words": 1}
    return config_of(thread_id), checkpoint, {"step": 1}, {"words": 1}


@pytest.mark.parametrize("threads", [SAVES, 1], ids=["distinct threads", "one thread"])
async def test_saves_from_one_loop_run_side_by_side(slow_dsn: str, threads: int) -> None:
    """F04. The machine may be busy with other tests: the best of some rounds counts."""
    async with DeltaSaver.from_conn_string(slow_dsn, min_size=10, max_size=10) as saver:

        async def round_seconds() -> float:
            calls = [put_arguments(f"t{number % threads}") for number in range(SAVES)]
            start = time.perf_counter()
            await asyncio.gather(*(saver.aput(*each) for each in calls))
            return time.perf_counter() - start

        await round_seconds()
        assert min([await round_seconds() for _ in range(5)]) < SECONDS_MAX


def test_saves_from_worker_threads_run_side_by_side(slow_dsn: str) -> None:
    with (
        DeltaSaver.from_conn_string(slow_dsn, min_size=10, max_size=10) as saver,
        ThreadPoolExecutor(SAVES) as executor,
    ):

        def round_seconds() -> float:
            calls = [put_arguments(f"t{number}") for number in range(SAVES)]
            start = time.perf_counter()
            list(executor.map(lambda each: saver.put(*each), calls))
            return time.perf_counter() - start

        round_seconds()
        assert min(round_seconds() for _ in range(5)) < SECONDS_MAX


async def test_a_hundred_writers_on_distinct_threads(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, max_size=10) as saver:
        stories = [Story(saver, f"t{number}", seed=number) for number in range(100)]
        await asyncio.gather(*(story.grow(6) for story in stories))
    async with DeltaSaver.from_conn_string(database_dsn, max_size=10) as other:
        await asyncio.gather(*(assert_reads_as(other, step) for story in stories for step in story.steps))


CALLS: dict[str, Callable[[DeltaSaver], Any]] = {
    "aput": lambda saver: saver.aput(*put_arguments("t")),
    "aget_tuple": lambda saver: saver.aget_tuple(config_of("t")),
    "aprune": lambda saver: saver.aprune(["t"]),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_full_pool_is_an_error_in_time(database_dsn: str, name: str) -> None:
    """Two connections, both waiting for a lock: a third call gives up, and works when the lock is gone."""
    async with DeltaSaver.from_conn_string(database_dsn, max_size=2, timeout_seconds=1) as saver:
        await saver.aput(*put_arguments("t"))
        with psycopg.connect(database_dsn) as holder:
            holder.execute("SELECT FROM deltastore.delta_threads FOR UPDATE")
            waiting = [asyncio.ensure_future(saver.aput(*put_arguments("t"))) for _ in range(2)]
            pool: Any = saver._bridge.engine.storage._pool  # type: ignore[attr-defined]
            await until(lambda: pool.get_size() == 2 and not pool.get_idle_size())
            start = time.monotonic()
            with pytest.raises(DatabaseUnavailableError, match=r"no usable connection in time.*2 allowed") as caught:
                await CALLS[name](saver)
            assert time.monotonic() - start < 5
            assert caught.value.retryable
        await asyncio.gather(*waiting)
        await CALLS[name](saver)
