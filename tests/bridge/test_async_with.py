"""A saver opened by `async with`: its loop, other threads, other loops, and a loop that has ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from deltastore import DeltaSaver, WrongLoopError
from deltastore.engine import Engine
from deltastore.langgraph.saver import EngineSaver
from tests.bridge.savers import Opened, config, echo_graph, memory_saver

SYNC_CALLS: dict[str, Callable[[EngineSaver], Any]] = {
    "put": lambda saver: saver.put(config(), empty_checkpoint(), {}, {}),
    "put_writes": lambda saver: saver.put_writes(config(checkpoint_id="1"), [("a", 1)], "task"),
    "get_tuple": lambda saver: saver.get_tuple(config()),
    "get": lambda saver: saver.get(config()),
    "list": lambda saver: list(saver.list(config())),
    "history": lambda saver: saver.get_delta_channel_history(config=config(), channels=["a"]),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "prune": lambda saver: saver.prune(["t"]),
}


async def listed(saver: EngineSaver) -> list[Any]:
    return [each async for each in saver.alist(config())]


ASYNC_CALLS: dict[str, Callable[[EngineSaver], Any]] = {
    "aput": lambda saver: saver.aput(config(), empty_checkpoint(), {}, {}),
    "aput_writes": lambda saver: saver.aput_writes(config(checkpoint_id="1"), [("a", 1)], "task"),
    "aget_tuple": lambda saver: saver.aget_tuple(config()),
    "aget": lambda saver: saver.aget(config()),
    "alist": listed,
    "ahistory": lambda saver: saver.aget_delta_channel_history(config=config(), channels=["a"]),
    "adelete_thread": lambda saver: saver.adelete_thread("t"),
    "adelete_for_runs": lambda saver: saver.adelete_for_runs(["r"]),
    "acopy_thread": lambda saver: saver.acopy_thread("t", "u"),
    "aprune": lambda saver: saver.aprune(["t"]),
    "setup": lambda saver: saver.setup(),
}


async def test_a_service_awaits_on_its_loop(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        graph = echo_graph(saver)
        runs = [graph.ainvoke({"words": [f"a{number}"]}, config(f"t{number}")) for number in range(20)]
        results = await asyncio.gather(*runs)
        assert [each["words"] for each in results] == [[f"a{number}", f"A{number}"] for number in range(20)]


async def test_a_worker_thread_invokes(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        graph = echo_graph(saver)
        await graph.ainvoke({"words": ["a"]}, config())
        await asyncio.to_thread(graph.invoke, {"words": ["b"]}, config())
        history = await asyncio.to_thread(lambda: list(graph.get_state_history(config())))
        assert history[0].values["words"] == ["a", "A", "b", "B"]


async def test_another_loop_in_another_thread_works_too(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        graph = echo_graph(saver)
        call = graph.ainvoke({"words": ["a"]}, config())
        assert (await asyncio.to_thread(asyncio.run, call))["words"] == ["a", "A"]


@pytest.mark.parametrize("name", SYNC_CALLS)
async def test_a_synchronous_call_on_the_savers_own_loop_fails_at_once(name: str) -> None:
    async with memory_saver() as saver:
        start = time.monotonic()
        with pytest.raises(WrongLoopError, match="would wait for itself") as caught:
            SYNC_CALLS[name](saver)
        assert time.monotonic() - start < 1
        assert "ainvoke" in caught.value.hint
        assert await saver.aget_tuple(config()) is None


async def test_invoke_on_the_savers_own_loop_fails_at_once() -> None:
    async with memory_saver() as saver:
        with pytest.raises(WrongLoopError):
            echo_graph(saver).invoke({"words": ["a"]}, config())
        assert (await echo_graph(saver).ainvoke({"words": ["a"]}, config()))["words"] == ["a", "A"]


@pytest.mark.parametrize("name", SYNC_CALLS)
def test_a_synchronous_call_before_opening_and_after_closing(name: str) -> None:
    saver = memory_saver()
    with pytest.raises(WrongLoopError, match="not open"):
        SYNC_CALLS[name](saver)
    with saver:
        pass
    with pytest.raises(WrongLoopError, match="not open"):
        SYNC_CALLS[name](saver)


@pytest.mark.parametrize("name", ASYNC_CALLS)
async def test_an_asynchronous_call_before_opening_and_after_closing(name: str) -> None:
    saver = memory_saver()
    with pytest.raises(WrongLoopError, match="not open"):
        await ASYNC_CALLS[name](saver)
    async with saver:
        pass
    with pytest.raises(WrongLoopError, match="not open"):
        await ASYNC_CALLS[name](saver)


def test_setup_before_opening() -> None:
    with pytest.raises(WrongLoopError, match="not open"):
        memory_saver().setup()


async def test_a_listing_that_outlives_the_saver_ends_with_the_error() -> None:
    saver = memory_saver()
    async with saver:
        await echo_graph(saver).ainvoke({"words": ["a"]}, config())
        pages = saver.alist(config())
        await anext(pages)
    with pytest.raises(WrongLoopError, match="not open"):
        await anext(pages)


def test_a_loop_that_ended_without_closing_the_saver() -> None:
    saver = memory_saver()
    with asyncio.Runner() as first:
        first.run(saver.__aenter__())
        with pytest.raises(WrongLoopError, match="does not run any more"):
            saver.get_tuple(config())
    with asyncio.Runner() as second, pytest.raises(WrongLoopError, match="does not run any more"):
        second.run(saver.aget_tuple(config()))
    with saver:
        assert saver.get_tuple(config()) is None


@pytest.mark.parametrize("wait", [False, True], ids=["from a thread", "from another loop"])
def test_a_call_whose_loop_ends_does_not_wait_for_ever(wait: bool) -> None:
    """The loop stops without giving its tasks the chance to end, as a crashed framework may leave it."""
    saver = memory_saver()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(saver.__aenter__(), loop).result()
    started = threading.Event()

    async def never_ends(_: Engine) -> None:
        started.set()
        await asyncio.Event().wait()

    async def waits() -> None:
        await saver._bridge.arun(never_ends)

    def call() -> None:
        asyncio.run(waits()) if wait else saver._bridge.run(never_ends)

    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(call)
        assert started.wait(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        left = asyncio.all_tasks(loop)
        loop.close()
        with pytest.raises(WrongLoopError, match="closed while a call waited"):
            running.result(10)
    for task in left:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("wait", [False, True], ids=["from a thread", "from another loop"])
def test_a_call_under_way_when_the_saver_is_closed(wait: bool) -> None:
    saver = memory_saver()
    started = threading.Event()

    async def never_ends(_: Engine) -> None:
        started.set()
        await asyncio.Event().wait()

    async def waits() -> None:
        await saver._bridge.arun(never_ends)

    def call() -> None:
        asyncio.run(waits()) if wait else saver._bridge.run(never_ends)

    with ThreadPoolExecutor(1) as executor:
        with saver:
            running = executor.submit(call)
            assert started.wait(10)
        with pytest.raises(WrongLoopError, match="closed while a call waited"):
            running.result(10)


def test_a_saver_moves_to_a_new_loop_when_it_is_opened_there() -> None:
    saver = memory_saver()

    async def run(word: str) -> Any:
        async with saver:
            return (await echo_graph(saver).ainvoke({"words": [word]}, config()))["words"]

    with asyncio.Runner() as first:
        assert first.run(run("a")) == ["a", "A"]
    with asyncio.Runner() as second:
        assert second.run(run("b")) == ["a", "A", "b", "B"]


async def test_an_opening_under_way_refuses_another() -> None:
    opened = Opened()
    saver = opened.saver()
    outcomes = await asyncio.gather(saver.__aenter__(), saver.__aenter__(), return_exceptions=True)
    assert [type(each) for each in outcomes] == [EngineSaver, WrongLoopError]
    await saver.__aexit__(None, None, None)
    assert (opened.openings, opened.closings) == (1, 1)


async def test_a_failed_opening_can_be_repeated() -> None:
    opened = Opened()
    saver = opened.saver(fail_with=OSError("away"))
    with pytest.raises(OSError, match="away"):
        async with saver:
            pass
    async with saver:
        assert await saver.aget_tuple(config()) is None
    assert opened.closings == 1


def test_construction_needs_no_loop() -> None:
    DeltaSaver.from_conn_string("postgresql://nobody@nowhere.invalid/none")
