"""Parts of threads that are being migrated: `Staging` on PostgreSQL, and a typed function for each statement."""

from __future__ import annotations

from deltastore.core.edits import StagedThread
from deltastore.core.model import ThreadRef
from deltastore.postgres.attempts import Attempts
from deltastore.postgres.queries import AnyConnection, statements


class StagingQueries:
    """The statements for one schema.

    Args:
        schema: Name of the schema, unquoted.

    Raises:
        InvalidConfigError: The schema's name cannot be used.
    """

    def __init__(self, schema: str) -> None:
        self.text = statements(schema, "staging.sql")

    async def add_part(self, connection: AnyConnection, thread: ThreadRef, part: int, payload: bytes) -> bool:
        """Adds a part; whether it stands now."""
        return bool(await connection.fetchval(self.text["add_part"], thread.key, thread.thread_id, part, payload))

    async def load_part(self, connection: AnyConnection, thread_key: bytes, part: int) -> bytes | None:
        """A part's payload."""
        payload: bytes | None = await connection.fetchval(self.text["load_part"], thread_key, part)
        return payload

    async def drop_parts(self, connection: AnyConnection, thread_key: bytes, first_part: int) -> None:
        """Removes parts from one on."""
        await connection.execute(self.text["drop_parts"], thread_key, first_part)

    async def staged_threads(self, connection: AnyConnection) -> list[StagedThread]:
        """Threads with parts."""
        records = await connection.fetch(self.text["staged_threads"])
        return [
            StagedThread(ThreadRef(each["thread_key"], each["thread_id"]), each["parts"], each["idle_seconds"])
            for each in records
        ]


class PostgresStaging:
    """The staging of one schema."""

    def __init__(self, attempts: Attempts, queries: StagingQueries) -> None:
        self._attempts = attempts
        self._queries = queries

    async def add(self, thread: ThreadRef, part: int, payload: bytes) -> bool:
        """Adds a part behind the one before it. False if another part is in this place, or none before it."""
        return await self._attempts.run(
            "add_part", lambda connection: self._queries.add_part(connection, thread, part, payload)
        )

    async def load(self, thread_key: bytes, part: int) -> bytes | None:
        """A part's payload, or None if there is no such part."""
        return await self._attempts.run(
            "load_part", lambda connection: self._queries.load_part(connection, thread_key, part)
        )

    async def drop(self, thread_key: bytes, first_part: int = 0) -> None:
        """Removes the parts of a thread from one on."""
        await self._attempts.run(
            "drop_parts", lambda connection: self._queries.drop_parts(connection, thread_key, first_part)
        )

    async def threads(self) -> list[StagedThread]:
        """All threads that have parts, in the order of their keys."""
        return await self._attempts.run("staged_threads", self._queries.staged_threads)
