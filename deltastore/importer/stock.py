"""The way back: threads of deltastore written to the tables of LangGraph's PostgreSQL saver.

What the rows look like is said in `stock_rows.py`. A thread that is there already is left alone if both sides have the
same checkpoints and pending writes. If it went on in deltastore meanwhile, that is said; with `since_last` it is
written anew. It is never touched if the tables have anything that deltastore does not have.

All that happens to a thread in the tables happens in one transaction: what is there is read again when nobody else can
write any more (a lock on the tables, only where rows are replaced), rows are written, read back and compared. Whatever
goes wrong rolls it back. deltastore takes no lock: a thread that changed there while it was read is rolled back, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore.conversion import convert, validate
from deltastore.core.edits import ThreadRows
from deltastore.core.identifiers import unpack_checkpoint_id
from deltastore.core.model import CheckpointRow, ListQuery, ThreadRef
from deltastore.core.writes import effective
from deltastore.errors import DatabaseUnavailableError, InvalidConfigError, SchemaVersionError
from deltastore.importer.api import open_engine, verifier_of
from deltastore.importer.existing import Standing, StoredWrites, standing_back, stored_writes
from deltastore.importer.landing import BATCH_BYTES, Target
from deltastore.importer.migration import LANDING, Options, outcome_of
from deltastore.importer.reading import Reading
from deltastore.importer.report import Outcome, Report, Status
from deltastore.importer.source import Node, SkipThread, ThreadShape
from deltastore.importer.stock_rows import StockRows, text_versions, without_nul
from deltastore.importer.tables import thread_on
from deltastore.importer.verify import chosen
from deltastore.postgres.failures import DRIVER_ERRORS, is_collision, translate
from deltastore.postgres.naming import quote_schema
from deltastore.structure import read_rows

PREFIX = "stock-"
PAGE = 32
TABLES = "checkpoint_writes", "checkpoint_blobs", "checkpoints"
LOCK = "LOCK TABLE checkpoint_blobs, checkpoints, checkpoint_writes IN SHARE ROW EXCLUSIVE MODE"
"""In the order in which LangGraph's saver writes to them, so that neither waits for the other."""


def is_stock(target: str) -> bool:
    """Whether a target is the tables of LangGraph's saver."""
    return target.startswith((f"{PREFIX}postgresql://", f"{PREFIX}postgres://"))


async def move_back(
    dsn: str,
    target: str,
    options: Options | None = None,
    *,
    serde: SerializerProtocol | None = None,
    schema: str = "deltastore",
    target_schema: str | None = None,
    dry_run: bool = False,
    progress: Callable[[Outcome], None] = lambda _: None,
    started: Callable[[int], None] | None = None,
) -> Report:
    """Writes threads of deltastore to the tables of LangGraph's PostgreSQL saver, which are made if they are missing.

    Args:
        dsn: Where deltastore is.
        target: `stock-postgresql://…`.
        options: Which threads, and how many checkpoints to compare. One thread is written after the other.
        serde: The serializer, if it is not LangGraph's default.
        schema: deltastore's schema.
        target_schema: The schema of LangGraph's tables, which has to be there; by default the search path.
        dry_run: Write nothing, make no tables; say what would be done.
        progress: Told each thread's outcome when it is done.
        started: Told how many threads there are.

    Raises:
        InvalidConfigError: An argument has a wrong form, an option is none of the way back, or the package of
            LangGraph's saver is missing.
        DatabaseError: One of the databases is away or refuses; what has been written stays.
    """
    options = options or Options()
    _refuse_options(options)
    codec, cipher = convert.codec_of(serde or JsonPlusSerializer())
    address = target.removeprefix(PREFIX)
    settings = {} if target_schema is None else {"search_path": quote_schema(target_schema)}
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(
            open_engine(dsn, schema=schema, snapshot_frequency=50, connections=2, set_up=False)
        )
        try:
            connection = await asyncpg.connect(address, server_settings=settings)
            stack.push_async_callback(connection.close)
            await _check_schema(connection, target_schema)
            if not dry_run:
                await _set_up(connection)
        except DRIVER_ERRORS as error:
            raise translate(error) from error
        back = _Back(Target(engine, codec, cipher), Reading(codec, cipher), connection, options, dry_run)
        return await back.run(progress, started)


@dataclass(frozen=True, slots=True)
class _Ours:
    """The structure of a thread in deltastore, as of one moment."""

    rows: ThreadRows
    writes: StoredWrites
    nodes: Sequence[Node]

    def is_still(self, rows: ThreadRows | None) -> bool:
        """Whether nothing was added or removed since."""
        return rows is not None and _marks(rows) == _marks(self.rows)


