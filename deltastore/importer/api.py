"""Sources and targets by their names, and one call that moves all threads from one to the other."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore.conversion.convert import IGNORED_CHANNELS, codec_of
from deltastore.core.codec import Codec
from deltastore.engine import Engine
from deltastore.errors import InvalidConfigError, UnserializableValueError
from deltastore.importer.estimate import estimate
from deltastore.importer.landing import Target
from deltastore.importer.migration import Migration, Options
from deltastore.importer.reading import Reading, encoded
from deltastore.importer.report import Outcome, Report
from deltastore.importer.savers import SaverSource
from deltastore.importer.source import Source
from deltastore.importer.sqlite import SqliteSource
from deltastore.importer.tables import TablesSource
from deltastore.importer.unopened import exact_form, unopened_codec
from deltastore.importer.verify import Verifier
from deltastore.options import EngineOptions
from deltastore.postgres.pool import PoolOptions
from deltastore.postgres.storage import PostgresStorage

AnySaver = BaseCheckpointSaver[Any]
SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")


async def migrate(
    source: str | AnySaver,
    dsn: str,
    options: Options | None = None,
    *,
    serde: SerializerProtocol | None = None,
    source_schema: str | None = None,
    schema: str = "deltastore",
    snapshot_frequency: int = 50,
    dry_run: bool = False,
    progress: Callable[[Outcome], None] = lambda _: None,
    started: Callable[[int], None] | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Report:
    """Moves threads into deltastore. Safe to repeat: what has landed stays, what is missing is moved.

    Args:
        source: `postgresql://…` with the tables of LangGraph's saver, `sqlite:///file` with those of its SQLite saver,
            `package.module:factory` that gives a saver (or a context manager of one), or an open saver.
        dsn: The target: `postgresql://…`, `embedded` or `embedded:<folder>`. Its schema is set up if it is not.
        options: What to migrate, and how.
        serde: The serializer of both sides, if it is not LangGraph's default; one that encrypts has to be given.
        source_schema: The schema of the source's tables; by default the search path.
        schema: The target's schema.
        snapshot_frequency: A full anchor every so many steps along each branch.
        dry_run: Write nothing, but count, and estimate size and time.
        progress: Told each thread's outcome when it is done.
        started: Told how many threads there are; they are counted first for that.
        advance: Told how many bytes of values were read since it was last told.

    Returns:
        What became of the threads.

    Raises:
        InvalidConfigError: An argument has a wrong form, or there is no such source.
        DatabaseError: One of the databases is away or refuses; what has landed stays.
    """
    options = options or Options()
    codec, cipher = codec_of(serde or JsonPlusSerializer())
    reading = Reading(codec, cipher)
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(
            open_source(source, reading, schema=source_schema, connections=options.workers + 1)
        )
        engine = await stack.enter_async_context(
            open_engine(
                dsn,
                schema=schema,
                snapshot_frequency=snapshot_frequency,
                connections=options.workers + 1,
                set_up=not dry_run,
            )
        )
        target = Target(engine, codec, cipher)
        migration = Migration(opened, target, verifier_of(opened, target), options, progress, advance)
        if started is not None:
            started(len([each async for each in migration.thread_ids()]))
        return await (estimate(migration) if dry_run else migration.run())


@asynccontextmanager
async def open_engine(
    dsn: str, *, schema: str, snapshot_frequency: int, connections: int, set_up: bool
) -> AsyncIterator[Engine]:
    """An engine over a target. Raises as `migrate`."""
    async with AsyncExitStack() as stack:
        if dsn.partition(":")[0] == "embedded":
            from deltastore.embedded import EmbeddedServer, embedded_folder  # noqa: PLC0415 - an extra

            dsn = (await stack.enter_async_context(EmbeddedServer(embedded_folder(dsn)))).dsn
        pool_options = PoolOptions(max_size=connections, command_timeout_seconds=None)
        storage = await PostgresStorage.open(dsn, schema, pool_options)
        stack.push_async_callback(storage.close)
        if set_up:
            await storage.setup()
        yield Engine(storage, EngineOptions(snapshot_frequency=snapshot_frequency, ignored_channels=IGNORED_CHANNELS))


@asynccontextmanager
async def open_source(
    source: str | AnySaver, reading: Reading, *, schema: str | None, connections: int
) -> AsyncIterator[Source]:
    """A source by its name. Raises as `migrate`."""
    async with AsyncExitStack() as stack:
        if isinstance(source, str) and source.startswith(POSTGRES):
            opened: Source = await TablesSource.connect(source, reading, schema=schema, connections=connections)
        elif isinstance(source, str) and source.startswith(SQLITE):
            opened = SqliteSource(Path(source.removeprefix(SQLITE)), reading)
        elif isinstance(source, str):
            opened = SaverSource(await _made(source, stack), reading.codec)
        else:
            opened = SaverSource(source, reading.codec)
        stack.push_async_callback(opened.close)
        yield opened


def verifier_of(source: Source | None, target: Target) -> Verifier:
    """Compares in the way in which the source decodes; None is that of LangGraph's tables."""
    if isinstance(source, SaverSource) or not target.codec.is_msgpack:
        return Verifier(target.engine, target.codec, target.cipher, _encoded_form(target.codec))
    return Verifier(target.engine, unopened_codec(), target.cipher, exact_form)


def _encoded_form(codec: Codec) -> Callable[[Any], Any]:
    def form(value: Any) -> Any:
        try:
            found = encoded(codec, value, "value")
        except UnserializableValueError:  # metadata that only JSON can hold
            return exact_form(value)
        return found.kind, found.keys, found.digests

    return form


async def _made(name: str, stack: AsyncExitStack) -> AnySaver:
    """The saver of a factory: called, awaited and entered as far as it wants to be."""
    module_name, colon, factory_name = name.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), factory_name)):
        raise InvalidConfigError(
            f"{name.partition('://')[0]!r} is no source",
            hint="give postgresql://…, sqlite:///file, or package.module:factory",
        )
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        raise InvalidConfigError(f"the factory {name!r} cannot be imported", detail=str(error)) from error
    try:
        made = await _entered(factory(), stack)
    except Exception as error:
        raise InvalidConfigError(f"the factory {name!r} failed", detail=f"{type(error).__name__}: {error}") from error
    if not isinstance(made, BaseCheckpointSaver):
        raise InvalidConfigError(f"{name!r} gave a {type(made).__name__}, expected a checkpoint saver")
    return made


async def _entered(made: Any, stack: AsyncExitStack) -> Any:
    if inspect.isawaitable(made):
        made = await made
    if isinstance(made, BaseCheckpointSaver):
        return made
    if isinstance(made, AbstractAsyncContextManager):
        return await stack.enter_async_context(made)
    return stack.enter_context(made) if isinstance(made, AbstractContextManager) else made
