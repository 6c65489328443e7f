"""Threads in the tables of LangGraph's PostgreSQL saver, of every version that has a row for each checkpoint.

What the tables hold (they are the saver's own; nothing is written to them, each thread is read in one read-only
transaction with one snapshot):

- `checkpoints`: a JSON document for each checkpoint. Since version 3 of the saver it also has the channel values that
  are text, numbers, booleans or null; `true` for a channel of which a `_DeltaSnapshot` is stored elsewhere;
- `checkpoint_blobs`: every other value, once for each version of its channel;
- `checkpoint_writes`: pending writes. Checkpoints of a format below 4 have no queued sends of their own: they are the
  writes to `__pregel_tasks` at the parent, and the saver adds them as a channel when it reads. So is it done here.

Values are read in the order of the tree, some megabytes at a time, and each one once. What the parent's value begins
with is not looked at again (`raw.py`). So neither the length of a thread nor that of its values decides about memory.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from typing import Any, cast

import asyncpg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS

from deltastore.core.codec import EncodedValue
from deltastore.errors import DatabaseRefusedError, InvalidConfigError
from deltastore.importer.assemble import FIRST_VERSION, OWN_SENDS_VERSION, Assembler, StoredCheckpoint, Typed
from deltastore.importer.raw import RawValues
from deltastore.importer.reading import Reading
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
from deltastore.postgres.failures import DRIVER_ERRORS, translate
from deltastore.postgres.naming import quote_schema
from deltastore.postgres.pool import Pool, PoolOptions, open_pool
from deltastore.postgres.queries import AnyConnection

CHUNK_BYTES = 8 * 1024 * 1024
CHUNK_CHECKPOINTS = 64
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_TABLES = ("checkpoint_blobs", "checkpoint_writes", "checkpoints")
_NEEDED = (
    "checkpoints.checkpoint_id",
    "checkpoints.parent_checkpoint_id",
    "checkpoint_blobs.version",
    "checkpoint_writes.idx",
)


class TablesSource:
    """Threads of a `PostgresSaver`. Made by `open`."""

    def __init__(self, pool: Pool, text: Mapping[str, str], reading: Reading) -> None:
        self._pool = pool
        self._text = text
        self._reading = reading

    @classmethod
    async def connect(
        cls, dsn: str, reading: Reading, *, schema: str | None = None, connections: int = 4
    ) -> TablesSource:
        """Connects, and finds out which version of the tables there is.

        Args:
            dsn: Where the tables are.
            reading: How values are decoded.
            schema: Their schema; by default the session's search path.
            connections: At most so many; one for each thread that is read at the same time, and one more.

        Raises:
            DatabaseError: The database is away, or refuses.
            InvalidConfigError: There are no such tables.
        """
        options = PoolOptions(max_size=connections, command_timeout_seconds=None)
        pool = await open_pool(dsn, options)
        try:
            async with pool.acquire() as connection:
                return cls(pool, await _text_for(connection, schema), reading)
        except BaseException:
            await pool.close()
            raise

    async def threads(self) -> AsyncIterator[str]:
        """The ids of all threads."""
        async with self._snapshot() as connection:
            records = await connection.fetch(self._text["threads"])
        for record in records:
            yield record["thread_id"]

    @asynccontextmanager
    async def open(self, thread_id: str) -> AsyncIterator[OpenThread]:
        """Opens one thread for reading, as of one moment."""
        async with self._snapshot() as connection:
            yield _TablesThread(connection, self._text, self._reading, thread_id)

    async def close(self) -> None:
        """Closes the connections."""
        await self._pool.close()

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[AnyConnection]:
        try:
            async with (
                self._pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                await connection.execute(self._text["no_idle_timeout"])
                yield connection
        except DRIVER_ERRORS as error:
            raise translate(error) from error


async def thread_on(connection: AnyConnection, reading: Reading, thread_id: str) -> OpenThread | None:
    """One thread of the tables in a connection's search path, in its transaction; None if there are no such tables."""
    found = await _columns(connection, "")
    if any(name not in found for name in _NEEDED):
        return None
    return _TablesThread(connection, _statements("", _task_path(found)), reading, thread_id)


