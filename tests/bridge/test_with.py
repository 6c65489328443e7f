"""A saver opened by a plain `with`: synchronous programs, worker threads, notebooks, several event loops in a row."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from deltastore import DeltaSaver, WrongLoopError
from tests.bridge.savers import Opened, config, echo_graph, memory_saver


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "deltastore"]


def in_another_thread(function, *arguments):
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function, *arguments).result(20)


def test_a_script_invokes_from_its_main_thread(database_dsn: str) -> None:
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        graph = echo_graph(saver)
        assert graph.invoke({"words": ["a"]}, config())["words"] == ["a", "A"]
        assert graph.invoke({"words": ["b"]}, config())["words"] == ["a", "A", "b", "B"]
        assert [len(each.values["words"]) for each in graph.get_state_history(config())] == [4, 3, 2, 2, 1, 0]
    assert not own_threads()


def test_worker_threads_share_one_saver(database_dsn: str) -> None:
    with DeltaSaver.from_conn_string(database_dsn, max_size=4) as saver, ThreadPoolExecutor(8) as executor:
        graph = echo_graph(saver)

        def run(number: int) -> Any:
            for word in ("a", "b"):
                graph.invoke({"words": [f"{word}{number}"]}, config(f"t{number}"))
            return graph.get_state(config(f"t{number}")).values["words"]

        for number, words in enumerate(executor.map(run, range(24))):
            assert words == [f"a{number}", f"A{number}", f"b{number}", f"B{number}"]


async def test_a_notebook_calls_both_forms_in_its_running_loop(database_dsn: str) -> None:
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        graph = echo_graph(saver)
        graph.invoke({"words": ["a"]}, config())
        await graph.ainvoke({"words": ["b"]}, config())
        assert (await graph.aget_state(config())).values["words"] == ["a", "A", "b", "B"]
        assert [each async for each in saver.alist(config())] == list(saver.list(config()))


def test_two_event_loops_in_a_row_use_one_saver(database_dsn: str) -> None:
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        graph = echo_graph(saver)

        def run(word: str) -> None:
            asyncio.run(graph.ainvoke({"words": [word]}, config()))

        in_another_thread(run, "a")
        in_another_thread(run, "b")
        assert graph.get_state(config()).values["words"] == ["a", "A", "b", "B"]


def test_a_saver_can_be_opened_again_after_it_was_closed() -> None:
    opened = Opened()
    saver = opened.saver()
    for count in (1, 2):
        with saver:
            echo_graph(saver).invoke({"words": ["a"]}, config())
            assert len(own_threads()) == 1
        assert (opened.openings, opened.closings) == (count, count)
        assert not own_threads()


def test_leaving_by_an_error_closes() -> None:
    opened = Opened()
    with pytest.raises(ZeroDivisionError), opened.saver():
        raise ZeroDivisionError
    assert opened.closings == 1
    assert not own_threads()


def test_a_failed_opening_leaves_nothing_and_can_be_repeated() -> None:
    opened = Opened()
    saver = opened.saver(fail_with=OSError("away"))
    with pytest.raises(OSError, match="away"), saver:
        pass
    assert not own_threads()
    with pytest.raises(WrongLoopError, match="not open"):
        saver.get_tuple(config())
    with saver:
        assert saver.get_tuple(config()) is None
    assert opened.closings == 1


def test_a_second_opening_is_refused_and_the_first_goes_on() -> None:
    saver = memory_saver()
    with saver:
        with pytest.raises(WrongLoopError, match="open already"), saver:
            pass
        assert saver.get_tuple(config()) is None


async def test_leaving_by_the_other_form_is_refused() -> None:
    opened = Opened()
    saver = opened.saver()
    with saver:
        with pytest.raises(WrongLoopError, match="plain 'with'"):
            await saver.__aexit__(None, None, None)
        assert await saver.aget_tuple(config()) is None
    async with saver:
        with pytest.raises(WrongLoopError, match="async with"):
            saver.__exit__(None, None, None)
        assert await saver.aget_tuple(config()) is None
    assert (opened.openings, opened.closings) == (2, 2)
    assert not own_threads()
