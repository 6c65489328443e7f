"""The in-memory form: open at once, in every way of calling, and gone when nobody holds it."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

from deltastore import DeltaSaver
from tests.bridge.savers import config, echo_graph
from tests.support.processes import eventually


def own_threads() -> int:
    return sum(thread.name == "deltastore" for thread in threading.enumerate())


def test_synchronous_without_and_with_entering() -> None:
    saver = DeltaSaver.in_memory()
    saver.setup()
    graph = echo_graph(saver)
    graph.invoke({"words": ["a"]}, config())
    with saver:
        graph.invoke({"words": ["b"]}, config())
    with saver:
        assert graph.get_state(config()).values["words"] == ["a", "A", "b", "B"]


async def test_asynchronous_without_and_with_entering() -> None:
    saver = DeltaSaver.in_memory()
    await saver.setup()
    graph = echo_graph(saver)
    await graph.ainvoke({"words": ["a"]}, config())
    async with saver:
        await graph.ainvoke({"words": ["b"]}, config())
    graph.invoke({"words": ["c"]}, config())
    assert (await graph.aget_state(config())).values["words"] == ["a", "A", "b", "B", "c", "C"]


def test_from_threads_and_from_loops_one_after_the_other() -> None:
    saver = DeltaSaver.in_memory()
    graph = echo_graph(saver)
    with ThreadPoolExecutor(4) as executor:
        for number, result in enumerate(
            executor.map(lambda number: graph.invoke({"words": [f"a{number}"]}, config(f"t{number}")), range(16))
        ):
            assert result["words"] == [f"a{number}", f"A{number}"]
        for word in ("a", "b"):
            executor.submit(asyncio.run, graph.ainvoke({"words": [word]}, config())).result(20)
    assert graph.get_state(config()).values["words"] == ["a", "A", "b", "B"]


def test_two_savers_share_nothing() -> None:
    first, second = DeltaSaver.in_memory(), DeltaSaver.in_memory()
    echo_graph(first).invoke({"words": ["a"]}, config())
    assert second.get_tuple(config()) is None


def test_threads_of_forgotten_savers_end() -> None:
    gc.collect()
    assert eventually(lambda: own_threads() == 0)
    for number in range(50):
        saver = DeltaSaver.in_memory()
        graph = echo_graph(saver)
        if number % 10 == 0:
            graph.invoke({"words": ["a"]}, config())
        del saver, graph
    gc.collect()
    assert eventually(lambda: own_threads() == 0)


async def test_setup_that_is_not_awaited_leaves_no_warning() -> None:
    saver = DeltaSaver.in_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saver.setup()
        gc.collect()
