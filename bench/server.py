"""The PostgreSQL server that all targets share, each run in a database of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psutil
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from bench.errors import TargetError, UsageError
from bench.measure import server_cpu_seconds

EMBEDDED = "embedded"  # the DSN of a server in a folder that is deleted afterwards
SETTINGS = (
    "server_version",
    "shared_buffers",
    "synchronous_commit",
    "fsync",
    "full_page_writes",
    "max_wal_size",
    "default_toast_compression",
    "data_checksums",
    "max_connections",
)


@dataclass(frozen=True)
class ServerUse:
    """Readings of a server at one moment, to be subtracted.

    Args:
        cpu_s: CPU time of all its processes; None if it runs on another machine.
        wal_bytes: Position in the write-ahead log.
    """

    cpu_s: float | None
    wal_bytes: int


class Server:
    """A connection to the server for everything that is not measured itself.

    Attributes:
        databases: Names of those made and not yet dropped.
    """

    def __init__(self, dsn: str) -> None:
        self.databases: set[str] = set()
        self._dsn = dsn
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._postmaster = self._find_postmaster()

    def create_database(self, name: str) -> str:
        """Makes an empty database, in place of one of this name that is there; returns its DSN."""
        self.drop_database(name)
        self._run(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        self.databases.add(name)
        parts = urlsplit(self._dsn)
        return urlunsplit(parts._replace(path=f"/{quote(name, safe='')}"))

    def drop_database(self, name: str) -> None:
        """Removes a database with all its data, whoever is connected."""
        self._run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        self.databases.discard(name)

    def use(self) -> ServerUse:
        """What the server has used so far."""
        row = self._fetch("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        return ServerUse(server_cpu_seconds(self._postmaster) if self._postmaster else None, int(row[0]))

    def settings(self) -> dict[str, str]:
        """The version and the settings that matter for the figures."""
        return {name: str(self._fetch(sql.SQL("SHOW {}").format(sql.Identifier(name)))[0]) for name in SETTINGS}

    def close(self) -> None:
        """Leaves the server."""
        self._connection.close()

    def _fetch(self, query: Any) -> Any:
        row = self._run(query).fetchone()
        if row is None:
            raise TargetError(f"the server gave no row for {query}")
        return row

    def _run(self, query: Any) -> psycopg.Cursor[Any]:
        try:
            return self._connection.execute(query)
        except psycopg.Error as error:
            raise TargetError(f"the server failed: {_first_line(error)}") from error

    def _find_postmaster(self) -> psutil.Process | None:
        """The postmaster, by the parent of our own backend, if the server runs on this machine."""
        try:
            backend = psutil.Process(self._fetch("SELECT pg_backend_pid()")[0])
            if "postgres" in backend.name():
                return backend.parent()
        except psutil.Error:
            return None
        return None


@contextmanager
def open_server(dsn: str) -> Iterator[Server]:
    """Connects to a DSN, or starts the embedded server: for `embedded` in a folder that is deleted afterwards.

    Raises:
        UsageError: The DSN cannot be read.
        TargetError: The server cannot be started or reached.
    """
    if dsn == EMBEDDED:
        with _temporary_folder() as folder, _embedded(folder) as embedded_dsn:
            yield from _connected(embedded_dsn)
    elif dsn.startswith("embedded:"):
        folder_name = dsn.removeprefix("embedded:")
        if not folder_name:
            raise UsageError(f"no folder in {dsn!r}: expected embedded:<folder>")
        with _embedded(Path(folder_name)) as embedded_dsn:
            yield from _connected(embedded_dsn)
    elif dsn.startswith(("postgresql://", "postgres://")):
        _check_readable(dsn)
        yield from _connected(dsn)
    else:
        raise UsageError(f"{dsn!r} is no DSN: expected embedded, embedded:<folder> or postgresql://…")


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="deltastore-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_readable(dsn: str) -> None:
    """What a DSN's reader quotes may be a piece of the password, so only the words before that are said."""
    try:
        urlsplit(dsn)
        conninfo_to_dict(dsn)
    except (ValueError, psycopg.ProgrammingError) as error:
        problem = str(error).strip().partition(":")[0]
        expected = "postgresql://user:password@host:port/database, with special characters as %XX"
        raise UsageError(f"--dsn cannot be read: {problem}; expected {expected}") from error


def _connected(dsn: str) -> Iterator[Server]:
    try:
        server = Server(dsn)
    except psycopg.Error as error:
        raise TargetError(f"no PostgreSQL server at {_without_password(dsn)}: {_first_line(error)}") from error
    try:
        yield server
    finally:
        server.close()


@contextmanager
def _embedded(folder: Path) -> Iterator[str]:
    from deltastore.embedded import EmbeddedServer
    from deltastore.errors import DeltastoreError

    server = EmbeddedServer(folder)
    try:
        server.start()
    except DeltastoreError as error:
        raise TargetError(f"the embedded server did not start: {_reason(error.message, error.detail)}") from error
    try:
        yield server.dsn
    finally:
        server.stop()


def _reason(message: str, output: str) -> str:
    """A message with the first line of a program's output that names an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = (line for line in lines if any(word in line for word in ("FATAL", "PANIC", "ERROR", "error:")))
    return f"{message}: {next(telling, lines[-1])}" if lines else message


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().split("\n")[0]


def _without_password(dsn: str) -> str:
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2] or "a local socket"
    return f"{host}{parts.path}"
