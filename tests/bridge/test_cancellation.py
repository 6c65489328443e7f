"""Calls cancelled or interrupted while the database is busy: saver, pool and thread stay usable."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import psycopg
import pytest
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint

from deltastore import DeltaSaver
from deltastore.langgraph.saver import EngineSaver
from tests.bridge.savers import config, echo_graph, head
from tests.support.processes import eventually

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class HeldThread:
    """The thread "t", locked as an edit locks it, so that saves of it wait."""

    def __init__(self, holder: psycopg.Connection, watcher: psycopg.Connection) -> None:
        self._watcher = watcher
        holder.execute("SELECT FROM deltastore.delta_threads WHERE thread_id = 't' FOR UPDATE")

    def _waiting(self) -> int:
        [count] = self._watcher.execute(WAITING).fetchone() or [0]
        return int(count)

    def wait_for_waiting(self, count: int = 1) -> None:
        assert eventually(lambda: self._waiting() >= count), "no call waits for the lock"

    def wait_for_nobody(self) -> None:
        """A cancelled statement has ended on the server."""
        assert eventually(lambda: self._waiting() == 0), "a call still waits for the lock"


@contextmanager
def held(dsn: str) -> Iterator[HeldThread]:
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as watcher:
        yield HeldThread(holder, watcher)


def put_arguments(saver: EngineSaver) -> tuple[Any, ...]:
    """Arguments of a `put` that follows the head of thread "t"."""
    checkpoint = create_checkpoint(empty_checkpoint(), None, 1)
    checkpoint["channel_values"] = {"words": ["new"]}
    checkpoint["channel_versions"] = {"words": 99}
    return head(saver).config, checkpoint, {"source": "loop", "step": 1, "parents": {}}, {"words": 99}


CALLS: dict[str, Callable[[EngineSaver, tuple[Any, ...]], Any]] = {
    "aput": lambda saver, arguments: saver.aput(*arguments),
    "aput_writes": lambda saver, arguments: saver.aput_writes(arguments[0], [("words", ["x"])], "task"),
    "aprune": lambda saver, arguments: saver.aprune(["t"]),
    "adelete_thread": lambda saver, arguments: saver.adelete_thread("t"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("own_loop", [True, False], ids=["home loop", "another loop"])
async def test_a_cancelled_call_changes_nothing_and_frees_its_connection(
    database_dsn: str, name: str, own_loop: bool
) -> None:
    saver: Any = DeltaSaver.from_conn_string(database_dsn, max_size=1)
    async with saver if own_loop else Plain(saver):
        await echo_graph(saver).ainvoke({"words": ["a"]}, config())
        before = await saver.aget_tuple(config())
        arguments = await asyncio.to_thread(put_arguments, saver)
        with held(database_dsn) as thread:
            call = asyncio.ensure_future(CALLS[name](saver, arguments))
            await asyncio.to_thread(thread.wait_for_waiting)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await asyncio.to_thread(thread.wait_for_nobody)
        assert await asyncio.wait_for(saver.aget_tuple(config()), 10) == before
        await CALLS[name](saver, arguments)


class Plain:
    """`with` as `async with`, for a test of both."""

    def __init__(self, saver: EngineSaver) -> None:
        self._saver = saver

    async def __aenter__(self) -> None:
        self._saver.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self._saver.__exit__(None, None, None)


async def test_one_of_many_calls_is_cancelled(database_dsn: str) -> None:
    """The other calls that wait on the same pool go on."""
    async with DeltaSaver.from_conn_string(database_dsn, max_size=2) as saver:
        await echo_graph(saver).ainvoke({"words": ["a"]}, config())
        target = (await asyncio.to_thread(head, saver)).config
        with held(database_dsn) as thread:
            calls = [
                asyncio.ensure_future(saver.aput_writes(target, [("words", [str(number)])], f"task {number}"))
                for number in range(8)
            ]
            await asyncio.to_thread(thread.wait_for_waiting, 2)
            for each in calls[::2]:
                each.cancel()
            await asyncio.wait(calls[::2])
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in outcomes] == [asyncio.CancelledError, type(None)] * 4
        found = await saver.aget_tuple(config())
        assert found is not None
        assert [value for _, _, value in found.pending_writes or []] == [["1"], ["3"], ["5"], ["7"]]


async def test_a_cancelled_run_can_go_on(database_dsn: str) -> None:
    """Whether the save under way is stored is up to LangGraph; what is there goes on to the right end."""
    async with DeltaSaver.from_conn_string(database_dsn, max_size=2) as saver:
        graph = echo_graph(saver)
        await graph.ainvoke({"words": ["a"]}, config())
        with held(database_dsn) as thread:
            run = asyncio.ensure_future(graph.ainvoke({"words": ["b"]}, config(), durability="sync"))
            await asyncio.to_thread(thread.wait_for_waiting)
            run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        found = (await graph.ainvoke(None, config()))["words"]
        assert found in (["a", "A"], ["a", "A", "b", "B"])
        assert (await graph.ainvoke({"words": ["c"]}, config()))["words"] == [*found, "c", "C"]


def test_ctrl_c_in_a_synchronous_call(database_dsn: str) -> None:
    assert threading.current_thread() is threading.main_thread()
    with DeltaSaver.from_conn_string(database_dsn, max_size=1) as saver:
        graph = echo_graph(saver)
        graph.invoke({"words": ["a"]}, config())
        arguments = put_arguments(saver)
        before = head(saver)
        with held(database_dsn) as thread:

            def interrupt() -> None:
                thread.wait_for_waiting()
                os.kill(os.getpid(), signal.SIGINT)

            interrupter = threading.Thread(target=interrupt)
            interrupter.start()
            with pytest.raises(KeyboardInterrupt):
                saver.put(*arguments)
            interrupter.join()
            thread.wait_for_nobody()
        assert head(saver) == before
        saver.put(*arguments)
        assert head(saver).checkpoint["channel_values"] == {"words": ["new"]}


def test_ctrl_c_while_opening_leaves_nothing(database_dsn: str) -> None:
    """Opening waits for a connection that never answers; after the interrupt the saver can be opened."""
    with _SilentServer() as silent:
        saver = DeltaSaver.from_conn_string(silent.dsn, timeout_seconds=30, connect_timeout_seconds=30)

        def interrupt() -> None:
            assert silent.connected.wait(10)
            os.kill(os.getpid(), signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt), saver:
            pass
        interrupter.join()
    assert not [thread for thread in threading.enumerate() if thread.name == "deltastore"]


class _SilentServer:
    """Accepts connections and says nothing."""

    def __enter__(self) -> Self:
        self.connected = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.dsn = f"postgresql://user@127.0.0.1:{self._socket.getsockname()[1]}/none?sslmode=disable"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self) -> None:
        peer, _ = self._socket.accept()
        with peer:
            while peer.recv(1000):
                self.connected.set()

    def __exit__(self, *error: object) -> None:
        self._thread.join(10)
        self._socket.close()
