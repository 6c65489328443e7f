"""Threads in a database file of LangGraph's SQLite saver, opened for reading only.

That saver stores each checkpoint as one document with all its channel values in it. The document is unpacked without
opening the objects in it, and each channel's value is taken as the bytes that it is (`raw.py`). Queued sends of old
formats are part of the document, and LangGraph knows what to do with them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from deltastore.core.codec import EncodedValue
from deltastore.errors import DatabaseRefusedError, InvalidConfigError
from deltastore.importer.raw import OPTION, RawValues, encode_shallow, whole
from deltastore.importer.reading import Reading, kept_of
from deltastore.importer.source import (
    NOTHING_BEFORE,
    Before,
    Node,
    OpenThread,
    SkipThread,
    SourceCheckpoint,
    SourceWrite,
    ThreadShape,
)
from deltastore.importer.tree import Ancestors


class SqliteSource:
    """Threads of a `SqliteSaver`.

    Args:
        path: The database file.
        reading: How values are decoded.

    Raises:
        InvalidConfigError: There is no such file, or it has no such tables.
    """

    def __init__(self, path: Path, reading: Reading) -> None:
        self._path = path
        self._reading = reading
        if not path.is_file():
            raise InvalidConfigError(f"there is no file {str(path)!r}")
        columns = {row["name"] for row in self._fetch("PRAGMA table_info(writes)")}
        if not columns:
            raise InvalidConfigError(f"{str(path)!r} has no tables of LangGraph's SQLite saver")
        self._task_path = "task_path" if "task_path" in columns else "''"

    async def threads(self) -> AsyncIterator[str]:
        """The ids of all threads."""
        for row in self._fetch("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id"):
            yield row["thread_id"]

    @asynccontextmanager
    async def open(self, thread_id: str) -> AsyncIterator[OpenThread]:
        """Opens one thread for reading, as of one moment."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN")
            yield _SqliteThread(connection, self._task_path, self._reading, thread_id)

    async def close(self) -> None:
        """Nothing: each thread has a connection of its own."""

    def _fetch(self, statement: str) -> list[sqlite3.Row]:
        try:
            with closing(self._connect()) as connection:
                return connection.execute(statement).fetchall()
        except sqlite3.Error as error:
            raise self._refused(error) from error

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            connection.execute("SELECT 1 FROM sqlite_master")
        except sqlite3.Error as error:
            raise self._refused(error) from error
        connection.row_factory = sqlite3.Row
        return connection

    def _refused(self, error: sqlite3.Error) -> DatabaseRefusedError:
        return DatabaseRefusedError(f"{str(self._path)!r} cannot be read", detail=str(error))


