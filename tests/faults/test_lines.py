"""Lost connections, lines that break at any moment, and servers that stop: what a graph and its user notice of it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from deltastore import DatabaseUnavailableError, DeltaSaver
from tests.bridge.savers import config, echo_graph
from tests.faults.stories import Story, assert_reads_as, config_of
from tests.support.proxies import Proxy
from tests.support.servers import DurableServer

KILL = """
    SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


def kill_backends(dsn: str) -> int:
    """Ends all connections; blocks the loop, so that the driver has no chance to notice."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        [count] = connection.execute(KILL).fetchone() or [0]
        return int(count)


async def listed(saver: DeltaSaver) -> list[Any]:
    return [each async for each in saver.alist(config_of("story"))]


CALLS: dict[str, Callable[[DeltaSaver, Story], Any]] = {
    "aput_writes": lambda saver, story: saver.aput_writes(story.steps[-1].config, [("words", ["w"])], "task"),
    "aput": lambda saver, story: story._put(story.steps[-1], 9, {"words": ["new"]}, (), {}),
    "aget_tuple": lambda saver, story: saver.aget_tuple(config_of("story")),
    "alist": lambda saver, story: listed(saver),
    "ahistory": lambda saver, story: saver.aget_delta_channel_history(config=config_of("story"), channels=["log"]),
    "aprune": lambda saver, story: saver.aprune(["story"]),
    "adelete_for_runs": lambda saver, story: saver.adelete_for_runs(["r"]),
    "acopy_thread": lambda saver, story: saver.acopy_thread("story", "copy"),
    "adelete_thread": lambda saver, story: saver.adelete_thread("story"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_the_first_call_succeeds_after_all_connections_were_killed(
    database_dsn: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F01: a pool of three, all of them killed, none of them known to be dead."""
    async with DeltaSaver.from_conn_string(database_dsn, min_size=3, max_size=3) as saver:
        story = Story(saver)
        await story.grow(4)
        caplog.clear()
        assert kill_backends(database_dsn) == 3
        await CALLS[name](saver, story)
        logged = [record for record in caplog.records if record.name.startswith("deltastore")]
        assert [record.levelno for record in logged] == [logging.WARNING]


class CuttingProxy(Proxy):
    """Breaks lines at random moments: before the server got a statement, or before the client got its answer.

    Attributes:
        rate: How likely a line breaks in place of passing on a packet.
        cuts_next: Break the line at the next "statement" or "answer", once.
        cuts: How many lines were broken on the way to the server, and from it.
    """

    def __init__(self, target: str, seed: int) -> None:
        super().__init__(target)
        self.rate = 0.0
        self.cuts_next = ""
        self.cuts = {"statement": 0, "answer": 0}
        self._chance = random.Random(seed)

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        try:
            while data := await source.read(65536):
                kind = "answer" if answers else "statement"
                if self.cuts_next == kind or self._chance.random() < self.rate:
                    self.cuts[kind] += 1
                    self.cuts_next = ""
                    break
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass
        finally:
            target.close()


@asynccontextmanager
async def cutting(dsn: str, seed: int) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(dsn, seed)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.listening(server.sockets[0].getsockname()[1])
    try:
        yield proxy
    finally:
        proxy.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 8))])
async def test_lines_that_break_all_the_time_change_nothing(database_dsn: str, seed: int) -> None:
    """Each save lands exactly once, whether the server got it before the line broke or not."""
    async with cutting(database_dsn, seed) as proxy:
        async with DeltaSaver.from_conn_string(proxy.dsn, max_size=3, timeout_seconds=60) as saver:
            story = Story(saver, seed=seed, words_max=2000)
            await story.step(None)
            proxy.rate = 0.1
            for number in range(60):
                step = await story.step(story.steps[-1])
                if number % 5 == 0:
                    await assert_reads_as(saver, step)
            proxy.rate = 0
        assert min(proxy.cuts.values()) >= 5, proxy.cuts
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        for step in story.steps:
            await assert_reads_as(saver, step)
        assert len(await listed(saver)) == len(story.steps)


async def test_a_run_over_lines_that_break(database_dsn: str) -> None:
    async with cutting(database_dsn, 5) as proxy:
        async with DeltaSaver.from_conn_string(proxy.dsn, max_size=3, timeout_seconds=60) as saver:
            await saver.aget_tuple(config())
            proxy.rate = 0.05
            for number in range(15):
                result = await echo_graph(saver).ainvoke({"words": [f"w{number}"]}, config())
            proxy.rate = 0
        expected = [word for number in range(15) for word in (f"w{number}", f"W{number}")]
        assert result["words"] == expected
        assert sum(proxy.cuts.values()) >= 5
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        state = await echo_graph(saver).aget_state(config())
        assert state.values["words"] == expected
        history = [each async for each in saver.alist(config())]
        assert len(history) == 15 * 3


@pytest.mark.parametrize("lost", ["statement", "answer"])
async def test_a_save_whose_outcome_is_unknown_is_one_checkpoint(
    database_dsn: str, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The line breaks before the server got the statement, or after it committed: the retry finds out."""
    async with cutting(database_dsn, 0) as proxy:
        async with DeltaSaver.from_conn_string(proxy.dsn, max_size=1) as saver:
            story = Story(saver)
            await story.grow(3)
            parent = story.steps[-1]
            proxy.cuts_next = lost
            await story._put(parent, 3, {"words": ["new"]}, parent.log, {})
            proxy.cuts_next = lost
            await saver.aput_writes(story.steps[-1].config, [("words", ["w"]), ("log", "l")], "task")
            story.steps[-1].pending.extend([("task", "words", ["w"]), ("task", "log", "l")])
        assert proxy.cuts[lost] == 2
        assert [record.getMessage()[:10] for record in caplog.records] == ["save succe", "save_write"]
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        for step in story.steps:
            await assert_reads_as(saver, step)
        assert len(await listed(saver)) == 4


async def test_a_server_that_stops_and_comes_back(durable_server: DurableServer) -> None:
    """A run gets one typed error in time, and goes on to the right end when the server is there again."""
    async with DeltaSaver.from_conn_string(durable_server.dsn, timeout_seconds=2, max_size=2) as saver:
        await saver.setup()
        graph = echo_graph(saver)
        await graph.ainvoke({"words": ["a"]}, config())
        await asyncio.to_thread(durable_server.kill)
        for call in (
            lambda: graph.ainvoke({"words": ["lost"]}, config()),
            lambda: saver.aget_tuple(config()),
            lambda: asyncio.to_thread(saver.get_tuple, config()),
            lambda: saver.aprune(["t"]),
        ):
            start = time.monotonic()
            with pytest.raises(DatabaseUnavailableError) as caught:
                await call()
            assert time.monotonic() - start < 10
            assert caught.value.retryable
        await durable_server.start_async()
        assert (await graph.aget_state(config())).values["words"] == ["a", "A"]
        assert (await graph.ainvoke({"words": ["b"]}, config()))["words"] == ["a", "A", "b", "B"]
