"""Calls on connections of the pool, tried again on another connection where one was lost.

A call takes a connection, runs its statements and gives it back. A call whose connection turns out to be dead runs
again on another one, until `timeout_seconds` have passed since it began; `failures.py` says why that is safe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import asyncpg

from deltastore.errors import DatabaseError, DatabaseUnavailableError
from deltastore.observing import POOL_SECONDS, RETRIES, Observer, extra
from deltastore.postgres.failures import DRIVER_ERRORS, is_collision, is_lost_connection, translate
from deltastore.postgres.migrations import Migrator
from deltastore.postgres.pool import Pool, check_seconds
from deltastore.postgres.queries import AnyConnection

_LOG = logging.getLogger("deltastore.postgres")
_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 0.5

_Answer = TypeVar("_Answer")


class Attempts:
    """Runs calls on connections of a pool.

    Args:
        pool: Where connections come from.
        schema: The schema, for errors.
        migrator: Checks the schema's version before the first call.
        timeout_seconds: How long one call may wait for a usable connection, retries included, before it fails.
        observer: Is told of waits for connections and of retries.
        address: What the pool connects to, for errors.

    Raises:
        InvalidConfigError: The timeout is no time.
    """

    def __init__(
        self,
        pool: Pool,
        schema: str,
        *,
        migrator: Migrator,
        timeout_seconds: float,
        observer: Observer | None,
        address: str,
    ) -> None:
        check_seconds("timeout_seconds", timeout_seconds)
        self._pool = pool
        self._schema = schema
        self._migrator = migrator
        self._timeout_seconds = timeout_seconds
        self._observer = observer
        self._address = address
        self._before = f"{address}: " if address else ""
        self._version_checked = False

    async def run(self, verb: str, operation: Callable[[AnyConnection], Awaitable[_Answer]]) -> _Answer:
        """One call. Raises `DatabaseError`."""
        return await self.retry(verb, lambda deadline: self._attempt(operation, deadline))

    async def run_once(self, operation: Callable[[AnyConnection], Awaitable[_Answer]]) -> _Answer:
        """One call without a second attempt. Raises the driver's errors, and `DatabaseError` if no connection came."""
        return await self._attempt(operation, asyncio.get_running_loop().time() + self._timeout_seconds)

    async def _attempt(self, operation: Callable[[AnyConnection], Awaitable[_Answer]], deadline: float) -> _Answer:
        async with self.lend(deadline) as connection:
            await self.check_version(connection)
            return await operation(connection)

    async def set_up(self) -> None:
        """Brings the schema up to date. Raises `DatabaseError`."""

        async def attempt(deadline: float) -> None:
            async with self.lend(deadline) as connection:
                await self._migrator.up(connection)

        await self.retry("setup", attempt)
        self._version_checked = True

    async def check_version(self, connection: AnyConnection) -> None:
        """Refuses a schema of another version. Looks at it once."""
        if not self._version_checked:
            await self._migrator.check(connection)
            self._version_checked = True

    async def retry(self, verb: str, attempt: Callable[[float], Awaitable[_Answer]]) -> _Answer:
        """Runs `attempt` until it succeeds, fails for a reason that trying again does not mend, or the time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_seconds
        failures: list[Exception] = []
        while True:
            try:
                answer = await attempt(deadline)
            except DRIVER_ERRORS as error:
                failures.append(error)
                pause_seconds = min(_PAUSE_SECONDS * (len(failures) - 1), _PAUSE_SECONDS_MAX)
                if not self._may_retry(error) or loop.time() + pause_seconds >= deadline:
                    raise self.translated(error) from error
                if self._observer is not None:
                    self._observer.count(RETRIES, 1, {"operation": verb, "error": type(error).__name__})
                await asyncio.sleep(pause_seconds)
            else:
                if failures:
                    attempt_number = len(failures) + 1
                    _LOG.warning(
                        "%s succeeded at attempt %d, after %r", verb, attempt_number, failures[0], extra=extra()
                    )
                return answer

    def translated(self, error: Exception) -> DatabaseError:
        """Our error for one of `DRIVER_ERRORS`, with schema and address; raise it `from` the original."""
        return translate(error, schema=self._schema, address=self._address)

    def _may_retry(self, error: Exception) -> bool:
        return (is_lost_connection(error) or is_collision(error)) and not self._pool.is_closing()

    @asynccontextmanager
    async def lend(self, deadline: float) -> AsyncIterator[AnyConnection]:
        """A connection, until the block ends; a lost one is not given back to the pool."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        timeout_seconds = max(deadline - started, 0.001)
        try:
            connection = await self._pool.acquire(timeout=timeout_seconds)
        except TimeoutError as error:
            raise DatabaseUnavailableError(
                "no usable connection in time",
                detail=f"{self._before}waited {timeout_seconds:.1f} s; the pool has {self._pool.get_size()}"
                f" connections, {self._pool.get_idle_size()} of them idle, {self._pool.get_max_size()} allowed",
                hint="allow more connections, or see why calls hold them for so long",
            ) from error
        if self._observer is not None:
            self._observer.measure(POOL_SECONDS, loop.time() - started, {})
        try:
            yield connection
        except DRIVER_ERRORS as error:
            if is_lost_connection(error):
                with suppress(asyncpg.InterfaceError):  # it noticed by itself
                    connection.terminate()
            raise
        finally:
            await self._pool.release(connection)
