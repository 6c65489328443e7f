"""Targets without a server: the in-memory saver (the floor) and SQLite."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from langgraph.checkpoint.memory import InMemorySaver

from bench.errors import UsageError
from bench.targets.base import Place, Saver, TableBytes, Target


class MemoryTarget(Target):
    """`InMemorySaver`. A new saver is a new object on the same dicts; its bytes are those of the serialized values."""

    needs_server = False

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._first = InMemorySaver()

    @asynccontextmanager
    async def open(self, *, dsn: str | None = None) -> AsyncIterator[Saver]:
        saver = InMemorySaver()
        saver.storage, saver.writes, saver.blobs = self._first.storage, self._first.writes, self._first.blobs
        yield saver

    async def stored(self) -> list[TableBytes]:
        checkpoints = sum(
            len(checkpoint[1]) + len(metadata[1])
            for namespaces in self._first.storage.values()
            for rows in namespaces.values()
            for checkpoint, metadata, _parent in rows.values()
        )
        blobs = sum(len(payload) for _type, payload in self._first.blobs.values())
        writes = sum(len(write[2][1]) for task in self._first.writes.values() for write in task.values())
        return [TableBytes("storage", checkpoints), TableBytes("blobs", blobs), TableBytes("writes", writes)]


class SqliteTarget(Target):
    """`AsyncSqliteSaver` on a file."""

    needs_server = False

    @asynccontextmanager
    async def open(self, *, dsn: str | None = None) -> AsyncIterator[Saver]:
        try:
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
        except ImportError as error:
            raise UsageError(f"target sqlite needs the package langgraph-checkpoint-sqlite: {error}") from error
        async with AsyncSqliteSaver.from_conn_string(str(self._path)) as saver:
            await saver.setup()
            yield saver

    async def stored(self) -> list[TableBytes]:
        """Pages by table and index, with what the write-ahead log still holds."""
        tables: dict[str, int] = defaultdict(int)
        indexes: dict[str, int] = defaultdict(int)
        with closing(sqlite3.connect(self._path)) as connection:
            owners = dict(connection.execute("SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index'"))
            for name, size_bytes in connection.execute(self._sizes_query(connection)):
                (indexes if name in owners else tables)[owners.get(name, name)] += size_bytes
        return [TableBytes(name, size_bytes, indexes[name]) for name, size_bytes in sorted(tables.items())]

    @staticmethod
    def _sizes_query(connection: sqlite3.Connection) -> str:
        options = {row[0] for row in connection.execute("PRAGMA compile_options")}
        if "ENABLE_DBSTAT_VTAB" in options:
            return "SELECT name, sum(pgsize) FROM dbstat GROUP BY name"
        return "SELECT 'whole file', page_count * page_size FROM pragma_page_count, pragma_page_size"

    @property
    def _path(self) -> str:
        return str(self.place.folder / "checkpoints.sqlite")