def _marks(rows: ThreadRows) -> tuple[int, int, frozenset[Any], frozenset[int]]:
    checkpoints = frozenset((row.key, row.hidden, row.orphaned) for row in rows.checkpoints)
    return rows.epoch, rows.revision, checkpoints, frozenset(segment.segment_id for segment in rows.segments)


@dataclass(frozen=True, slots=True)
class _Back:
    """One run."""

    target: Target
    reading: Reading
    connection: Any
    options: Options
    dry_run: bool

    async def run(self, progress: Callable[[Outcome], None], started: Callable[[int], None] | None) -> Report:
        report = Report(dry_run=self.dry_run)
        thread_ids = [each async for each in self._thread_ids()]
        if started is not None:
            started(len(thread_ids))
        for thread_id in thread_ids:
            outcome = await self._move(thread_id)
            report.add(outcome)
            progress(outcome)
        return report

    async def _thread_ids(self) -> AsyncIterator[str]:
        if self.options.thread_ids is not None:
            for thread_id in self.options.thread_ids:
                if thread_id.startswith(self.options.prefix):
                    yield thread_id
            return
        after = b""
        while page := await self.target.engine.storage.list_threads(after, PAGE):
            for thread in page:
                if thread.thread_id.startswith(self.options.prefix):
                    yield thread.thread_id
            after = page[-1].key

    async def _move(self, thread_id: str) -> Outcome:
        """Moves one thread; raises only what would end every thread alike, as `Migration.move`."""
        return await outcome_of(thread_id, self._translated(thread_id))

    async def _translated(self, thread_id: str) -> Outcome:
        """Moves one thread; errors of the driver are ours, and what another thread may not meet is the thread's own."""
        try:
            return await self._moved(validate.thread(thread_id))
        except DRIVER_ERRORS as error:
            translated = translate(error)
            if isinstance(translated, DatabaseUnavailableError | SchemaVersionError) and not is_collision(error):
                raise translated from error
            raise SkipThread(str(translated)) from error

    async def _moved(self, thread: ThreadRef) -> Outcome:
        ours = await self._ours(thread)
        async with self.connection.transaction(isolation="read_committed"):
            await self.connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            shape, status, reason = await self._standing(thread, ours)
            if status not in LANDING:
                return Outcome(thread.thread_id, status, reason)
            if self.dry_run:
                return Outcome(thread.thread_id, Status.COUNTED, checkpoints=len(ours.nodes))
            if shape.nodes or shape.writes or shape.source_bytes:
                await self.connection.execute(LOCK)
                _, status, reason = await self._standing(thread, ours)
                if status not in LANDING:
                    return Outcome(thread.thread_id, status, reason)
                for table in TABLES:
                    await self.connection.execute(f"DELETE FROM {table} WHERE thread_id = $1", thread.thread_id)  # noqa: S608 - fixed names
            outcome = await self._write(thread, ours, status)
            async with self.target.engine.storage.view(thread.key) as view:
                if not ours.is_still(await read_rows(view, self.target.cipher)):
                    raise SkipThread("it changed in deltastore while it was read; nothing was written, run again")
            return outcome

    async def _ours(self, thread: ThreadRef) -> _Ours:
        """Raises `SkipThread` if there is nothing of the thread in deltastore."""
        async with self.target.engine.storage.view(thread.key) as view:
            rows = await read_rows(view, self.target.cipher)
            nodes = [] if rows is None else [_node_of(row) for row in rows.checkpoints if not row.hidden]
            if rows is None or not nodes:
                raise SkipThread("deltastore has no checkpoint of this thread")
            return _Ours(rows, await stored_writes(view, rows, self.target.cipher), nodes)

    async def _standing(self, thread: ThreadRef, ours: _Ours) -> tuple[ThreadShape, Status, str]:
        """What the tables have of a thread, what is to become of it, and why."""
        opened = await thread_on(self.connection, self.reading, thread.thread_id)
        shape = ThreadShape((), frozenset()) if opened is None else await opened.shape()
        found, reason = standing_back(ours.rows, ours.writes, shape)
        if found is Standing.SAME:
            return shape, Status.PRESENT, ""
        if found is Standing.DIVERGED:
            return shape, Status.DIVERGED, reason
        if not shape.nodes:
            return shape, Status.IMPORTED, ""
        if not self.options.since_last:
            return shape, Status.DIVERGED, f"{reason}; --since-last writes it anew"
        return shape, Status.CAUGHT_UP, ""

    async def _write(self, thread: ThreadRef, ours: _Ours, status: Status) -> Outcome:
        """Writes a thread of which the tables have nothing, and compares. Raises `SkipThread`."""
        codec, cipher, engine = self.target.codec, self.target.cipher, self.target.engine
        visible = frozenset(row.key for row in ours.rows.checkpoints if not row.hidden)
        rows = StockRows(codec, cipher, thread.thread_id, visible)
        query = ListQuery(thread.key, limit=PAGE)
        async for loaded in engine.reader.listing(query, None, cipher, None):
            rows.add(loaded)
            if rows.waiting_bytes > BATCH_BYTES:
                await rows.flush(self.connection)
        notes = []
        for (namespace, key), segments in sorted(ours.writes.orphans.items()):
            writes = effective(segments)
            rows.add_writes(namespace, unpack_checkpoint_id(key), writes, ours.writes.items)
            notes.append(
                f"namespace {namespace!r}: {len(writes)} pending writes to checkpoint {unpack_checkpoint_id(key)!r}, "
                "which does not exist; they were taken over"
            )
        rows.finish()
        await rows.flush(self.connection)
        compared = chosen(ours.nodes, self.options.verify)
        await self._compare(thread, ours, compared)
        return Outcome(
            thread.thread_id,
            status,
            notes=tuple(notes),
            checkpoints=len(ours.nodes),
            verified=len(compared),
            target_bytes=rows.written_bytes,
        )

    async def _compare(self, thread: ThreadRef, ours: _Ours, compared: Sequence[Node]) -> None:
        """Reads what was written, in the same transaction. Raises `SkipThread` if it is not what deltastore has."""
        opened = await thread_on(self.connection, self.reading, thread.thread_id)
        if opened is None:
            raise SkipThread("the tables are gone")
        shape = await opened.shape()
        found, reason = standing_back(ours.rows, ours.writes, shape)
        if found is not Standing.SAME:
            raise SkipThread(f"nothing was written, as the copy would not be whole: {reason}")
        verifier = replace(verifier_of(None, self.target), adapt=_as_there)
        try:
            await verifier.verify(thread, opened, compared, shape.nodes)
        except SkipThread as difference:
            raise SkipThread(f"nothing was written, as the copy would differ: {difference}") from difference


