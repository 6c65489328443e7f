"""One event loop for the engine, reached from any thread or loop.

The engine's connections belong to one event loop, the *home*. Where it comes from depends on how the saver is opened:

- `async with`: the loop that runs then. Calls from it run as they are; calls from other threads are handed over to it;
- over a caller's pool: the pool's loop. Such a saver is open from the start, and leaving it closes nothing;
- plain `with`: a loop of our own in a thread of our own. So synchronous programs need no loop, and an asynchronous call
  from any loop (a notebook's, one of several `asyncio.run` in a row) works too: it waits for the home loop's answer.

A synchronous call made *on* the home loop would wait for itself; it gets an error instead of a deadlock. So does every
call on a saver that isn't open, whose loop has ended, or that is closed while the call waits.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

from deltastore.engine import Engine
from deltastore.errors import WrongLoopError

T = TypeVar("T")
Call = Callable[[Engine], Coroutine[Any, Any, T]]
Close = Callable[[], Awaitable[None]]
Open = Callable[[], Awaitable[tuple[Engine, Close]]]
"""Opens what the engine needs, on the loop that it is awaited on; returns the engine and how to close it."""

LOOK_SECONDS = 1.0
"""How often a waiting thread looks whether the home loop is still there."""


class Bridge:
    """Opens an engine on one loop and runs its coroutines there. Shared by all shallow copies of a saver."""

    def __init__(self, open_engine: Open) -> None:
        self._open_engine = open_engine
        self._engine: Engine | None = None
        self._close: Close | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_adopted = False
        self._opening = threading.Lock()

    def adopt(self, engine: Engine, home: asyncio.AbstractEventLoop) -> None:
        """Opens with an engine that belongs to a loop of the caller's; nothing will be closed."""
        self._engine, self._home, self._is_adopted = engine, home, True

    @property
    def engine(self) -> Engine:
        """The engine. Raises `WrongLoopError` if the saver is not open."""
        if self._engine is None:
            raise WrongLoopError("the saver is not open", hint="use it inside of 'async with saver:' or 'with saver:'")
        return self._engine

    def is_home(self) -> bool:
        """Whether this thread runs the home loop."""
        return self._home is not None and _running_loop() is self._home

    async def open(self) -> None:
        """Opens on the running loop."""
        if self._is_adopted:
            return
        self._take(asyncio.get_running_loop())
        try:
            self._engine, self._close = await self._open_engine()
        except BaseException:
            self._home = None
            raise

    def open_in_thread(self) -> None:
        """Opens on a loop of our own, which runs in a thread until `close_in_thread`."""
        if self._is_adopted:
            return
        home = asyncio.new_event_loop()
        try:
            self._take(home)
        except WrongLoopError:
            home.close()
            raise
        self._thread = _start(home)
        try:
            opened = asyncio.run_coroutine_threadsafe(_as_coroutine(self._open_engine()), home)
            self._engine, self._close = opened.result()
        except BaseException:
            self._end_thread()
            raise

    async def close(self) -> None:
        """Closes what `open` opened. Harmless when it isn't open."""
        if self._is_adopted or self._home is None:
            return
        if self._thread is not None:
            raise WrongLoopError("the saver was opened by a plain 'with'", hint="leave it the same way")
        close, self._engine, self._close = self._close, None, None
        try:
            if close is not None:
                await close()
        finally:
            self._home = None

    def close_in_thread(self) -> None:
        """Closes what `open_in_thread` opened. Harmless when it isn't open."""
        if self._is_adopted or self._home is None:
            return
        if self._thread is None:
            raise WrongLoopError("the saver was opened by 'async with'", hint="leave it the same way")
        close, self._engine, self._close = self._close, None, None
        try:
            if close is not None:
                asyncio.run_coroutine_threadsafe(_as_coroutine(close()), self._home).result()
        finally:
            self._end_thread()

    def run(self, call: Call[T]) -> T:
        """Runs a call on the home loop and waits for it in this thread.

        Raises:
            WrongLoopError: This thread runs the home loop, the saver is not open, or its loop has ended.
        """
        engine, home = self.engine, self._running_home()
        if self.is_home():
            raise WrongLoopError(
                "a synchronous call was made on the event loop that the saver belongs to, and would wait for itself",
                hint="await the method with an 'a' in front (graph.ainvoke, saver.aget_tuple), "
                "or open the saver with a plain 'with'",
            )
        future = _submit(call(engine), home)
        try:
            while not concurrent.futures.wait([future], LOOK_SECONDS).done:
                if home.is_closed():
                    raise _closed()
            return future.result()
        except concurrent.futures.CancelledError:
            raise _closed() from None
        finally:
            future.cancel()

    async def arun(self, call: Call[T]) -> T:
        """Runs a call on the home loop, from that loop or from any other.

        Raises:
            WrongLoopError: The saver is not open, or its loop has ended.
        """
        engine, home = self.engine, self._running_home()
        if asyncio.get_running_loop() is home:
            return await call(engine)
        answer = asyncio.wrap_future(_submit(call(engine), home))
        try:
            while not (await asyncio.wait([answer], timeout=LOOK_SECONDS))[0]:
                if home.is_closed():
                    raise _closed()
        finally:
            answer.cancel()
        if answer.cancelled():
            raise _closed()
        return answer.result()

    def _take(self, home: asyncio.AbstractEventLoop) -> None:
        """Makes a loop the home, unless there is one that can still be used."""
        with self._opening:
            if self._home is not None and not self._home.is_closed():
                raise WrongLoopError("the saver is open already", hint="open it once, and share the object")
            self._home, self._engine, self._close = home, None, None

    def _running_home(self) -> asyncio.AbstractEventLoop:
        home = self._home
        if home is None or not home.is_running():
            raise WrongLoopError(
                "the event loop that the saver was opened on does not run any more",
                hint="open the saver in the loop that uses it, or with a plain 'with' for use from several loops",
            )
        return home

    def _end_thread(self) -> None:
        home, thread = self._home, self._thread
        self._home = self._thread = None
        if thread is not None and home is not None:
            home.call_soon_threadsafe(home.stop)
            if thread is not threading.current_thread():
                thread.join()


def _submit(coroutine: Coroutine[Any, Any, T], home: asyncio.AbstractEventLoop) -> concurrent.futures.Future[T]:
    try:
        return asyncio.run_coroutine_threadsafe(coroutine, home)
    except RuntimeError:  # the loop was closed this moment
        coroutine.close()
        raise _closed() from None


def _closed() -> WrongLoopError:
    return WrongLoopError("the saver was closed while a call waited", hint="close it when nothing uses it any more")


def start_loop(owner: object) -> asyncio.AbstractEventLoop:
    """A loop in a thread of its own, which ends when `owner` is collected."""
    loop = asyncio.new_event_loop()
    _start(loop)
    weakref.finalize(owner, loop.call_soon_threadsafe, loop.stop)
    return loop


def _start(loop: asyncio.AbstractEventLoop) -> threading.Thread:
    """Runs a loop in a thread; returns when it runs, since a call may come at once."""
    is_running = threading.Event()
    loop.call_soon(is_running.set)
    thread = threading.Thread(target=_run_loop, args=(loop,), name="deltastore", daemon=True)
    thread.start()
    is_running.wait()
    return thread


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


class Done:
    """What a finished call returns, so that it can be awaited all the same."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()