class _SqliteThread:
    """One thread in one transaction."""

    def __init__(self, connection: sqlite3.Connection, task_path: str, reading: Reading, thread_id: str) -> None:
        self._connection = connection
        self._task_path = task_path
        self._reading = reading
        self._thread_id = thread_id
        self._raw = RawValues(reading.cipher, reading.is_langgraph)

    async def shape(self) -> ThreadShape:
        """Its structure."""
        nodes, source_bytes = [], 0
        for row in self._rows(
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, length(checkpoint) AS bytes FROM checkpoints"
        ):
            nodes.append(Node(row["checkpoint_ns"], row["checkpoint_id"], row["parent_checkpoint_id"] or None))
            source_bytes += row["bytes"] or 0
        writes: set[tuple[str, str, str, int]] = set()
        changing: dict[tuple[str, str, str, int], EncodedValue] = {}
        for row in self._rows(
            "SELECT checkpoint_ns, checkpoint_id, task_id, idx, type, length(value) AS bytes,"
            " CASE WHEN idx < 0 THEN value END AS value FROM writes"
        ):
            key = row["checkpoint_ns"], row["checkpoint_id"], row["task_id"], row["idx"]
            writes.add(key)
            source_bytes += row["bytes"] or 0
            if row["idx"] < 0:
                changing[key] = self._raw.cut(row["type"], row["value"] or b"", _where(*key[:2])).value
        newest = max(nodes, key=lambda node: node.checkpoint_id, default=None)
        time = None if newest is None else self._document(newest)[0].get("ts")
        return ThreadShape(nodes, frozenset(writes), changing, source_bytes, time)

    async def checkpoints(
        self,
        order: Sequence[Node],
        before: Before = NOTHING_BEFORE,  # noqa: ARG002 - each checkpoint has all its values here
    ) -> AsyncIterator[SourceCheckpoint]:
        """Its checkpoints in this order."""
        ancestors: Ancestors[dict[str, EncodedValue]] = Ancestors(order)
        for node in order:
            checkpoint, values, metadata, stored_bytes = self._document(node)
            parent_values = ancestors.parent_of(node) or {}
            kept = kept_of(parent_values, values)
            ancestors.keep(node, values)
            yield SourceCheckpoint(
                node,
                checkpoint,
                metadata,
                {channel: value for channel, value in values.items() if channel not in kept},
                kept,
                self._writes(node),
                stored_bytes,
            )

    async def orphans(self) -> AsyncIterator[tuple[Node, Sequence[SourceWrite]]]:
        """Pending writes to checkpoints that are not there."""
        rows = self._rows(
            "SELECT DISTINCT checkpoint_ns, checkpoint_id FROM writes",
            " AND NOT EXISTS (SELECT 1 FROM checkpoints AS c WHERE c.thread_id = writes.thread_id"
            " AND c.checkpoint_ns = writes.checkpoint_ns AND c.checkpoint_id = writes.checkpoint_id)",
        )
        for row in rows:
            node = Node(row["checkpoint_ns"], row["checkpoint_id"], None)
            yield node, self._writes(node)

    async def load(self, node: Node) -> CheckpointTuple:
        """One checkpoint, decoded in the way of LangGraph's saver: the document as a whole."""
        row = self._row(node)
        where = _where(*node.key)
        checkpoint = self._reading.loads(row["type"], row["checkpoint"], where)
        pending = [
            (each["task_id"], each["channel"], self._reading.loads(each["type"], each["value"] or b"", where))
            for each in self._pending(node)
        ]
        parent = None if node.parent_id is None else self._config(node.namespace, node.parent_id)
        config = self._config(node.namespace, node.checkpoint_id)
        return CheckpointTuple(config, checkpoint, cast("Any", _metadata(row)), parent, pending)

    def _document(self, node: Node) -> tuple[dict[str, Any], dict[str, EncodedValue], dict[str, Any], int]:
        """A checkpoint without its values, these encoded, its metadata, and the stored bytes."""
        row, where = self._row(node), _where(*node.key)
        kind, data = self._raw.decrypted(row["type"] or "msgpack", row["checkpoint"] or b"", where)
        try:
            if kind == "json":
                checkpoint = json.loads(data)
            elif kind == "msgpack":
                checkpoint = ormsgpack.unpackb(data, ext_hook=ormsgpack.Ext, option=OPTION)
            else:
                raise ValueError("unknown type")  # noqa: TRY301 - same reason as for unreadable bytes
            values = {
                channel: self._value(kind, value, f"{where}, channel {channel!r}")
                for channel, value in (checkpoint.pop("channel_values", None) or {}).items()
            }
        except SkipThread:
            raise
        except Exception as error:
            raise SkipThread(f"{where}: its document (type {kind!r}) cannot be decoded: {error}") from error
        if kind == "json" and any('"lc"' in json.dumps(value) for value in checkpoint.values()):
            raise SkipThread(f"{where}: its document has objects in JSON form outside of the channels")
        return checkpoint, values, _metadata(row), len(data)

    def _value(self, kind: str, value: Any, where: str) -> EncodedValue:
        if value is None:
            return whole("null", b"")
        if isinstance(value, bytes):
            return whole("bytes", value)
        if kind == "json":
            return self._raw.cut("json", json.dumps(value).encode(), where).value
        data = ormsgpack.packb(value, option=OPTION)
        return self._raw.proved_value(encode_shallow(value, data), where)

    def _writes(self, node: Node) -> list[SourceWrite]:
        writes = []
        for row in self._pending(node):
            where = f"{_where(*node.key)}, write to {row['channel']!r}"
            value = self._raw.cut(row["type"], row["value"] or b"", where).value
            writes.append(SourceWrite(row["task_id"], row["task_path"], row["idx"], row["channel"], value))
        return writes

    def _pending(self, node: Node) -> list[sqlite3.Row]:
        """Pending writes in the order in which they count."""
        return self._rows(
            f"SELECT task_id, {self._task_path} AS task_path, idx, channel, type, value FROM writes",  # noqa: S608
            " AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_path, task_id, idx",
            *node.key,
        )

    def _row(self, node: Node) -> sqlite3.Row:
        [row] = self._rows(
            "SELECT type, checkpoint, metadata FROM checkpoints",
            " AND checkpoint_ns = ? AND checkpoint_id = ?",
            *node.key,
        )
        return row

    def _rows(self, select: str, more: str = "", *arguments: Any) -> list[sqlite3.Row]:
        try:
            return self._connection.execute(
                f"{select} WHERE thread_id = ?{more}", (self._thread_id, *arguments)
            ).fetchall()
        except sqlite3.Error as error:
            raise SkipThread(f"the database cannot be read: {error}") from error

    def _config(self, namespace: str, checkpoint_id: str) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": self._thread_id,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint_id,
            }
        }


def _metadata(row: sqlite3.Row) -> dict[str, Any]:
    return {} if row["metadata"] is None else dict(json.loads(row["metadata"]))


def _where(namespace: str, checkpoint_id: str) -> str:
    return f"namespace {namespace!r}, checkpoint {checkpoint_id!r}"