class _TablesThread:
    """One thread in one transaction."""

    def __init__(self, connection: AnyConnection, text: Mapping[str, str], reading: Reading, thread_id: str) -> None:
        self._connection = connection
        self._text = text
        self._reading = reading
        self._thread_id = thread_id
        self._raw = RawValues(reading.cipher, reading.is_langgraph)
        self._blob_bytes: dict[tuple[str, str, str], int] = {}
        self._write_bytes: dict[tuple[str, str], int] = {}
        self._nodes: set[tuple[str, str]] = set()

    async def shape(self) -> ThreadShape:
        """Its structure."""
        records = await self._fetch("nodes")
        nodes = [Node(each["checkpoint_ns"], each["checkpoint_id"], each["parent_id"]) for each in records]
        self._nodes = {node.key for node in nodes}
        for each in await self._fetch("blobs"):
            self._blob_bytes[each["checkpoint_ns"], each["channel"], each["version"]] = each["bytes"] or 0
        writes: set[tuple[str, str, str, int]] = set()
        changing: dict[tuple[str, str, str, int], EncodedValue] = {}
        for each in await self._fetch("writes"):
            node_key = each["checkpoint_ns"], each["checkpoint_id"]
            key = (*node_key, each["task_id"], each["idx"])
            writes.add(key)
            self._write_bytes[node_key] = self._write_bytes.get(node_key, 0) + (each["bytes"] or 0)
            if each["idx"] < 0:
                changing[key] = self._raw.cut(*_typed(each, _where(node_key)), _where(node_key)).value
        source_bytes = sum(self._blob_bytes.values()) + sum(self._write_bytes.values())
        source_bytes += sum(each["bytes"] for each in records)
        newest = await self._connection.fetchval(self._text["newest"], self._thread_id)
        return ThreadShape(nodes, frozenset(writes), changing, source_bytes, newest)

    async def checkpoints(
        self, order: Sequence[Node], before: Before = NOTHING_BEFORE
    ) -> AsyncIterator[SourceCheckpoint]:
        """Its checkpoints in this order."""
        assembler = Assembler(self._reading.codec, self._raw, self._blob_bytes, order, before)
        for chunk in self._chunks(order):
            rows = await self._rows(chunk)
            for row in rows:
                assembler.look(row)
            wanted = Counter(pair for row in rows for pair in row.pairs)
            values = self._values(chunk[0].namespace, [pair for row in rows for pair in row.pairs])
            found: dict[tuple[str, str], Typed] = {}
            for row in rows:
                while any(pair not in found for pair in row.pairs):
                    found |= await anext(values)
                yield assembler.assemble(row, found)
                wanted.subtract(row.pairs)
                for pair in row.pairs:
                    if not wanted[pair]:
                        found.pop(pair, None)

    async def orphans(self) -> AsyncIterator[tuple[Node, Sequence[SourceWrite]]]:
        """Pending writes to checkpoints that are not there."""
        for namespace, checkpoint_id in sorted(self._write_bytes.keys() - self._nodes):
            records = await self._fetch("pending", namespace, [checkpoint_id])
            node = Node(namespace, checkpoint_id, None)
            yield node, [self._write(node, record) for record in records]

    async def load(self, node: Node) -> CheckpointTuple:
        """One checkpoint, decoded in the way of LangGraph's saver: every value as a whole."""
        [row] = await self._rows([node])
        where, loads = row.where, self._reading.loads
        values = dict(row.checkpoint.pop("channel_values"))
        pairs = [(name, str(version)) for name, version in row.checkpoint["channel_versions"].items()]
        stored = await self._connection.fetch(
            self._text["values"], self._thread_id, node.namespace, *map(list, zip(*pairs, strict=True))
        ) if pairs else []  # fmt: skip
        for each in stored:
            if each["type"] != "empty":
                values[each["channel"]] = loads(*_typed(each, where), where)
        if row.sends:
            versions = row.checkpoint["channel_versions"]
            values[TASKS] = [loads(*send, where) for send in row.sends]
            versions[TASKS] = max(versions.values()) if versions else FIRST_VERSION
        records = await self._fetch("pending", node.namespace, [node.checkpoint_id])
        pending = [(each["task_id"], each["channel"], loads(*_typed(each, where), where)) for each in records]
        parent = None if node.parent_id is None else self._config(node.namespace, node.parent_id)
        return CheckpointTuple(
            self._config(node.namespace, node.checkpoint_id),
            cast("Any", {**row.checkpoint, "channel_values": values}),
            cast("Any", row.metadata),
            parent,
            pending,
        )

    def _config(self, namespace: str, checkpoint_id: str) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": self._thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id
            }
        }  # fmt: skip

    def _chunks(self, order: Sequence[Node]) -> Iterator[list[Node]]:
        """Runs of checkpoints of one namespace whose pending writes are not too large together."""
        chunk: list[Node] = []
        chunk_bytes = 0
        for node in order:
            node_bytes = self._write_bytes.get(node.key, 0)
            is_full = len(chunk) >= CHUNK_CHECKPOINTS or chunk_bytes + node_bytes > CHUNK_BYTES
            if chunk and (is_full or node.namespace != chunk[0].namespace):
                yield chunk
                chunk, chunk_bytes = [], 0
            chunk.append(node)
            chunk_bytes += node_bytes
        if chunk:
            yield chunk

    async def _rows(self, chunk: Sequence[Node]) -> list[StoredCheckpoint]:
        """The rows of some checkpoints, in this order."""
        namespace, ids = chunk[0].namespace, [node.checkpoint_id for node in chunk]
        writes: dict[str, list[SourceWrite]] = {}
        with_writes = [node.checkpoint_id for node in chunk if node.key in self._write_bytes]
        for record in await self._fetch("pending", namespace, with_writes) if with_writes else ():
            node = Node(namespace, record["checkpoint_id"], None)
            writes.setdefault(record["checkpoint_id"], []).append(self._write(node, record))
        records = {each["checkpoint_id"]: each for each in await self._fetch("checkpoints", namespace, ids)}
        rows = []
        for node in chunk:
            record = records[node.checkpoint_id]
            checkpoint, metadata = json.loads(record["checkpoint"]), json.loads(record["metadata"])
            if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("channel_versions"), dict):
                raise SkipThread(f"{_where(node.key)}: its document has no channel_versions")
            if not isinstance(metadata, dict):
                raise SkipThread(f"{_where(node.key)}: its metadata is {type(metadata).__name__}, expected a mapping")
            checkpoint["channel_values"] = checkpoint.get("channel_values") or {}
            rows.append(StoredCheckpoint(node, checkpoint, metadata, writes.get(node.checkpoint_id, ())))
        await self._add_sends(namespace, [row for row in rows if _has_foreign_sends(row)])
        return rows

    async def _add_sends(self, namespace: str, rows: Sequence[StoredCheckpoint]) -> None:
        """Gives checkpoints of old formats the sends that are stored at their parents."""
        parents = [row.node.parent_id for row in rows if (namespace, row.node.parent_id) in self._write_bytes]
        sends: dict[str, list[Typed]] = {}
        for record in await self._fetch("pending", namespace, parents) if parents else ():
            if record["channel"] == TASKS:
                where = _where((namespace, record["checkpoint_id"]))
                sends.setdefault(record["checkpoint_id"], []).append(_typed(record, where))
        for row in rows:
            row.sends = sends.get(row.node.parent_id or "", ())

    async def _values(
        self, namespace: str, pairs: Sequence[tuple[str, str]]
    ) -> AsyncIterator[dict[tuple[str, str], Typed]]:
        """Stored values in this order, some megabytes at a time."""
        part: list[tuple[str, str]] = []
        part_bytes = 0
        for pair in (*pairs, None):
            if pair is None or part_bytes > CHUNK_BYTES:
                records = await self._connection.fetch(
                    self._text["values"], self._thread_id, namespace, *map(list, zip(*part, strict=True))
                ) if part else []  # fmt: skip
                yield {
                    (each["channel"], each["version"]): _typed(each, f"namespace {namespace!r}, {each['channel']!r}")
                    for each in records
                }
                part, part_bytes = [], 0
            if pair is not None:
                part.append(pair)
                part_bytes += self._blob_bytes[namespace, *pair]

    def _write(self, node: Node, record: Any) -> SourceWrite:
        where = f"{_where(node.key)}, write to {record['channel']!r}"
        value = self._raw.cut(*_typed(record, where), where).value
        return SourceWrite(record["task_id"], record["task_path"], record["idx"], record["channel"], value)

    async def _fetch(self, name: str, *arguments: Any) -> list[Any]:
        return await self._connection.fetch(self._text[name], self._thread_id, *arguments)


