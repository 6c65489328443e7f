"""Servers and databases for all tests.

`DELTASTORE_TEST_DSN` names a server to use (its role may create databases); `DELTASTORE_TEST_CONTAINER=1` starts one in
Docker; else one embedded server serves the whole run, all its workers. `DELTASTORE_TEST_POSTGRES` is the major version
of the latter, by default 18: 16 and 18 come with the wheel, others are looked for in the system's packages.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deltastore.embedded import EmbeddedServer
from tests.support.servers import (
    SPEED,
    DurableServer,
    container,
    database,
    execute,
    programs_of,
    wants_container,
    with_database,
)

FOLDER = "DELTASTORE_TEST_FOLDER"


def pytest_configure(config: pytest.Config) -> None:
    """A folder of the run's own for servers, which all workers inherit.

    Not pytest's: each new session of root's shuts other users out of that one, and servers run as another user.

    Tests interrupt processes; a run in the background of a shell would hand them down that interrupts are ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="deltastore-tests-")
        Path(os.environ[FOLDER]).chmod(0o755)
        config.add_cleanup(lambda: shutil.rmtree(os.environ[FOLDER], ignore_errors=True))


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    """Variables of the user's shell must not steer a connection or a command."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PG") or name == "DELTASTORE_DSN"]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def postgres_major() -> str:
    """The major version of the servers that tests start."""
    return os.environ.get("DELTASTORE_TEST_POSTGRES", "18")


@pytest.fixture(scope="session")
def server_dsn(postgres_major: str) -> Iterator[str]:
    """The DSN of a server whose data may be lost, shared by all workers of the run."""
    if dsn := os.environ.get("DELTASTORE_TEST_DSN"):
        yield dsn
    elif wants_container():
        with container(postgres_major) as dsn:
            yield dsn
    else:
        folder = Path(os.environ[FOLDER]) / "shared"
        with EmbeddedServer(folder, programs=programs_of(postgres_major), settings=SPEED) as server:
            yield server.dsn


@pytest.fixture(scope="session")
def _template(server_dsn: str) -> Iterator[str]:
    """A database with deltastore's schema, to be cloned: cheaper than the migrations for each test."""
    name = f"template_{os.getpid()}"
    execute(server_dsn, "CREATE DATABASE {}", name)
    with ThreadPoolExecutor(1) as thread:  # a loop of its own, beside the one that pytest-asyncio manages
        thread.submit(asyncio.run, _set_up(with_database(server_dsn, name))).result()
    yield name
    execute(server_dsn, "DROP DATABASE {} WITH (FORCE)", name)


async def _set_up(dsn: str) -> None:
    from deltastore.postgres.pool import open_pool
    from deltastore.postgres.storage import PostgresStorage

    pool = await open_pool(dsn)
    try:
        await PostgresStorage(pool).setup()
    finally:
        await pool.close()


@pytest.fixture
def database_dsn(server_dsn: str, _template: str) -> Iterator[str]:
    """The DSN of a fresh database with deltastore's schema in it; fails the test if a connection is left open."""
    with database(server_dsn, _template) as dsn:
        yield dsn


@pytest.fixture
def empty_database_dsn(server_dsn: str) -> Iterator[str]:
    """The DSN of a fresh database with nothing in it; fails the test if a connection is left open."""
    with database(server_dsn) as dsn:
        yield dsn


@pytest.fixture
def server_home() -> Path:
    """A new folder for a server. Other sessions of pytest shut its user out of `tmp_path`, but not of this one."""
    return Path(tempfile.mkdtemp(prefix="home-", dir=os.environ[FOLDER]))


@pytest.fixture
def durable_server(server_home: Path, postgres_major: str) -> Iterator[DurableServer]:
    """A started server of the test's own with PostgreSQL's default durability: `.dsn`, `.kill()`, `.start()` again."""
    with DurableServer(server_home / "durable", programs=programs_of(postgres_major)) as server:
        yield server
