"""The embedded server shared by processes that come, go and are killed."""

from __future__ import annotations

import os
import pwd
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import psycopg
import pytest

from deltastore.embedded import EmbeddedServer, keeper
from tests.support.processes import Script, eventually, running
from tests.support.servers import DurableServer

USE = """
    import sys
    from deltastore.embedded import EmbeddedServer
    with EmbeddedServer(sys.argv[1]) as server:
        print(server.dsn)
        sys.stdin.read()
"""
"""Uses the server until its input ends."""

NEVER_LEAVES = """
    import sys
    from deltastore.embedded import EmbeddedServer
    server = EmbeddedServer(sys.argv[1])
    print(server.start())
    sys.stdin.read()
"""

TELLS_BEFORE_STARTING = """
    import sys
    from deltastore.embedded import EmbeddedServer
    print("begins")
    with EmbeddedServer(sys.argv[1]):
        sys.stdin.read()
"""

FORKS = """
    import os, sys
    from deltastore.embedded import EmbeddedServer
    with EmbeddedServer(sys.argv[1]) as server:
        if (child := os.fork()) == 0:
            server.stop()
            os._exit(0)
        os.waitpid(child, 0)
        print(server.dsn)
        sys.stdin.read()
"""


def is_stopped(folder: Path) -> bool:
    return keeper.postmaster(folder) is None and not keeper.is_listening(folder)


def has_keeper(folder: Path) -> bool:
    with keeper.locked(folder / keeper.KEEPER_LOCK, 0) as absent:
        return not absent


def keeper_process(folder: Path) -> psutil.Process:
    command = [keeper.__file__, str(folder)]
    return next(each for each in psutil.process_iter(["cmdline"]) if (each.info["cmdline"] or [])[-2:] == command)


def works(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


def test_the_last_process_to_leave_stops_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with running(USE, folder) as first, running(USE, folder) as second:
        dsn = first.line()
        assert second.line() == dsn
        first.finish()
        assert works(dsn)
        second.finish()
        assert is_stopped(folder)
    assert eventually(lambda: not has_keeper(folder))


def test_many_processes_begin_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with ExitStack() as stack:
        scripts: list[Script] = [stack.enter_context(running(USE, folder)) for _ in range(4)]
        assert len({script.line() for script in scripts}) == 1
        for script in scripts:
            script.finish()
    assert is_stopped(folder)


@pytest.mark.parametrize("code", [USE, NEVER_LEAVES])
def test_a_killed_process_does_not_keep_the_server(tmp_path: Path, code: str) -> None:
    folder = tmp_path / "server"
    with running(code, folder) as only:
        only.line()
        only.kill()
    assert eventually(lambda: is_stopped(folder))
    assert eventually(lambda: not has_keeper(folder))
    with EmbeddedServer(folder) as server:
        assert works(server.dsn)


def test_a_process_that_ends_without_leaving_does_not_keep_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with running(NEVER_LEAVES, folder) as only:
        only.line()
        only.finish()
    assert eventually(lambda: is_stopped(folder))


def test_a_killed_process_does_not_take_the_server_from_others(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with running(USE, folder) as first, running(USE, folder) as second:
        first.line()
        dsn = second.line()
        first.kill()
        time.sleep(2 * keeper.SETTLE_SECONDS)
        assert works(dsn)


def test_a_forked_child_that_leaves_does_not_stop_the_server(tmp_path: Path) -> None:
    with running(FORKS, tmp_path / "server") as parent:
        assert works(parent.line())
        parent.finish()
    assert eventually(lambda: is_stopped(tmp_path / "server"))


def test_interrupt_from_the_terminal_leaves_the_server_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with running(NEVER_LEAVES, folder, new_group=True) as first, EmbeddedServer(folder) as second:
        first.line()
        os.killpg(first.process.pid, signal.SIGINT)
        first.process.wait()
        assert works(second.dsn)
        assert has_keeper(folder)


def test_a_killed_keeper_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with running(NEVER_LEAVES, folder) as first:
        first.line()
        keeper_process(folder).kill()
        assert eventually(lambda: not has_keeper(folder))
        with running(NEVER_LEAVES, folder) as second:
            second.line()
            assert has_keeper(folder)
            first.kill()
            second.kill()
    assert eventually(lambda: is_stopped(folder))


def test_everything_killed_at_once(tmp_path: Path) -> None:
    server = DurableServer(tmp_path / "server")
    with running(NEVER_LEAVES, server.folder) as script:
        dsn = script.line()
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1")
        keeper_process(server.folder).kill()
        script.kill()
        server.kill()
    with server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT * FROM kept").fetchone() == (1,)


def test_stale_files_that_name_a_living_foreign_process(tmp_path: Path, durable_server: DurableServer) -> None:
    data = durable_server.folder / "data"
    durable_server.kill()
    user = "pgserver" if os.geteuid() == 0 else None
    with subprocess.Popen(["sleep", "60"], user=user, cwd="/") as foreign:
        for stale in (data / "postmaster.pid", data / ".s.PGSQL.5432.lock"):
            lines = stale.read_text().splitlines()
            stale.write_text("\n".join([str(foreign.pid), *lines[1:]]) + "\n")
        durable_server.start()
        assert works(durable_server.dsn)
        durable_server.stop()
        assert is_stopped(durable_server.folder)
        assert foreign.poll() is None
        foreign.kill()


def test_orphans_of_a_killed_server_are_waited_for(durable_server: DurableServer) -> None:
    """A backend that computes does not notice that the postmaster is gone; no second server may touch the data."""
    with psycopg.connect(durable_server.dsn, autocommit=True) as connection:
        busy = psutil.Process(connection.info.backend_pid)
        server = keeper.postmaster(durable_server.folder)
        assert server is not None
        busy.suspend()
        server.kill()
        assert eventually(lambda: keeper.postmaster(durable_server.folder) is None)
        with pytest.raises(Exception, match="not ready in time"):
            durable_server.start(seconds_max=1)
        busy.resume()
    durable_server.start()
    assert works(durable_server.dsn)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_killed_at_random_moments_of_a_start(tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed)
    folder = tmp_path / "server"
    for _ in range(6):
        with running(TELLS_BEFORE_STARTING, folder) as victim:
            victim.line()
            time.sleep(moments.uniform(0, 1))
            victim.kill()
        if moments.random() < 0.5:
            with EmbeddedServer(folder) as server:
                assert works(server.dsn)
    with EmbeddedServer(folder) as server:
        assert works(server.dsn)
    assert is_stopped(folder)
    assert eventually(lambda: not has_keeper(folder))


def others_can_read(path: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in path.resolve().parents)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a script as another user")
def test_as_an_ordinary_user(tmp_path: Path) -> None:
    python = next((each for each in (sys.executable, "/usr/bin/python3") if others_can_read(Path(each))), None)
    if python is None or not others_can_read(Path(keeper.__file__)):
        pytest.skip("the user nobody can read neither Python nor this checkout")
    user = pwd.getpwnam("nobody")
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, user.pw_uid, user.pw_gid)
    for parent in home.parents:
        parent.chmod(parent.stat().st_mode | 0o001)
    with running(USE, home / "server", user="nobody", python=python) as script:
        assert works(script.line())
        assert (home / "server" / "data").stat().st_uid == user.pw_uid
        script.finish()
    assert is_stopped(home / "server")