def _node_of(row: CheckpointRow) -> Node:
    """A checkpoint's place, as its row in the tables will have it."""
    parent_id = None if row.parent_id is None or row.orphaned else unpack_checkpoint_id(row.parent_id)
    return Node(row.namespace, unpack_checkpoint_id(row.checkpoint_id), parent_id)


def _as_there(found: CheckpointTuple) -> CheckpointTuple:
    """A checkpoint as LangGraph's tables can hold it: versions are texts, metadata has no NUL."""
    checkpoint: Any = dict(found.checkpoint)
    checkpoint["channel_versions"] = text_versions(checkpoint["channel_versions"])
    checkpoint["versions_seen"] = {node: text_versions(seen) for node, seen in checkpoint["versions_seen"].items()}
    return found._replace(checkpoint=checkpoint, metadata=without_nul(dict(found.metadata)))


def _refuse_options(options: Options) -> None:
    """What is not done on the way back is refused, rather than ignored."""
    for name, is_given in (("newer_than", options.newer_than is not None), ("latest_only", options.latest_only)):
        if is_given:
            raise InvalidConfigError(
                f"{name} is not possible on the way back: threads are written whole",
                hint="name the threads (threads, prefix), or prune them in deltastore first",
            )


async def _check_schema(connection: Any, schema: str | None) -> None:
    """Refuses a schema that is not there: making one is the operator's decision."""
    wanted = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)"
    if schema is not None and not await connection.fetchval(wanted, schema):
        raise InvalidConfigError(
            f"the schema {schema!r} of LangGraph's tables is not there", hint=f"CREATE SCHEMA {quote_schema(schema)};"
        )


async def _set_up(connection: Any) -> None:
    """Makes LangGraph's tables with the statements of its own package."""
    try:
        from langgraph.checkpoint.postgres.base import MIGRATIONS  # noqa: PLC0415 - an extra, only for the way back
    except ImportError as error:
        raise InvalidConfigError(
            "the way back needs the package of LangGraph's saver",
            detail=str(error),
            hint="pip install langgraph-checkpoint-postgres 'psycopg[binary]'",
        ) from error
    await connection.execute(MIGRATIONS[0])
    done = await connection.fetchval("SELECT max(v) FROM checkpoint_migrations")
    for version in range(0 if done is None else done + 1, len(MIGRATIONS)):
        await connection.execute(MIGRATIONS[version])
        await connection.execute("INSERT INTO checkpoint_migrations (v) VALUES ($1)", version)
