"""PgBouncer in transaction mode, without prepared statements: graphs of four clients over two server connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deltastore import DeltaSaver
from tests.bridge.savers import config, echo_graph
from tests.faults.stories import Story, assert_reads_as
from tests.faults.test_lines import kill_backends
from tests.support.poolers import pgbouncer


@pytest.fixture
def pooled_dsn(empty_database_dsn: str) -> Iterator[str]:
    with pgbouncer(empty_database_dsn, server_connections=2) as dsn:
        yield dsn


async def savers(stack: AsyncExitStack, dsn: str) -> list[DeltaSaver]:
    opened = [
        await stack.enter_async_context(
            DeltaSaver.from_conn_string(dsn, max_size=3, statement_cache_size=0, snapshot_frequency=4)
        )
        for _ in range(4)
    ]
    await asyncio.gather(*(saver.setup() for saver in opened))
    return opened


async def test_runs_are_twins_of_runs_in_memory(pooled_dsn: str) -> None:
    async with AsyncExitStack() as stack:
        clients = await savers(stack, pooled_dsn)

        async def run(saver: object, thread_id: str) -> list[list[str]]:
            graph = echo_graph(saver)
            for word in "abcde":
                await graph.ainvoke({"words": [word + thread_id]}, config(thread_id))
            return [each.values["words"] async for each in graph.aget_state_history(config(thread_id))]

        names = [f"{number}" for number in range(16)]
        pooled = await asyncio.gather(*(run(clients[int(name) % 4], name) for name in names))
        memory = InMemorySaver()
        assert pooled == [await run(memory, name) for name in names]


async def test_all_calls_of_a_saver(pooled_dsn: str) -> None:
    async with AsyncExitStack() as stack:
        clients = await savers(stack, pooled_dsn)

        async def work(number: int) -> None:
            saver, name = clients[number % 4], f"t{number}"
            story = Story(saver, name, seed=number)
            await story.grow(9, run_id=f"old {number}")
            await story.grow(5, run_id=f"new {number}")
            for step in story.steps:
                await assert_reads_as(clients[(number + 1) % 4], step)
            await saver.acopy_thread(name, f"{name} copy")
            await saver.adelete_for_runs([f"old {number}"])
            assert (await saver.aget_tuple(story.steps[0].config)) is None
            await saver.aprune([name])
            found = await clients[(number + 2) % 4].aget_tuple(story.steps[-1].config)
            assert found is not None
            assert found.checkpoint == story.steps[-1].checkpoint
            await saver.adelete_thread(f"{name} copy")

        await asyncio.gather(*(work(number) for number in range(8)))


async def test_the_poolers_server_connections_are_killed(pooled_dsn: str, empty_database_dsn: str) -> None:
    async with AsyncExitStack() as stack:
        clients = await savers(stack, pooled_dsn)
        stories = [Story(saver, f"t{number}", seed=number) for number, saver in enumerate(clients)]
        await asyncio.gather(*(story.grow(3) for story in stories))
        for _ in range(5):
            growing = [asyncio.ensure_future(story.grow(4)) for story in stories]
            await asyncio.sleep(0)
            kill_backends(empty_database_dsn)
            await asyncio.gather(*growing)
        for story in stories:
            for step in story.steps:
                await assert_reads_as(clients[0], step)


async def test_saves_that_share_commits(pooled_dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deltastore.postgres")
    async with AsyncExitStack() as stack:
        client, *_ = await savers(stack, pooled_dsn)
        stories = [Story(client, f"t{number}", seed=number) for number in range(40)]
        await stories[0].grow(20)
        await asyncio.gather(*(story.grow(8) for story in stories))
        for story in stories:
            await assert_reads_as(client, story.steps[-1])
    assert not [record for record in caplog.records if "sent alone" in record.message]
