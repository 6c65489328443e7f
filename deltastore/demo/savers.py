"""The two savers of the comparison, each with its tables in a schema of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import sql
from psycopg.conninfo import make_conninfo

from deltastore.connect import DeltaSaver

SaverKind = Literal["stock saver", "deltastore"]

_STORED_BYTES = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE n.nspname = %s AND c.relkind = 'r'
"""


@dataclass(frozen=True)
class Place:
    """A schema in a database; the saver of this kind keeps all its tables there."""

    kind: SaverKind
    dsn: str
    schema: str

    @asynccontextmanager
    async def open(self) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        """A new saver."""
        if self.kind == "deltastore":
            async with DeltaSaver.from_conn_string(self.dsn, schema=self.schema) as saver:
                yield saver
        else:
            dsn = make_conninfo(self.dsn, options=f"-c search_path={self.schema}")
            async with AsyncPostgresSaver.from_conn_string(dsn) as saver:
                yield saver

    async def prepare(self) -> None:
        """Makes the schema and the saver's tables."""
        self._execute("CREATE SCHEMA {}")
        async with self.open() as saver:
            await saver.setup()  # type: ignore[attr-defined]

    def remove(self) -> None:
        """Drops the schema with everything in it."""
        self._execute("DROP SCHEMA IF EXISTS {} CASCADE")

    def stored_bytes(self) -> int:
        """Bytes of all tables with their indexes and TOAST."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(_STORED_BYTES, [self.schema]).fetchone()
        return int(row[0]) if row else 0

    def _execute(self, statement: Any) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(self.schema)))
