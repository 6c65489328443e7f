"""The `Storage` protocol on PostgreSQL.

Every call takes a connection from the pool, runs its statements and gives it back; there is no lock around the storage.
A call whose connection is lost runs again on another one (`attempts.py`). `edit` retries only until it holds the
thread.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import asyncpg

from deltastore.core.edits import LockBounds, ThreadOutline
from deltastore.core.model import (
    Chains,
    Known,
    ListEntry,
    ListQuery,
    Refusal,
    Save,
    Saved,
    SaveWrites,
    SegmentRow,
    ThreadRef,
)
from deltastore.core.overview import NamespaceEntry, ThreadEntry, ThreadsQuery
from deltastore.core.statistics import Counts, Day
from deltastore.errors import DatabaseUnavailableError, ThreadBusyError
from deltastore.observing import Observer, extra
from deltastore.postgres import rows
from deltastore.postgres.attempts import Attempts
from deltastore.postgres.edit import PostgresEdit, PostgresView
from deltastore.postgres.failures import DRIVER_ERRORS
from deltastore.postgres.grouping import Group
from deltastore.postgres.migrations import Migrator
from deltastore.postgres.naming import quote_schema
from deltastore.postgres.overview import Overview
from deltastore.postgres.pool import Pool, PoolOptions, address, open_pool
from deltastore.postgres.queries import AnyConnection, Queries, skipping_locked, together
from deltastore.postgres.repair import PostgresRepair, RepairQueries
from deltastore.postgres.staging import PostgresStaging, StagingQueries
from deltastore.postgres.statistics import StatisticsQueries, counts
from deltastore.postgres.survey import PostgresSurvey, SurveyQueries

_LOG = logging.getLogger("deltastore.postgres")
_Save = TypeVar("_Save", Save, SaveWrites)


class PostgresStorage:
    """Keeps rows in one schema of a PostgreSQL database.

    Args:
        pool: Where connections come from.
        schema: Name of the schema, unquoted.
        owns_pool: Whether `close` closes the pool.
        create_schema: Whether `setup` may create the schema itself.
        timeout_seconds: How long one call may wait for a usable connection, retries included, before it fails.
        observer: Is told of waits for connections and of retries.
        address: What the pool connects to, for errors: host, port, database.

    Raises:
        InvalidConfigError: The schema's name cannot be used, or the timeout is no time.
    """

    def __init__(
        self,
        pool: Pool,
        schema: str = "deltastore",
        *,
        owns_pool: bool = False,
        create_schema: bool = True,
        timeout_seconds: float = 10.0,
        observer: Observer | None = None,
        address: str = "",
    ) -> None:
        self._pool = pool
        self._owns_pool = owns_pool
        self._queries = Queries(schema)
        self._survey_queries = SurveyQueries(schema)
        self._overview = Overview(schema)
        self._repair_queries = RepairQueries(schema)
        self._statistics_queries = StatisticsQueries(schema)
        self._staging_queries = StagingQueries(schema)
        migrator = Migrator(schema, create_schema=create_schema)
        self._attempts = Attempts(
            pool, schema, migrator=migrator, timeout_seconds=timeout_seconds, observer=observer, address=address
        )
        save, save_writes = map(skipping_locked, (self._queries.text["save"], self._queries.text["save_writes"]))
        self._saves = Group(self._save, partial(self._together, save, rows.save_arguments))
        self._write_saves = Group(self._save_writes, partial(self._together, save_writes, rows.writes_arguments))

    @classmethod
    async def open(
        cls,
        dsn: str,
        schema: str = "deltastore",
        options: PoolOptions | None = None,
        *,
        create_schema: bool = True,
        observer: Observer | None = None,
    ) -> PostgresStorage:
        """Opens a pool of its own, which `close` closes. Raises as `open_pool` does."""
        options = options or PoolOptions()
        quote_schema(schema)
        pool = await open_pool(dsn, options)
        return cls(
            pool,
            schema,
            owns_pool=True,
            create_schema=create_schema,
            timeout_seconds=options.timeout_seconds,
            observer=observer,
            address=address(dsn),
        )

    async def setup(self) -> None:
        """Creates or migrates the schema; does nothing if it is up to date. Safe from many processes at once."""
        await self._attempts.set_up()

    async def close(self) -> None:
        """Closes the pool if it is the storage's own. Calling it twice is harmless."""
        if self._owns_pool:
            await self._pool.close()

    async def save(self, save: Save) -> Saved | Refusal:
        """Stores one checkpoint with its segments and metadata, in one statement."""
        return _told("save", await self._saves.save(save))

    async def save_writes(self, save: SaveWrites) -> Saved | Refusal:
        """Stores the writes of one `put_writes` call, in one statement."""
        return _told("save_writes", await self._write_saves.save(save))

    async def load_chains(
        self, thread_key: bytes, namespace: str, checkpoint_ids: Sequence[bytes] | None, known: Known | None = None
    ) -> Chains | None:
        """Rows to rebuild the given checkpoints, or with None the head, in one statement."""
        return await self._attempts.run(
            "load_chains",
            lambda connection: self._queries.load_chains(connection, thread_key, namespace, checkpoint_ids, known),
        )

    async def load_segments(self, thread_key: bytes, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads, in one statement; those that do not exist are left out."""
        return await self._attempts.run(
            "load_segments", lambda connection: self._queries.load_segments(connection, thread_key, segment_ids)
        )

    async def list_checkpoints(self, query: ListQuery) -> list[ListEntry]:
        """One page of visible checkpoints, newest first, in one statement."""
        return await self._attempts.run("list_checkpoints", lambda connection: self._list(connection, query))

    async def delete_thread(self, thread_key: bytes) -> None:
        """Removes every row of the thread from every table, and remembers that."""

        async def statements(connection: AnyConnection) -> None:
            async with connection.transaction(isolation="read_committed"):
                head = await self._queries.lock_thread(connection, thread_key)
                await PostgresEdit(connection, self._queries, thread_key, head).remove()

        await self._attempts.run("delete_thread", statements)

    async def extend_deletion(self, thread_key: bytes, checkpoint_id: bytes) -> bool:
        """Takes note that a checkpoint was not saved; whether its thread was deleted and is not there."""
        return await self._attempts.run(
            "extend_deletion", lambda connection: self._queries.extend_deletion(connection, thread_key, checkpoint_id)
        )

    async def forget_deletion(self, thread_key: bytes) -> bool:
        """Forgets that the thread was deleted; whether it was known to be."""
        return await self._attempts.run(
            "forget_deletion", lambda connection: self._queries.forget_deletion(connection, thread_key)
        )

    async def forget_deletions(self, older_than_seconds: float) -> None:
        """Forgets all deletions that are older than this."""
        await self._attempts.run(
            "forget_deletions", lambda connection: self._queries.forget_deletions(connection, older_than_seconds)
        )

    async def pin(self, thread_key: bytes, pinned: bool) -> bool:
        """Sets or takes away the mark that exempts a thread from retention. False if there is no such thread."""
        return await self._attempts.run(
            "pin", lambda connection: self._queries.pin_thread(connection, thread_key, pinned)
        )

    async def copy_thread(self, source_key: bytes, target: ThreadRef) -> bool:
        """Copies all rows of a thread, consistent as of one moment. False if the target has rows already."""
        return await self._attempts.run("copy_thread", lambda connection: self._copy(connection, source_key, target))

    async def find_runs(self, run_ids: Sequence[str]) -> list[bytes]:
        """Keys of the threads that have a metadata document with one of these run ids."""
        return await self._attempts.run("find_runs", lambda connection: self._queries.find_runs(connection, run_ids))

    async def list_threads(self, after: bytes, limit: int) -> list[ThreadRef]:
        """Threads with a key larger than `after`, in the order of their keys, in one statement."""
        return await self._attempts.run(
            "list_threads", lambda connection: self._queries.list_threads(connection, after, limit)
        )

    async def survey_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Keys larger than `after` under which anything is stored, in order, in one statement."""
        return await self._attempts.run(
            "survey_keys", lambda connection: self._survey_queries.survey_keys(connection, after, limit)
        )

    async def count(self, days: Sequence[tuple[int, bytes]], limit: int) -> Counts:
        """Counts everything, in one transaction that only reads."""

        async def statements(connection: AnyConnection) -> Counts:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await counts(connection, self._statistics_queries, days, limit)

        return await self._attempts.run("count", statements)

    async def count_days(self, thread_key: bytes, days: Sequence[tuple[int, bytes]]) -> tuple[Day, ...]:
        """What each day brought to one thread, in one statement."""
        return await self._attempts.run(
            "count_days", lambda connection: self._statistics_queries.count_days(connection, days, thread_key)
        )

    @asynccontextmanager
    async def survey(self, thread_key: bytes) -> AsyncIterator[PostgresSurvey]:
        """Reads all rows under a key as of one moment, in one transaction that only reads."""
        stack, survey = await self._attempts.retry("survey", lambda deadline: self._begin_survey(thread_key, deadline))
        try:
            async with stack:
                yield survey
        except DRIVER_ERRORS as error:
            raise self._attempts.translated(error) from error

    async def newest_threads(self, query: ThreadsQuery) -> list[ThreadEntry]:
        """One page of threads, newest first, in one transaction."""
        return await self._attempts.run(
            "newest_threads", lambda connection: self._overview.newest_threads(connection, query)
        )

    async def load_structures(
        self, thread_key: bytes, namespace: str, checkpoint_ids: Sequence[bytes]
    ) -> Chains | None:
        """Rows to rebuild the given checkpoints without their values, in one statement."""
        return await self._attempts.run(
            "load_structures",
            lambda connection: self._overview.load_structures(connection, thread_key, namespace, checkpoint_ids),
        )

    async def namespaces(self, thread_key: bytes, after: str | None, limit: int) -> list[NamespaceEntry]:
        """Namespaces of a thread behind a name, in one statement."""
        return await self._attempts.run(
            "namespaces", lambda connection: self._overview.namespaces(connection, thread_key, after, limit)
        )

    async def outline_threads(self, after: bytes, limit: int) -> list[ThreadOutline]:
        """A page of threads with the keys of their checkpoints, in one statement."""
        return await self._attempts.run(
            "outline_threads", lambda connection: self._queries.outline_threads(connection, after, limit)
        )

    @asynccontextmanager
    async def view(self, thread_key: bytes) -> AsyncIterator[PostgresView]:
        """Opens the thread for reading, as of one moment and without a lock."""
        stack, view = await self._attempts.retry("view", lambda deadline: self._begin_view(thread_key, deadline))
        try:
            async with stack:
                yield view
        except DRIVER_ERRORS as error:
            raise self._attempts.translated(error) from error

    @asynccontextmanager
    async def repair(self, thread_key: bytes) -> AsyncIterator[PostgresRepair]:
        """Opens the thread for a repair, as one transaction under its exclusive lock."""
        async with self.edit(thread_key) as edit:
            yield PostgresRepair(edit, self._survey_queries, self._repair_queries, thread_key)

    @asynccontextmanager
    async def edit(self, thread_key: bytes, bounds: LockBounds | None = None) -> AsyncIterator[PostgresEdit]:
        """Opens the thread for exclusive changes, as one transaction."""
        stack, edit = await self._attempts.retry(
            "edit", lambda deadline: self._begin_edit(thread_key, deadline, bounds)
        )
        try:
            async with stack:
                yield edit
        except DRIVER_ERRORS as error:
            raise self._attempts.translated(error) from error
        edit.log()

    def staging(self) -> PostgresStaging:
        """Where parts of threads are kept until these are whole."""
        return PostgresStaging(self._attempts, self._staging_queries)

    async def _save(self, save: Save) -> Saved | Refusal:
        async def statement(connection: AnyConnection) -> Saved | Refusal:
            try:
                return await self._admitted(lambda: self._queries.save(connection, save))
            except asyncpg.UniqueViolationError as error:
                if "checkpoints" in (error.constraint_name or ""):
                    return Refusal.EXISTS
                raise

        return await self._attempts.run("save", statement)

    async def _save_writes(self, save: SaveWrites) -> Saved | Refusal:
        return await self._attempts.run(
            "save_writes", lambda connection: self._admitted(lambda: self._queries.save_writes(connection, save))
        )

    async def _together(
        self, text: str, arguments: Callable[[_Save], tuple[Any, ...]], saves: Sequence[_Save]
    ) -> list[Saved | None]:
        return await self._attempts.run_once(lambda to: together(to, text, list(map(arguments, saves))))

    async def _admitted(
        self, statement: Callable[[], Awaitable[Saved | Refusal | None]], rounds_max: int = 100
    ) -> Saved | Refusal:
        """Runs a save again while it says that the thread changed under it; each time another change got through."""
        for _ in range(rounds_max):
            if (answer := await statement()) is not None:
                return answer
        raise DatabaseUnavailableError("the thread is changed faster than it can be saved")

    async def _list(self, connection: AnyConnection, query: ListQuery) -> list[ListEntry]:
        if query.thread_key is None:
            return await self._queries.list_all(connection, query)
        if query.namespace is None:
            return await self._queries.list_thread(connection, query)
        key, namespace = query.thread_key, query.namespace
        bounds = [query.before] if query.before is not None else []
        if query.cursor is not None:
            bounds.append(query.cursor.checkpoint_id)
        if query.checkpoint_id is not None:
            if query.limit < 1 or any(query.checkpoint_id >= bound for bound in bounds):
                return []
            return await self._queries.list_checkpoint(connection, key, namespace, query.checkpoint_id, query.document)
        if bounds:
            return await self._queries.list_namespace_below(
                connection, key, namespace, min(bounds), query.document, query.limit
            )
        return await self._queries.list_namespace(connection, key, namespace, query.document, query.limit)

    async def _copy(self, connection: AnyConnection, source_key: bytes, target: ThreadRef) -> bool:
        queries = self._queries
        try:
            async with connection.transaction(isolation="repeatable_read"):
                if await queries.has_rows(connection, target.key):
                    return False
                await queries.copy_thread(connection, source_key, target)
                await queries.copy_checkpoints(connection, source_key, target)
                await queries.copy_segments(connection, source_key, target)
                await queries.copy_metadata(connection, source_key, target)
        except asyncpg.UniqueViolationError:
            return False
        return True

    async def _begin_view(self, thread_key: bytes, deadline: float) -> tuple[AsyncExitStack, PostgresView]:
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self._attempts.lend(deadline))
            await self._attempts.check_version(connection)
            await stack.enter_async_context(connection.transaction(isolation="repeatable_read", readonly=True))
            head = await self._queries.view_thread(connection, thread_key)
            return stack.pop_all(), PostgresView(connection, self._queries, thread_key, head)

    async def _begin_edit(
        self, thread_key: bytes, deadline: float, bounds: LockBounds | None
    ) -> tuple[AsyncExitStack, PostgresEdit]:
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self._attempts.lend(deadline))
            await self._attempts.check_version(connection)
            await stack.enter_async_context(connection.transaction(isolation="read_committed"))
            try:
                if bounds is not None:
                    await self._queries.bound_transaction(connection, bounds)
                head = await self._queries.lock_thread(connection, thread_key)
            except asyncpg.LockNotAvailableError as error:
                raise ThreadBusyError(
                    f"the thread with key {thread_key.hex()} is in use by others",
                    detail=str(error) if bounds is None else f"waited {bounds.wait_ms} ms",
                    hint="try again later",
                ) from error
            return stack.pop_all(), PostgresEdit(connection, self._queries, thread_key, head)

    async def _begin_survey(self, thread_key: bytes, deadline: float) -> tuple[AsyncExitStack, PostgresSurvey]:
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self._attempts.lend(deadline))
            await self._attempts.check_version(connection)
            await stack.enter_async_context(connection.transaction(isolation="repeatable_read", readonly=True))
            return stack.pop_all(), PostgresSurvey(connection, self._survey_queries, thread_key)


def _told(verb: str, answer: Saved | Refusal) -> Saved | Refusal:
    """The answer, with a line in the log if it is a refusal: a usual thing, except for threads that were deleted."""
    if isinstance(answer, Refusal):
        level = logging.INFO if answer is Refusal.DELETED else logging.DEBUG
        _LOG.log(level, "%s refused: %s", verb, answer.name.lower(), extra=extra())
    return answer