def _typed(record: Any, where: str) -> Typed:
    """Type and bytes of a stored value. A type of NULL, in old rows, means the default."""
    if record["blob"] is None:
        if record["type"] == "null":
            return "null", b""
        raise SkipThread(f"{where}: its stored value is NULL")
    return record["type"] or "msgpack", record["blob"]


def _has_foreign_sends(row: StoredCheckpoint) -> bool:
    version = row.checkpoint.get("v")
    return row.node.parent_id is not None and isinstance(version, int) and version < OWN_SENDS_VERSION


def _where(key: tuple[str, str]) -> str:
    return f"namespace {key[0]!r}, checkpoint {key[1]!r}"


@cache
def _statements(prefix: str, task_path: str) -> dict[str, str]:
    text = files("deltastore.importer").joinpath("tables.sql").read_text(encoding="utf-8")
    _, *named = _NAME.split(text)
    return {name: _statement(body, prefix, task_path) for name, body in zip(named[::2], named[1::2], strict=True)}


def _statement(body: str, prefix: str, task_path: str) -> str:
    lines = [line for line in body.strip().splitlines() if not line.startswith("--")]
    text = "\n".join(lines).removesuffix(";")
    quoted = text.replace("'{schema}'", "'" + prefix.replace("'", "''") + "'")
    return quoted.replace("{schema}", prefix).replace("{task_path}", task_path)


