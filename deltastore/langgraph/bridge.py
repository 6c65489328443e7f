"""One event loop for the engine, reached from any thread or loop.

The engine's connections belong to one event loop, the *home*. Where it comes from depends on how the saver is opened:

- `async with`: the loop that runs then. Calls from it run as they are; calls from other threads are handed over to it;
- over a caller's pool: the pool's loop. Such a saver is open from the start, and leaving it closes nothing;
- plain `with`: a loop of our own in a thread of our own. So synchronous programs need no loop, and an asynchronous call
  from any loop (a notebook's, one of several `asyncio.run` in a row) works too: it waits for the home loop's answer.

A synchronous call made *on* the home loop would wait for itself; it gets an error instead of a deadlock. So does every
call on a saver that isn't open, or whose loop has ended.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from deltastore.engine import Engine
from deltastore.errors import WrongLoopError

T = TypeVar("T")
Close = Callable[[], Awaitable[None]]
Open = Callable[[], Awaitable[tuple[Engine, Close]]]
"""Opens what the engine needs, on the loop that it is awaited on; returns the engine and how to close it."""


class Bridge:
    """Opens an engine on one loop and runs its coroutines there. Shared by all shallow copies of a saver."""

    def __init__(self, open_engine: Open) -> None:
        self._open_engine = open_engine
        self._engine: Engine | None = None
        self._close: Close | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_adopted = False

    def adopt(self, engine: Engine, home: asyncio.AbstractEventLoop) -> None:
        """Opens with an engine that belongs to a loop of the caller's; nothing will be closed."""
        self._engine, self._home, self._is_adopted = engine, home, True

    @property
    def engine(self) -> Engine:
        """The engine. Raises `WrongLoopError` if the saver is not open."""
        if self._engine is None:
            raise WrongLoopError(
                "the saver is not open", hint="use it inside of 'async with saver:' or 'with saver:'"
            )
        return self._engine

    @property
    def has_own_loop(self) -> bool:
        """Whether the home loop is our own."""
        return self._thread is not None

    async def open(self) -> None:
        """Opens on the running loop."""
        if self._is_adopted:
            return
        self._refuse_second_opening()
        self._home = asyncio.get_running_loop()
        self._engine, self._close = await self._open_engine()

    def open_in_thread(self) -> None:
        """Opens on a loop of our own, which runs in a thread until `close_in_thread`."""
        if self._is_adopted:
            return
        self._refuse_second_opening()
        home, self._thread = _start_loop()
        self._home = home
        try:
            opened = asyncio.run_coroutine_threadsafe(_as_coroutine(self._open_engine()), home)
            self._engine, self._close = opened.result()
        except BaseException:
            self._end_thread()
            raise

    async def close(self) -> None:
        """Closes what `open` opened. Harmless when it isn't open."""
        if self._is_adopted:
            return
        close, self._engine, self._close = self._close, None, None
        if close is not None:
            await close()

    def close_in_thread(self) -> None:
        """Closes what `open_in_thread` opened. Harmless when it isn't open."""
        if self._is_adopted:
            return
        close, self._engine, self._close = self._close, None, None
        try:
            if close is not None and self._home is not None:
                asyncio.run_coroutine_threadsafe(_as_coroutine(close()), self._home).result()
        finally:
            self._end_thread()

    def run(self, call: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Runs a call on the home loop and waits for it in this thread.

        Raises:
            WrongLoopError: This thread runs the home loop, the saver is not open, or its loop has ended.
        """
        engine, home = self.engine, self._running_home()
        if _running_loop() is home:
            raise WrongLoopError(
                "a synchronous call was made on the event loop that the saver belongs to, and would wait for itself",
                hint="await the method with an 'a' in front (graph.ainvoke, saver.aget_tuple), "
                "or open the saver with a plain 'with'",
            )
        future = asyncio.run_coroutine_threadsafe(call(engine), home)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def arun(self, call: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Runs a call on the home loop, from that loop or from any other.

        Raises:
            WrongLoopError: The saver is not open, or its loop has ended.
        """
        engine = self.engine
        if asyncio.get_running_loop() is self._home:
            return await call(engine)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(engine), self._running_home()))

    def _running_home(self) -> asyncio.AbstractEventLoop:
        home = self._home
        if home is None or not home.is_running():
            raise WrongLoopError(
                "the event loop that the saver was opened on does not run any more",
                hint="open the saver in the loop that uses it, or with a plain 'with' for use from several loops",
            )
        return home

    def _refuse_second_opening(self) -> None:
        if self._engine is not None:
            raise WrongLoopError("the saver is open already", hint="open it once, and share the object")

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and self._home is not None:
            self._home.call_soon_threadsafe(self._home.stop)
            if thread is not threading.current_thread():
                thread.join()


def start_loop(owner: object) -> asyncio.AbstractEventLoop:
    """A loop in a thread of its own, which ends when `owner` is collected."""
    loop, _ = _start_loop()
    weakref.finalize(owner, loop.call_soon_threadsafe, loop.stop)
    return loop


def _start_loop() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_run_loop, args=(loop,), name="deltastore", daemon=True)
    thread.start()
    return loop, thread


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        remaining = asyncio.all_tasks(loop)
        for task in remaining:
            task.cancel()
        if remaining:
            loop.run_until_complete(asyncio.gather(*remaining, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable
