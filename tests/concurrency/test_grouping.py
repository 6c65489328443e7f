"""Saves of many threads share commits, and one thread's trouble stays its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint

from deltastore import DatabaseRefusedError, DeltaSaver
from deltastore.core.identifiers import thread_key
from tests.concurrency.statements import Counter, counting
from tests.faults.stories import Story, assert_reads_as, config_of, until

THREADS = 60
REFUSE_ONE = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '22000'; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON deltastore.delta_checkpoints
        FOR EACH ROW WHEN (NEW.thread_key = '\\x{key}'::bytea) EXECUTE FUNCTION refuse();
"""

KILL_OTHERS = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture
async def counter(database_dsn: str) -> AsyncIterator[Counter]:
    async with counting(database_dsn, max_size=10) as counter:
        yield counter


async def warm(counter: Counter) -> tuple[DeltaSaver, list[Story]]:
    """A saver that knows the server to be quick, and threads of some steps each."""
    saver = await counter.new_saver()
    stories = [Story(saver, f"t{number}", seed=number) for number in range(THREADS)]
    await stories[0].grow(30)
    await asyncio.gather(*(story.grow(3) for story in stories))
    await counter.forget()
    return saver, stories


async def assert_all_read(counter: Counter, stories: list[Story]) -> None:
    other = await counter.new_saver()
    await asyncio.gather(*(assert_reads_as(other, step) for story in stories for step in story.steps))


async def test_saves_of_many_threads_share_statements(counter: Counter) -> None:
    _, stories = await warm(counter)
    await asyncio.gather(*(story.grow(5) for story in stories))
    assert await counter.count() < THREADS * 5 * 2 / 3, "two saves a step, most of them in groups"
    await assert_all_read(counter, stories)


async def test_saves_of_new_threads_share_statements(counter: Counter) -> None:
    saver, _ = await warm(counter)
    stories = [Story(saver, f"new {number}", seed=number) for number in range(THREADS)]
    await asyncio.gather(*(story.grow(1) for story in stories))
    assert await counter.count() < THREADS / 3
    await assert_all_read(counter, stories)


async def test_two_processes_group_saves_of_the_same_threads(counter: Counter) -> None:
    """Both create the same threads at the same moment, in groups, and in different orders."""
    saver, _ = await warm(counter)
    other, _ = await warm(counter)
    mine = [Story(saver, f"both {number}", seed=number) for number in range(THREADS)]
    theirs = [Story(other, f"both {number}", seed=number + THREADS) for number in range(THREADS)]
    await asyncio.gather(*(story.grow(4) for story in mine + theirs[::-1]))
    await assert_all_read(counter, mine + theirs)


async def test_a_locked_thread_holds_up_no_other(counter: Counter, database_dsn: str) -> None:
    saver, stories = await warm(counter)
    locked = [Story(saver, f"t{number}", seed=number) for number in range(4)]
    with psycopg.connect(database_dsn) as holder:
        keys = [thread_key(story.thread_id) for story in locked]
        holder.execute("SELECT FROM deltastore.delta_threads WHERE thread_key = ANY (%s) FOR UPDATE", [keys])
        waiting = [asyncio.ensure_future(story.grow(1)) for story in locked]
        await asyncio.wait_for(asyncio.gather(*(story.grow(3) for story in stories[4:])), 30)
        assert not any(each.done() for each in waiting)
    await asyncio.gather(*waiting)
    await assert_all_read(counter, stories[4:] + locked)


async def test_a_refused_save_fails_alone(counter: Counter, database_dsn: str) -> None:
    """The server undoes the whole group; all but the refused one are stored nevertheless."""
    _, stories = await warm(counter)
    with psycopg.connect(database_dsn) as connection:
        connection.execute(REFUSE_ONE.format(key=thread_key("t7").hex()))
    ends = await asyncio.gather(*(story.grow(1) for story in stories), return_exceptions=True)
    failed = [number for number, end in enumerate(ends) if isinstance(end, BaseException)]
    assert failed == [7]
    assert isinstance(ends[7], DatabaseRefusedError)
    stories[7].steps[-1].pending.clear()  # whether its writes came through is not known
    await assert_all_read(counter, stories[:7] + stories[8:])


async def test_stale_and_repeated_saves_are_answered_as_ever(counter: Counter) -> None:
    """Another process pruned some threads, and some saves are repeated as after a lost answer."""
    saver, stories = await warm(counter)
    other = await counter.new_saver()
    for story in stories[:20]:
        await other.aprune([story.thread_id])
        del story.steps[:-1]
        story.steps[0] = replace(story.steps[0], parent=None)
    again = [story.steps[-1] for story in stories[20:40]]

    async def put_again(step: Any) -> None:
        parent = step.parent.config if step.parent else config_of("t")
        await saver.aput(parent, step.checkpoint, step.metadata, step.checkpoint["channel_versions"])

    await asyncio.gather(*(story.grow(1) for story in stories[:20]), *map(put_again, again))
    await assert_all_read(counter, stories)


async def test_a_caller_that_gives_up_takes_nobody_along(counter: Counter) -> None:
    _, stories = await warm(counter)
    calls = [asyncio.ensure_future(story.grow(1)) for story in stories]
    await asyncio.sleep(0)
    for call in calls[::3]:
        call.cancel()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) == (number % 3 == 0) for number, end in enumerate(ends))
    kept = [story for number, story in enumerate(stories) if number % 3]
    await assert_all_read(counter, kept)


async def test_lost_connections_lose_no_save(counter: Counter, database_dsn: str) -> None:
    _, stories = await warm(counter)
    growing = asyncio.gather(*(story.grow(20) for story in stories))
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        for steps in (4, 8, 12, 16):
            await until(lambda: sum(len(story.steps) for story in stories) > steps * THREADS)  # noqa: B023
            connection.execute(KILL_OTHERS)
    await growing
    await assert_all_read(counter, stories)


def put_arguments(number: int) -> tuple[Any, ...]:
    checkpoint = create_checkpoint(empty_checkpoint(), None, 1)
    checkpoint["channel_values"] = {"words": ["a" * (100_000 if number % 2 else 10)]}
    checkpoint["channel_versions"] = {"words": 1}
    return config_of(f"size {number}"), checkpoint, {"step": 1}, {"words": 1}


async def test_small_and_large_saves_at_once(counter: Counter) -> None:
    saver, _ = await warm(counter)
    calls = [put_arguments(number) for number in range(THREADS)]
    await asyncio.gather(*(saver.aput(*call) for call in calls))
    other = await counter.new_saver()
    for config, checkpoint, *_ in calls:
        found = await other.aget_tuple(config)
        assert found is not None
        assert found.checkpoint == checkpoint
