"""The schema in numbered steps.

`schema/migrations/NNNN_name.sql` are the steps, with `{schema}` where the schema's name goes. A step runs in one
transaction together with its row in `delta_migrations`, under an advisory lock that ends with the transaction, so that
any number of processes may start at once, also behind a pooler in transaction mode. A step never changes once it is
released, and leaves what the previous release reads and writes as it is, so that workers can be replaced one by one.

Left out on purpose: steps back (restore a backup), and index builds that do not block writers, which cannot run in a
transaction: `schema/README.md` tells the operator about those.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import asyncpg

from deltastore.errors import DatabaseRefusedError, SchemaVersionError
from deltastore.postgres.failures import SETUP_HINT
from deltastore.postgres.naming import quote_schema, render
from deltastore.postgres.queries import AnyConnection, Queries

_RECORD = "INSERT INTO {schema}.delta_migrations (version, name)"
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: its number, its name and its SQL with `{schema}` placeholders."""

    version: int
    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """Which version a schema has, which one this code works with, and the steps between."""

    schema: str
    found: int
    expected: int
    pending: tuple[Migration, ...]


def schema_folder() -> Traversable:
    """The folder `schema/`: inside the installed package, or at the top of the checkout."""
    packaged = files("deltastore").joinpath("schema")
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "schema"


def read_migrations() -> tuple[Migration, ...]:
    """All steps that this code knows, in order, numbered from 1 without gaps."""
    entries = sorted(schema_folder().joinpath("migrations").iterdir(), key=lambda entry: entry.name)
    return tuple(
        Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8"))
        for entry in entries
        if (match := _FILE.fullmatch(entry.name))
    )


def plan(migrations: Sequence[Migration], found: int) -> tuple[Migration, ...]:
    """The steps that a schema at version `found` lacks (0: it has none)."""
    return tuple(migration for migration in migrations if migration.version > found)


class Migrator:
    """Looks at one schema and brings it up to date.

    Args:
        schema: Name of the schema, unquoted.
        create_schema: Whether `up` may create the schema itself if it is missing.

    Raises:
        InvalidConfigError: The schema's name cannot be used.
    """

    def __init__(self, schema: str = "deltastore", *, create_schema: bool = True) -> None:
        self._schema = schema
        self._quoted = quote_schema(schema)
        self._create_schema = create_schema
        self._migrations = read_migrations()
        self._queries = Queries(schema)
        self.expected = len(self._migrations)

    async def status(self, connection: AnyConnection) -> SchemaStatus:
        """What is there and what is missing; changes nothing."""
        found = await self._version(connection)
        return SchemaStatus(self._schema, found, self.expected, plan(self._migrations, found))

    async def check(self, connection: AnyConnection) -> None:
        """Refuses to work with a schema of another version.

        Raises:
            SchemaVersionError: The schema is missing, older or newer than this code.
        """
        found = await self._version(connection)
        if found > self.expected:
            raise self._newer(found)
        if found < self.expected:
            raise SchemaVersionError(
                f"schema {self._schema!r} is {'older than this code' if found else 'not set up'}",
                detail=f"found version {found}, expected {self.expected}",
                hint=SETUP_HINT,
            )

    async def up(self, connection: AnyConnection) -> tuple[Migration, ...]:
        """Applies the missing steps and returns those that this call applied.

        Each step is one transaction; inside a transaction of the caller's they are part of that one.

        Raises:
            SchemaVersionError: The schema is newer than this code.
            DatabaseRefusedError: The role may not create what is missing.
        """
        status = await self.status(connection)
        if status.found > status.expected:
            raise self._newer(status.found)
        try:
            return tuple([migration for migration in status.pending if await self._apply(connection, migration)])
        except asyncpg.InsufficientPrivilegeError as error:
            raise self._refused(status, error) from error

    def sql(self, found: int = 0) -> str:
        """What an administrator would run in place of `up` on a schema at version `found`."""
        parts = [f"CREATE SCHEMA IF NOT EXISTS {self._quoted};\n"] if self._create_schema and not found else []
        for migration in plan(self._migrations, found):
            values = f" VALUES ({migration.version}, '{migration.name}');\n"
            parts += [render(migration.sql, self._schema), render(_RECORD, self._schema) + values]
        return "\n".join(["BEGIN;\n", *parts, "COMMIT;\n"]) if parts else ""

    async def _version(self, connection: AnyConnection) -> int:
        there = await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n"
            " ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'delta_migrations')",
            self._schema,
        )
        if not there:
            return 0
        return await self._queries.schema_version(connection)

    async def _apply(self, connection: AnyConnection, migration: Migration) -> bool:
        """Applies one step; False if another process did so while this one waited for the lock."""
        async with nullcontext() if connection.is_in_transaction() else connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock_key())
            if await self._version(connection) >= migration.version:
                return False
            await self._ensure_schema(connection)
            await connection.execute(render(migration.sql, self._schema))
            await connection.execute(
                render(_RECORD, self._schema) + " VALUES ($1, $2)", migration.version, migration.name
            )
        return True

    async def _ensure_schema(self, connection: AnyConnection) -> None:
        there = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)"
        if await connection.fetchval(there, self._schema):
            return
        if not self._create_schema:
            raise SchemaVersionError(
                f"schema {self._schema!r} does not exist",
                detail="found no schema of this name, and create_schema=False",
                hint=f"have it created: CREATE SCHEMA {self._quoted}",
            )
        await connection.execute(f"CREATE SCHEMA {self._quoted}")

    def _lock_key(self) -> int:
        digest = hashlib.sha256(f"deltastore {self._schema}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def _newer(self, found: int) -> SchemaVersionError:
        return SchemaVersionError(
            f"schema {self._schema!r} is newer than this code",
            detail=f"found version {found}, expected {self.expected}",
            hint="upgrade langgraph-checkpoint-deltastore",
        )

    def _refused(self, status: SchemaStatus, error: Exception) -> DatabaseRefusedError:
        return DatabaseRefusedError(
            f"this role may not bring schema {self._schema!r} up to date",
            detail=f"found version {status.found}, expected {status.expected}; {error}",
            hint="have an administrator run what `deltastore schema sql` prints, or grant the role CREATE",
        )
