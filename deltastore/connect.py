"""The one place that knows every part: pool, storage, engine and saver become a `DeltaSaver` here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

import asyncpg
from langgraph.checkpoint.serde.base import SerializerProtocol

from deltastore.conversion.convert import IGNORED_CHANNELS
from deltastore.engine import Engine
from deltastore.errors import InvalidConfigError
from deltastore.langgraph.bridge import start_loop
from deltastore.langgraph.saver import EngineSaver
from deltastore.memory import MemoryStorage
from deltastore.observed import observed
from deltastore.observing import Observer
from deltastore.options import EngineOptions
from deltastore.postgres.naming import quote_schema
from deltastore.postgres.pool import Pool, PoolOptions
from deltastore.postgres.storage import PostgresStorage
from deltastore.storage import Storage

DEFAULT_SCHEMA = "deltastore"
CACHE_BYTES = 64 * 1024 * 1024


class DeltaSaver(EngineSaver):
    """A LangGraph checkpointer on PostgreSQL that stores only what each super-step changed.

    Make one with `from_conn_string`, over a pool of your own, or with `in_memory` for unit tests. Open it with
    `async with` in asynchronous programs, or with a plain `with` in synchronous ones (and in notebooks); then every
    method works in its synchronous and its asynchronous form.

    Args:
        pool: An asyncpg pool. It is never closed by the saver; the saver belongs to the pool's event loop.
        schema: The PostgreSQL schema of the tables.
        snapshot_frequency: A full anchor every so many steps along each branch.
        serde: The serializer; by default LangGraph's `JsonPlusSerializer`, building objects of loaded classes only.
        cache_bytes: Bound of the memory for recently used threads, all together.
        create_schema: Whether `setup` may create the schema, or only the tables in it.
        timeout_seconds: How long a call may wait for a usable connection.
        observer: Is told what the saver does (`deltastore.observing`).

    Raises:
        InvalidConfigError: An option has a wrong form.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        schema: str = DEFAULT_SCHEMA,
        snapshot_frequency: int = 50,
        serde: SerializerProtocol | None = None,
        cache_bytes: int = CACHE_BYTES,
        create_schema: bool = True,
        timeout_seconds: float = 10.0,
        observer: Observer | None = None,
    ) -> None:
        if not isinstance(pool, asyncpg.Pool):
            raise InvalidConfigError(
                f"an asyncpg pool is expected, got {type(pool).__name__}",
                hint="use DeltaSaver.from_conn_string for a connection string, or asyncpg.create_pool",
            )
        options = _options(snapshot_frequency, cache_bytes)
        postgres = PostgresStorage(
            pool, schema, create_schema=create_schema, timeout_seconds=timeout_seconds, observer=observer
        )
        storage = observed(postgres, observer)
        super().__init__(_opener(options, _given(storage)), serde=serde, observer=observer)
        self.adopt(Engine(storage, options), pool._loop)  # type: ignore[attr-defined] # noqa: SLF001

    @classmethod
    def from_conn_string(
        cls,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        snapshot_frequency: int = 50,
        serde: SerializerProtocol | None = None,
        cache_bytes: int = CACHE_BYTES,
        create_schema: bool = True,
        min_size: int = 1,
        max_size: int = 10,
        timeout_seconds: float = 10.0,
        command_timeout_seconds: float | None = 60.0,
        connect_timeout_seconds: float = 10.0,
        idle_lifetime_seconds: float = 300.0,
        statement_cache_size: int = 100,
        ssl: Any = None,
        password: str | None = None,
        server_settings: Mapping[str, str] | None = None,
        observer: Observer | None = None,
    ) -> Self:
        """A saver with a pool of its own, opened by `async with` or `with`.

        Args:
            dsn: `postgresql://…`, or `embedded` or `embedded:<folder>` for a server that comes with the package
                (extra `embedded`) and keeps its data in a folder.
            schema: The PostgreSQL schema of the tables.
            snapshot_frequency: A full anchor every so many steps along each branch.
            serde: The serializer; by default LangGraph's `JsonPlusSerializer`, building objects of loaded classes
                only (`deltastore.langgraph.serializer`).
            cache_bytes: Bound of the memory for recently used threads, all together.
            create_schema: Whether `setup` may create the schema, or only the tables in it.
            min_size: Connections opened at once and kept.
            max_size: Connections at most.
            timeout_seconds: How long one call may wait for a usable connection, retries included.
            command_timeout_seconds: How long one statement may run; None for no limit.
            connect_timeout_seconds: How long opening one connection may take.
            idle_lifetime_seconds: Idle connections above `min_size` are closed after this time; 0 keeps them.
            statement_cache_size: Prepared statements kept by one connection; 0 behind a transaction pooler without
                support for them.
            ssl: A context, or a mode as in `sslmode`.
            password: Instead of one in the connection string.
            server_settings: Settings of the sessions.
            observer: Is told what the saver does (`deltastore.observing`).

        Raises:
            InvalidConfigError: An option has a wrong form.
        """
        _check_connection_string(dsn)
        options = _options(snapshot_frequency, cache_bytes)
        pool_options = PoolOptions(
            min_size=min_size,
            max_size=max_size,
            timeout_seconds=timeout_seconds,
            command_timeout_seconds=command_timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            idle_lifetime_seconds=idle_lifetime_seconds,
            statement_cache_size=statement_cache_size,
            ssl=ssl,
            password=password,
            **({} if server_settings is None else {"server_settings": server_settings}),
        )
        quote_schema(schema)
        saver = cls.__new__(cls)
        opening = _connected(dsn, schema, pool_options, create_schema=create_schema, observer=observer)
        EngineSaver.__init__(saver, _opener(options, opening), serde=serde, observer=observer)
        return saver

    @classmethod
    def in_memory(
        cls,
        *,
        snapshot_frequency: int = 50,
        serde: SerializerProtocol | None = None,
        cache_bytes: int = CACHE_BYTES,
        observer: Observer | None = None,
    ) -> Self:
        """A saver that keeps everything in this process, for unit tests: same code, no database. It is open at once."""
        options = _options(snapshot_frequency, cache_bytes)
        storage = observed(MemoryStorage(), observer)
        saver = cls.__new__(cls)
        EngineSaver.__init__(saver, _opener(options, _given(storage)), serde=serde, observer=observer)
        saver.adopt(Engine(storage, options), start_loop(saver))
        return saver


