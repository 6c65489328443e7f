"""Errors of the driver, what they become, and whether a call that met one runs again."""

from __future__ import annotations

import asyncpg
import pytest

from deltastore.errors import DatabaseRefusedError, DatabaseUnavailableError, SchemaVersionError
from deltastore.postgres.failures import DRIVER_ERRORS, is_collision, is_lost_connection, translate

LOST = [
    asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
    asyncpg.InterfaceError("connection is closed"),
    asyncpg.InternalClientError("cannot switch to state 11; another operation (2) is in progress"),
    asyncpg.AdminShutdownError("terminating connection due to administrator command"),
    asyncpg.CrashShutdownError("terminating connection because of crash of another server process"),
    asyncpg.CannotConnectNowError("the database system is starting up"),
    asyncpg.TooManyConnectionsError("sorry, too many clients already"),
    asyncpg.exceptions.IdleSessionTimeoutError("terminating connection due to idle-session timeout"),
    ConnectionRefusedError(111, "Connection refused"),
    ConnectionResetError(104, "Connection reset by peer"),
    BrokenPipeError(32, "Broken pipe"),
]
COLLIDED = [
    asyncpg.SerializationError("could not serialize access"),
    asyncpg.DeadlockDetectedError("deadlock detected"),
    asyncpg.InvalidCachedStatementError("cached statement plan is invalid"),
]
REFUSED = [
    (asyncpg.InsufficientPrivilegeError("permission denied for table"), "grant the role"),
    (asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT in a read-only transaction"), "primary server"),
    (asyncpg.DiskFullError("could not extend file"), "disk space"),
    (asyncpg.InvalidPasswordError("password authentication failed"), "user and password"),
    (asyncpg.InvalidCatalogNameError("database does not exist"), "create the database"),
    (asyncpg.InvalidSQLStatementNameError("prepared statement does not exist"), "statement_cache_size=0"),
    (asyncpg.DuplicatePreparedStatementError("prepared statement already exists"), "statement_cache_size=0"),
    (asyncpg.QueryCanceledError("canceling statement due to statement timeout"), "statement_timeout"),
    (asyncpg.LockNotAvailableError("canceling statement due to lock timeout"), "lock_timeout"),
    (asyncpg.DataError("invalid input for query argument $1"), ""),
    (asyncpg.UniqueViolationError("duplicate key value"), ""),
    (asyncpg.PostgresSyntaxError("syntax error"), ""),
]
MISSING = [
    asyncpg.UndefinedTableError("relation does not exist"),
    asyncpg.UndefinedColumnError("column does not exist"),
    asyncpg.InvalidSchemaNameError("schema does not exist"),
]


def name(value: object) -> str:
    return type(value).__name__ if isinstance(value, Exception) else ""


@pytest.mark.parametrize("error", LOST, ids=name)
def test_lost_connections_are_tried_again(error: Exception) -> None:
    assert isinstance(error, DRIVER_ERRORS)
    assert is_lost_connection(error)
    assert not is_collision(error)
    assert type(translate(error)) is DatabaseUnavailableError
    assert translate(error).retryable


@pytest.mark.parametrize("error", COLLIDED, ids=name)
def test_collisions_are_tried_again(error: Exception) -> None:
    assert is_collision(error)
    assert not is_lost_connection(error)
    assert type(translate(error)) is DatabaseUnavailableError


@pytest.mark.parametrize(("error", "hint"), REFUSED, ids=name)
def test_refusals_are_not_tried_again(error: Exception, hint: str) -> None:
    assert isinstance(error, DRIVER_ERRORS)
    assert not is_lost_connection(error)
    assert not is_collision(error)
    ours = translate(error, schema="x")
    assert type(ours) is DatabaseRefusedError
    assert not ours.retryable
    assert hint in ours.hint
    assert name(error) in ours.detail


@pytest.mark.parametrize("error", MISSING, ids=name)
def test_what_is_missing_asks_for_setup(error: Exception) -> None:
    assert not is_lost_connection(error)
    ours = translate(error, schema="x")
    assert type(ours) is SchemaVersionError
    assert "'x'" in str(ours)
    assert "deltastore schema up" in ours.hint


def test_silence_is_not_tried_again() -> None:
    assert not is_lost_connection(TimeoutError())
    assert type(translate(TimeoutError())) is DatabaseUnavailableError
