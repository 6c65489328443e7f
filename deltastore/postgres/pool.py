"""Connections: how many, how long to wait for one, and who closes them."""

from __future__ import annotations

import asyncio
import re
import ssl as tls
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from deltastore.errors import InvalidConfigError
from deltastore.postgres.failures import DRIVER_ERRORS, translate

Pool: TypeAlias = "asyncpg.Pool[Any]"
SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How connections are opened and kept.

    Attributes:
        min_size: Connections opened at once and kept.
        max_size: Connections at most; further calls wait for one.
        timeout_seconds: How long one call may wait for a usable connection, retries included, before it fails.
        command_timeout_seconds: How long one statement may run; None for no limit.
        connect_timeout_seconds: How long opening one connection may take.
        idle_lifetime_seconds: Idle connections above `min_size` are closed after this time; 0 keeps them.
        statement_cache_size: Prepared statements kept by one connection. Set 0 behind a pooler in transaction mode
            that does not support prepared statements (PgBouncer before 1.21, or with `max_prepared_statements=0`).
        ssl: A context, or a mode as in `sslmode`; None leaves it to the connection string.
        password: Instead of one in the connection string.
        server_settings: Settings of the session, sent when it is opened.
    """

    min_size: int = 1
    max_size: int = 10
    timeout_seconds: float = 10.0
    command_timeout_seconds: float | None = 60.0
    connect_timeout_seconds: float = 10.0
    idle_lifetime_seconds: float = 300.0
    statement_cache_size: int = 100
    ssl: tls.SSLContext | SslMode | bool | None = None
    password: str | None = field(default=None, repr=False)
    server_settings: Mapping[str, str] = field(default_factory=lambda: {"application_name": "deltastore"})

    def __post_init__(self) -> None:
        sizes = (self.min_size, self.max_size, self.statement_cache_size)
        if any(type(each) is not int or each < 0 for each in sizes) or not self.min_size <= self.max_size >= 1:
            raise InvalidConfigError(
                "pool sizes do not fit",
                detail=f"found min_size={self.min_size}, max_size={self.max_size}, "
                f"statement_cache_size={self.statement_cache_size}, expected integers, 0 <= min_size <= max_size",
            )
        check_seconds("timeout_seconds", self.timeout_seconds)
        check_seconds("connect_timeout_seconds", self.connect_timeout_seconds)
        if self.command_timeout_seconds is not None:
            check_seconds("command_timeout_seconds", self.command_timeout_seconds)
        if self.idle_lifetime_seconds != 0:
            check_seconds("idle_lifetime_seconds", self.idle_lifetime_seconds)


def check_seconds(name: str, value: object) -> None:
    """Refuses an option that is not a number of seconds above zero. Raises `InvalidConfigError`."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise InvalidConfigError(f"{name} must be a number of seconds above zero, got {value!r}")


async def open_pool(dsn: str, options: PoolOptions | None = None) -> Pool:
    """Opens a pool; the caller closes it.

    Raises:
        DatabaseUnavailableError: No connection within the configured time.
        DatabaseRefusedError: The server refused the login or the database.
        InvalidConfigError: The connection string or an option has a wrong form.
    """
    options = options or PoolOptions()
    pool = _create(dsn, options)
    try:
        async with asyncio.timeout(options.timeout_seconds):
            await pool
    except (ValueError, asyncpg.ClientConfigurationError) as error:
        raise InvalidConfigError(
            "connection string or options cannot be used",
            detail=_found_in(dsn) or f"found {type(error).__name__} while reading them",
            hint="expected postgresql://user@host:port/database, embedded, or embedded:FOLDER",
        ) from None
    except DRIVER_ERRORS as error:
        raise translate(error, address=address(dsn)) from error
    return pool


def address(dsn: str) -> str:
    """Host, port and database that a connection string names, for errors; never the user or the password.

    Empty where it could hold a part of an unquoted password.
    """
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return ""
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return ""
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    host, port = unquote(parts.netloc.rpartition("@")[2]) or options.get("host", ""), options.get("port", "")
    database = unquote(parts.path.removeprefix("/")) or options.get("dbname") or options.get("database", "")
    named = ("host", host), ("port", port), ("database", database)
    return ", ".join(f"{name} {value}" for name, value in named if value) or "the default host"


def _found_in(dsn: str) -> str:
    """What is wrong with the beginning of a connection string; only that, since the rest may hold a password."""
    scheme, separator, _ = dsn.partition("://")
    if not separator:
        return "found no postgresql:// at its beginning"
    is_ours = scheme in ("postgresql", "postgres") or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme, re.IGNORECASE)
    return "" if is_ours else f"found {scheme}://"


def _create(dsn: str, options: PoolOptions) -> Pool:
    return asyncpg.create_pool(
        dsn,
        min_size=options.min_size,
        max_size=options.max_size,
        max_inactive_connection_lifetime=options.idle_lifetime_seconds,
        reset=_keep_session,
        timeout=options.connect_timeout_seconds,
        command_timeout=options.command_timeout_seconds,
        statement_cache_size=options.statement_cache_size,
        ssl=options.ssl,
        password=options.password,
        server_settings=dict(options.server_settings),
    )


async def _keep_session(connection: object) -> None:
    """Replaces the driver's reset, a round trip after every call: no statement of ours changes a session."""
