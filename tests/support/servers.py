"""PostgreSQL servers for tests: which one, how it is tuned, and databases on it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from deltastore.embedded import EmbeddedServer, keeper

SPEED = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "200",
    "checkpoint_timeout": "1h",
    "max_wal_size": "4GB",
}
"""For servers whose data may be lost: tests that kill a server use `durable_server`."""


def programs_of(major: str) -> Path:
    """PostgreSQL's programs by major version: from the wheel, else from the system's packages."""
    from deltastore.embedded.programs import wheel_programs

    system = Path(f"/usr/lib/postgresql/{major}/bin")
    folder = wheel_programs().get(int(major), system)
    if not (folder / "postgres").exists():
        pytest.exit(f"DELTASTORE_TEST_POSTGRES={major}: no programs in {folder}", returncode=2)
    return folder


class DurableServer(EmbeddedServer):
    """A server of its own that keeps PostgreSQL's default durability, for tests that kill it."""

    def kill(self) -> None:
        """`kill -9` of the server with all its processes, as when the machine's memory runs out."""
        server = keeper.postmaster(self.folder)
        assert server is not None, "the server does not run"
        family = [server, *server.children(recursive=True)]
        for process in family:
            process.kill()
        deadline = time.monotonic() + 10
        while keeper.postmaster(self.folder) is not None and time.monotonic() < deadline:
            time.sleep(0.01)


def with_database(dsn: str, name: str) -> str:
    """The DSN of another database on the same server."""
    return urlsplit(dsn)._replace(path=f"/{name}").geturl()


def execute(dsn: str, statement: str, *names: str) -> None:
    """Runs one statement outside a transaction; each `{}` in it stands for one of the names."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@contextmanager
def database(server: str, template: str = "template0") -> Iterator[str]:
    """A database of its own: its DSN. At the end no connection may be left; then it is dropped."""
    name = f"test_{uuid.uuid4().hex}"
    execute(server, "CREATE DATABASE {} TEMPLATE {}", name, template)
    try:
        yield with_database(server, name)
        left = _connections_left(server, name)
    finally:
        execute(server, "DROP DATABASE {} WITH (FORCE)", name)
    assert not left, f"connections left open: {left}"


def _connections_left(server: str, name: str, seconds_max: float = 3) -> list[str]:
    """What the connections to a database did last; a closed one may need a moment to disappear."""
    query = "SELECT query FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
    deadline = time.monotonic() + seconds_max
    with psycopg.connect(server, autocommit=True) as connection:
        while (left := [row[0] for row in connection.execute(query, [name])]) and time.monotonic() < deadline:
            time.sleep(0.02)
    return left


@contextmanager
def container(major: str) -> Iterator[str]:
    """The DSN of a server in a container; needs Docker and the package testcontainers."""
    from testcontainers.postgres import PostgresContainer

    with PostgresContainer(f"postgres:{major}", driver=None) as running:
        yield running.get_connection_url()


def wants_container() -> bool:
    """Whether the run is told to use a container and Docker answers."""
    if os.environ.get("DELTASTORE_TEST_CONTAINER") != "1":
        return False
    import docker

    return bool(docker.from_env().ping())
