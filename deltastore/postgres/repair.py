"""One typed function for each statement of `repair.sql`, under the same name, and a whole repair."""

from __future__ import annotations

from dataclasses import replace

from deltastore.core.survey import Removal, Repairs
from deltastore.postgres.edit import PostgresEdit
from deltastore.postgres.queries import AnyConnection, statements
from deltastore.postgres.survey import PostgresSurvey, SurveyQueries


class RepairQueries:
    """The statements for one schema.

    Args:
        schema: Name of the schema, unquoted.

    Raises:
        InvalidConfigError: The schema's name cannot be used.
    """

    def __init__(self, schema: str) -> None:
        self.text = statements(schema, "repair.sql")

    async def keep_one_thread(self, connection: AnyConnection, thread_key: bytes, thread_id: str) -> None:
        """Drops all but one row of the thread itself."""
        await connection.execute(self.text["keep_one_thread"], thread_key, thread_id)

    async def keep_one_checkpoint(self, connection: AnyConnection, thread_key: bytes) -> None:
        """Drops equal copies of checkpoints."""
        await connection.execute(self.text["keep_one_checkpoint"], thread_key)

    async def keep_one_segment(self, connection: AnyConnection, thread_key: bytes) -> None:
        """Drops equal copies of segments."""
        await connection.execute(self.text["keep_one_segment"], thread_key)

    async def keep_one_document(self, connection: AnyConnection, thread_key: bytes) -> None:
        """Drops equal copies of metadata documents."""
        await connection.execute(self.text["keep_one_document"], thread_key)

    async def quarantine_checkpoint(
        self, connection: AnyConnection, thread_key: bytes, key: tuple[str, bytes], removal: Removal
    ) -> None:
        """Moves a checkpoint."""
        await connection.execute(self.text["quarantine_checkpoint"], thread_key, *key, removal.payload, removal.reason)

    async def quarantine_segment(
        self, connection: AnyConnection, thread_key: bytes, segment_id: int, removal: Removal
    ) -> None:
        """Moves a segment."""
        await connection.execute(
            self.text["quarantine_segment"], thread_key, segment_id, removal.payload, removal.reason
        )

    async def quarantine_document(
        self, connection: AnyConnection, thread_key: bytes, metadata_id: int, removal: Removal
    ) -> None:
        """Moves a metadata document."""
        await connection.execute(
            self.text["quarantine_document"], thread_key, metadata_id, removal.payload, removal.reason
        )

    async def restore_thread(self, connection: AnyConnection, thread_key: bytes, thread_id: str) -> None:
        """Makes or corrects the thread's row."""
        await connection.execute(self.text["restore_thread"], thread_key, thread_id)

    async def rewrite_document(
        self, connection: AnyConnection, thread_key: bytes, metadata_id: int, document: str
    ) -> None:
        """Writes the searchable form of a metadata document."""
        await connection.execute(self.text["rewrite_document"], thread_key, metadata_id, document)


class PostgresRepair(PostgresSurvey):
    """A thread under its lock: read as it is, and repaired."""

    def __init__(
        self, edit: PostgresEdit, survey_queries: SurveyQueries, repair_queries: RepairQueries, thread_key: bytes
    ) -> None:
        super().__init__(edit.connection, survey_queries, thread_key)
        self._edit = edit
        self._repair_queries = repair_queries

    async def apply(self, repairs: Repairs) -> None:
        """Makes the repairs: first one row for each key, and the damaged ones away; then what stays is rewritten."""
        queries, connection, key = self._repair_queries, self._connection, self._key
        thread_id = repairs.thread.thread_id
        if repairs.drops_copies:
            await queries.keep_one_thread(connection, key, thread_id)
            await queries.keep_one_checkpoint(connection, key)
            await queries.keep_one_segment(connection, key)
            await queries.keep_one_document(connection, key)
        await queries.restore_thread(connection, key, thread_id)
        for removal in repairs.removals:
            await self._remove(removal)
        for metadata_id, document in repairs.documents:
            await queries.rewrite_document(connection, key, metadata_id, document)
        await self._edit.apply(repairs.changes)
        await self._edit.renew()

    async def _remove(self, removal: Removal) -> None:
        removal = replace(removal, reason=removal.reason.replace("\x00", "\ufffd"))  # texts of PostgreSQL hold no NUL
        queries, connection, key = self._repair_queries, self._connection, self._key
        if removal.checkpoint is not None:
            await queries.quarantine_checkpoint(connection, key, removal.checkpoint, removal)
        elif removal.segment_id is not None:
            await queries.quarantine_segment(connection, key, removal.segment_id, removal)
        elif removal.metadata_id is not None:
            await queries.quarantine_document(connection, key, removal.metadata_id, removal)
