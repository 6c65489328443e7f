"""Errors of the driver to ours, in one place, which also says whether trying again can help.

A failed statement may have been committed before the line broke. All of ours can be run twice: reads by nature; a save
finds its own row (`Refusal.EXISTS`, and the engine compares); pending writes are stored a second time, which readers
merge (the first wins); deletions find nothing left; a copy finds its target taken, and says so. So every call that lost
its connection may run again. `edit` is different: its caller decides between the statements, so a line that is lost on
the way ends it.
"""

from __future__ import annotations

import asyncpg

from deltastore.errors import DatabaseError, DatabaseRefusedError, DatabaseUnavailableError, SchemaVersionError

SETUP_HINT = "run `deltastore schema up` or `await saver.setup()` once, with a role that may create tables"

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""Everything that a call of the driver may raise because of the database or the way to it."""

_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.exceptions.IdleInTransactionSessionTimeoutError,
    asyncpg.exceptions.IdleSessionTimeoutError,
    asyncpg.InternalClientError,  # the driver was told of the end of the session while it began a statement
    OSError,
)
_COLLIDED = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.InvalidCachedStatementError)
_MISSING = (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.UndefinedColumnError)

_GRANT_HINT = "grant the role USAGE on the schema and its sequence, and SELECT, INSERT, UPDATE, DELETE on its tables"
_TIMEOUT_HINT = "raise the server's statement_timeout or lock_timeout for this role"
_POOLER_HINT = "a transaction pooler without prepared statements is in between: set statement_cache_size=0"

_HINTS: tuple[tuple[type[Exception], str], ...] = (
    (asyncpg.InsufficientPrivilegeError, _GRANT_HINT),
    (asyncpg.ReadOnlySQLTransactionError, "connect to the primary server, or end its read-only mode"),
    (asyncpg.DiskFullError, "free disk space on the database server"),
    (asyncpg.InvalidAuthorizationSpecificationError, "check user and password of the connection"),
    (asyncpg.InvalidCatalogNameError, "create the database, or correct its name in the connection string"),
    (asyncpg.InvalidSQLStatementNameError, _POOLER_HINT),
    (asyncpg.DuplicatePreparedStatementError, _POOLER_HINT),
    (asyncpg.QueryCanceledError, _TIMEOUT_HINT),
    (asyncpg.LockNotAvailableError, _TIMEOUT_HINT),
)


def is_lost_connection(error: Exception) -> bool:
    """Whether another connection, now or a moment later, may succeed. The failed statement may have been committed."""
    if isinstance(error, TimeoutError):
        return False
    return isinstance(error, _LOST) or type(error) is asyncpg.InterfaceError


def is_collision(error: Exception) -> bool:
    """Whether the server rolled the transaction back in favour of another one: the same again can succeed at once."""
    return isinstance(error, _COLLIDED)


def translate(error: Exception, *, schema: str = "", address: str = "") -> DatabaseError:
    """Our error for one of `DRIVER_ERRORS`; raise it `from` the original. `address`: what was to be reached."""
    found = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if address:
        found = f"{address}: {found}"
    if isinstance(error, _MISSING):
        return SchemaVersionError(f"schema {schema!r} is missing or incomplete", detail=found, hint=SETUP_HINT)
    if isinstance(error, TimeoutError):
        return DatabaseUnavailableError("the database did not answer in time", detail=found)
    if is_lost_connection(error) or is_collision(error):
        return DatabaseUnavailableError("the database cannot be reached", detail=found)
    hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")
    return DatabaseRefusedError("the database refused a statement", detail=found, hint=hint)