async def _text_for(connection: AnyConnection, schema: str | None) -> dict[str, str]:
    """The statements for the tables that there are. Raises as `TablesSource.connect`."""
    prefix = "" if schema is None else quote_schema(schema) + "."
    try:
        found = await _columns(connection, prefix)
        missing = [name for name in _NEEDED if name not in found]
        if missing:
            raise InvalidConfigError(
                f"{'the search path' if schema is None else f'schema {schema!r}'} has no tables of LangGraph's saver",
                detail=f"missing {', '.join(missing)}",
                hint="name the schema; a ShallowPostgresSaver is read with --from package.module:factory",
            )
        text = _statements(prefix, _task_path(found))
        await connection.execute(text["readable"])
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseRefusedError(
            "the source may not be read",
            detail=str(error),
            hint=f"grant the role USAGE on the schema and SELECT on {', '.join(_TABLES)}",
        ) from error
    except DRIVER_ERRORS as error:
        raise translate(error) from error
    return text


def _task_path(columns: set[str]) -> str:
    """The column, or an empty text in the tables of savers that did not have it."""
    return "task_path" if "checkpoint_writes.task_path" in columns else "''::text"


async def _columns(connection: AnyConnection, prefix: str) -> set[str]:
    """Which columns the tables have."""
    return {record["name"] for record in await connection.fetch(_statements(prefix, "task_path")["columns"])}
