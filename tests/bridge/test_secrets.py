"""Opening fails, or options are wrong: a typed error, nothing left, no password shown, and a second try works."""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deltastore import (
    DatabaseRefusedError,
    DatabaseUnavailableError,
    DeltaSaver,
    InvalidConfigError,
    SchemaVersionError,
)
from deltastore.embedded import EmbeddedServer
from deltastore.postgres.pool import PoolOptions
from tests.bridge.savers import config
from tests.support.servers import SPEED, programs_of

SECRET = "hunter2-Secret"


@pytest.fixture(scope="module")
def guarded_dsn(tmp_path_factory: pytest.TempPathFactory, postgres_major: str) -> Iterator[str]:
    """A server that asks the role `app` for a password; the DSN is without it."""
    folder = tmp_path_factory.mktemp("guarded") / "server"
    with EmbeddedServer(folder, programs=programs_of(postgres_major), settings=SPEED) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE app LOGIN SUPERUSER PASSWORD '{SECRET}'")
            rules = folder / "data" / "pg_hba.conf"
            rules.write_text("local all app scram-sha-256\n" + rules.read_text())
            connection.execute("SELECT pg_reload_conf()")
        yield server.dsn.replace("postgres@", "app@")


def with_password(dsn: str, password: str) -> str:
    return dsn.replace("app@", f"app:{password}@")


def assert_nothing_left() -> None:
    assert not [thread for thread in threading.enumerate() if thread.name == "deltastore"]


@pytest.mark.parametrize("form", ["dsn", "option"])
def test_the_right_password_opens(guarded_dsn: str, form: str) -> None:
    given: dict[str, Any] = {"password": SECRET} if form == "option" else {}
    dsn = guarded_dsn if form == "option" else with_password(guarded_dsn, SECRET)
    with DeltaSaver.from_conn_string(dsn, **given) as saver:
        saver.setup()
        assert saver.get_tuple(config()) is None


@pytest.mark.parametrize("form", ["dsn", "option"])
@pytest.mark.parametrize("wrong", [f"{SECRET}-wrong", ""], ids=["wrong", "none"])
def test_a_wrong_password_is_refused_and_never_shown(
    guarded_dsn: str, form: str, wrong: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    given: dict[str, Any] = {"password": wrong or None} if form == "option" else {}
    dsn = with_password(guarded_dsn, wrong) if form == "dsn" and wrong else guarded_dsn
    saver = DeltaSaver.from_conn_string(dsn, **given)
    for _ in range(2):
        with pytest.raises(DatabaseRefusedError, match="check user and password") as caught, saver:
            pass
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(saver) + str(saver)
        assert SECRET not in shown
    assert SECRET not in caplog.text + "".join(capfd.readouterr())
    assert_nothing_left()


def test_nothing_shows_the_password(guarded_dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with DeltaSaver.from_conn_string(with_password(guarded_dsn, SECRET), schema="none") as saver:
        with pytest.raises(SchemaVersionError) as caught:
            saver.get_tuple(config())
        engine = saver._bridge.engine
        shown = [repr(saver), str(saver), repr(saver._bridge), repr(engine), repr(engine.storage), repr(vars(saver))]
        shown += traceback.format_exception(caught.value)
        shown += [repr(PoolOptions(password=SECRET)), repr(engine.storage._pool)]  # type: ignore[attr-defined]
    assert SECRET not in "".join(shown) + caplog.text


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgres//app:{SECRET}@host/db",
        f"postgresql://app:{SECRET}@host:port/db",
        f"mysql://app:{SECRET}@host/db",
        f"postgresql://app:{SECRET}@host/db?sslmode={SECRET}",
    ],
)
def test_a_malformed_connection_string_is_not_shown(dsn: str) -> None:
    with pytest.raises(InvalidConfigError, match="connection string") as caught, DeltaSaver.from_conn_string(dsn):
        pass
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert_nothing_left()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:5432"])
def test_a_server_that_is_away_is_an_error_in_time(address: str) -> None:
    saver = DeltaSaver.from_conn_string(
        f"postgresql://app:{SECRET}@{address}/db", timeout_seconds=3, connect_timeout_seconds=2
    )
    for _ in range(2):
        with pytest.raises(DatabaseUnavailableError) as caught, saver:
            pass
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        assert caught.value.retryable
    assert_nothing_left()


async def test_a_server_that_comes_later(tmp_path: Path, postgres_major: str) -> None:
    """A failed opening does not use up the saver."""
    server = EmbeddedServer(tmp_path / "server", programs=programs_of(postgres_major), settings=SPEED)
    with server:
        dsn = server.dsn
    saver = DeltaSaver.from_conn_string(dsn, timeout_seconds=2)
    with pytest.raises(DatabaseUnavailableError):
        await saver.__aenter__()
    with pytest.raises(DatabaseUnavailableError):
        saver.__enter__()
    assert_nothing_left()
    with server:
        async with saver:
            await saver.setup()
            assert await saver.aget_tuple(config()) is None
        with saver:
            assert saver.get_tuple(config()) is None


@pytest.mark.parametrize(
    "options",
    [
        {"snapshot_frequency": 0},
        {"snapshot_frequency": 2.5},
        {"snapshot_frequency": True},
        {"cache_bytes": -1},
        {"schema": ""},
        {"schema": "a\0b"},
        {"schema": "x" * 64},
        {"schema": None},
        {"min_size": 5, "max_size": 2},
        {"max_size": 0, "min_size": 0},
        {"min_size": -1},
        {"timeout_seconds": 0},
        {"timeout_seconds": -1},
        {"timeout_seconds": "soon"},
        {"command_timeout_seconds": 0},
        {"connect_timeout_seconds": 0},
        {"idle_lifetime_seconds": -1},
        {"statement_cache_size": -1},
        {"max_size": 2.5},
    ],
    ids=str,
)
def test_options_of_a_wrong_form_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError):
        DeltaSaver.from_conn_string("postgresql://nobody@nowhere.invalid/none", **options)


@pytest.mark.parametrize("make", [DeltaSaver.from_conn_string, DeltaSaver.in_memory])
def test_unknown_options_are_refused(make: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        make(*["postgresql:///db"] * (make == DeltaSaver.from_conn_string), snapshot_freqency=3)


def test_the_embedded_form_needs_a_folder() -> None:
    with pytest.raises(InvalidConfigError, match="folder"), contextlib.ExitStack() as stack:
        stack.enter_context(DeltaSaver.from_conn_string("embedded:"))
