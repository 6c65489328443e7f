"""The way back: threads of deltastore written to the tables of LangGraph's PostgreSQL saver.

What the rows look like is said in `stock_rows.py`. Each thread is written in one transaction. A thread that is there
already is left alone if nothing is missing there. If it went on in deltastore meanwhile, that is said; with
`since_last` it is written anew, unless the tables have checkpoints that deltastore does not have.
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
from deltastore.core.codec import Codec
from deltastore.core.frame import Cipher
from deltastore.core.identifiers import unpack_checkpoint_id
from deltastore.core.model import ListQuery, ThreadRef
from deltastore.engine import Engine
from deltastore.errors import DatabaseError, InvalidConfigError
from deltastore.importer.api import open_engine, verifier_of
from deltastore.importer.landing import BATCH_BYTES, Target
from deltastore.importer.migration import Options
from deltastore.importer.reading import Reading
from deltastore.importer.report import Outcome, Report, Status
from deltastore.importer.source import Node, SkipThread
from deltastore.importer.stock_rows import StockRows, text_versions
from deltastore.importer.tables import TablesSource
from deltastore.importer.verify import Verifier, chosen
from deltastore.postgres.failures import DRIVER_ERRORS, translate
from deltastore.postgres.naming import quote_schema

PREFIX = "stock-"
PAGE = 32
IDS_PAGE = 1000


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
        options: Which threads, and how many checkpoints to compare afterwards.
        serde: The serializer, if it is not LangGraph's default.
        schema: deltastore's schema.
        target_schema: The schema of LangGraph's tables, which has to be there; by default the search path.
        dry_run: Write nothing, make no tables; say what would be done.
        progress: Told each thread's outcome when it is done.
        started: Told how many threads there are.

    Raises:
        InvalidConfigError: An argument has a wrong form, or the package of LangGraph's saver is missing.
        DatabaseError: One of the databases is away or refuses; what has been written stays.
    """
    options = options or Options()
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
        compare = None
        if not dry_run:
            written = await TablesSource.connect(address, Reading(codec, cipher), schema=target_schema, connections=2)
            stack.push_async_callback(written.close)
            compare = _Compare(
                written, replace(verifier_of(written, Target(engine, codec, cipher)), adapt=_with_text_versions)
            )
        back = _Back(engine, codec, cipher, connection, compare, options)
        return await back.run(progress, started)


@dataclass(frozen=True, slots=True)
class _Compare:
    """Reads what was written, and compares it."""

    written: TablesSource
    verifier: Verifier

    async def verify(self, thread: ThreadRef, nodes: Sequence[Node]) -> None:
        """Raises `SkipThread` if something differs."""
        async with self.written.open(thread.thread_id) as opened:
            await opened.shape()
            await self.verifier.verify(thread, opened, nodes)


@dataclass(frozen=True, slots=True)
class _Back:
    """One run; a dry one has nothing to compare."""

    engine: Engine
    codec: Codec
    cipher: Cipher | None
    connection: Any
    compare: _Compare | None
    options: Options

    async def run(self, progress: Callable[[Outcome], None], started: Callable[[int], None] | None) -> Report:
        report = Report(dry_run=self.compare is None)
        threads = [each async for each in self._threads()]
        if started is not None:
            started(len(threads))
        for thread in threads:
            try:
                outcome = await self._move(thread)
            except DRIVER_ERRORS as error:
                raise translate(error) from error
            except DatabaseError:
                raise
            except Exception as error:  # noqa: BLE001 - one thread's trouble must not end the run
                outcome = Outcome(thread.thread_id, Status.FAILED, f"{type(error).__name__}: {error}")
            report.add(outcome)
            progress(outcome)
        return report

    async def _threads(self) -> AsyncIterator[ThreadRef]:
        if self.options.thread_ids is not None:
            for thread_id in self.options.thread_ids:
                yield validate.thread(thread_id)
            return
        after = b""
        while page := await self.engine.storage.list_threads(after, PAGE):
            for thread in page:
                if thread.thread_id.startswith(self.options.prefix):
                    yield thread
            after = page[-1].key

    async def _move(self, thread: ThreadRef) -> Outcome:
        there = await self._written_ids(thread)
        status = Status.IMPORTED
        if there:
            ours = {each async for each in self._ids(thread)}
            lacking, foreign = len(ours - there), len(there - ours)
            if not lacking:
                return Outcome(thread.thread_id, Status.PRESENT)
            reason = f"the tables lack {lacking} of its {len(ours)} checkpoints"
            if foreign:
                return Outcome(thread.thread_id, Status.DIVERGED, f"{reason}, and have {foreign} others")
            if not self.options.since_last:
                return Outcome(thread.thread_id, Status.DIVERGED, f"{reason}; --since-last writes it anew")
            status = Status.CAUGHT_UP
        if self.compare is None:
            count = len([each async for each in self._ids(thread)])
            return Outcome(thread.thread_id, Status.COUNTED, checkpoints=count)
        return await self._write(thread, status, self.compare)

    async def _written_ids(self, thread: ThreadRef) -> set[tuple[str, str]]:
        """Namespaces and ids of the thread's checkpoints in LangGraph's tables."""
        if await self.connection.fetchval("SELECT to_regclass('checkpoints')") is None:
            return set()
        found = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = $1"
        return {tuple(row) for row in await self.connection.fetch(found, thread.thread_id)}

    async def _ids(self, thread: ThreadRef) -> AsyncIterator[tuple[str, str]]:
        """The same of deltastore's visible checkpoints; no state is loaded."""
        query = ListQuery(thread.key, limit=IDS_PAGE)
        while entries := await self.engine.storage.list_checkpoints(query):
            for entry in entries:
                yield entry.row.namespace, unpack_checkpoint_id(entry.row.checkpoint_id)
            query = replace(query, cursor=entries[-1].cursor)

    async def _write(self, thread: ThreadRef, status: Status, compare: _Compare) -> Outcome:
        """Writes a thread, in place of what the tables have of it."""
        rows = StockRows(self.codec, self.cipher, thread.thread_id)
        nodes: list[Node] = []
        async with self.connection.transaction():
            for table in ("checkpoint_writes", "checkpoint_blobs", "checkpoints"):
                await self.connection.execute(f"DELETE FROM {table} WHERE thread_id = $1", thread.thread_id)  # noqa: S608 - fixed names
            query = ListQuery(thread.key, limit=PAGE)
            async for loaded in self.engine.reader.listing(query, None, self.cipher, None):
                nodes.append(rows.add(loaded))
                if rows.waiting_bytes > BATCH_BYTES:
                    await rows.flush(self.connection)
            await rows.flush(self.connection)
        compared = chosen(nodes, self.options.verify)
        try:
            await compare.verify(thread, compared)
        except SkipThread as reason:
            return Outcome(thread.thread_id, Status.FAILED, f"written, but {reason}")
        return Outcome(
            thread.thread_id,
            status,
            checkpoints=len(nodes),
            verified=len(compared),
            source_bytes=0,
            target_bytes=rows.written_bytes,
        )


def _with_text_versions(found: CheckpointTuple) -> CheckpointTuple:
    checkpoint: Any = dict(found.checkpoint)
    checkpoint["channel_versions"] = text_versions(checkpoint["channel_versions"])
    checkpoint["versions_seen"] = {node: text_versions(seen) for node, seen in checkpoint["versions_seen"].items()}
    return found._replace(checkpoint=checkpoint)


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