OpenStorage = Callable[[], Awaitable[tuple[Storage, Callable[[], Awaitable[None]]]]]


def _check_connection_string(dsn: Any) -> None:
    if not isinstance(dsn, str) or not dsn:
        raise InvalidConfigError(
            f"a connection string is expected, got {'an empty one' if dsn == '' else type(dsn).__name__}",
            hint="pass postgresql://user@host/database, or embedded; is an environment variable not set?",
        )


def _options(snapshot_frequency: int, cache_bytes: int) -> EngineOptions:
    return EngineOptions(
        snapshot_frequency=snapshot_frequency, cache_bytes=cache_bytes, ignored_channels=IGNORED_CHANNELS
    )


def _opener(
    options: EngineOptions, open_storage: OpenStorage
) -> Callable[[], Awaitable[tuple[Engine, Callable[[], Awaitable[None]]]]]:
    async def open_engine() -> tuple[Engine, Callable[[], Awaitable[None]]]:
        storage, close = await open_storage()
        return Engine(storage, options), close

    return open_engine


def _given(storage: Storage) -> OpenStorage:
    async def open_storage() -> tuple[Storage, Callable[[], Awaitable[None]]]:
        return storage, storage.close

    return open_storage


def _connected(
    dsn: str, schema: str, options: PoolOptions, *, create_schema: bool, observer: Observer | None
) -> OpenStorage:
    async def open_storage() -> tuple[Storage, Callable[[], Awaitable[None]]]:
        if dsn.partition(":")[0] == "embedded":
            return await _embedded(dsn, open_postgres)
        storage = await open_postgres(dsn)
        return storage, storage.close

    async def open_postgres(address: str) -> Storage:
        postgres = await PostgresStorage.open(address, schema, options, create_schema=create_schema, observer=observer)
        return observed(postgres, observer)

    return open_storage


async def _embedded(
    dsn: str, open_postgres: Callable[[str], Awaitable[Storage]]
) -> tuple[Storage, Callable[[], Awaitable[None]]]:
    from deltastore.embedded import EmbeddedServer, embedded_folder  # noqa: PLC0415 - an extra, only for who asks

    folder = embedded_folder(dsn)
    assert folder is not None
    server = EmbeddedServer(folder)
    address = await server.start_async()
    try:
        storage = await open_postgres(address)
    except BaseException:
        await server.stop_async()
        raise

    async def close() -> None:
        try:
            await storage.close()
        finally:
            await server.stop_async()

    return storage, close
