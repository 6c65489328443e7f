"""All rows of one thread as of one moment: `Survey` on PostgreSQL, and a typed function for each of its statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from deltastore.core.model import CheckpointRow, MetadataRow, SegmentKind, SegmentRow
from deltastore.core.survey import SegmentHead, ThreadRow, ThreadSurvey
from deltastore.postgres import rows
from deltastore.postgres.queries import AnyConnection, statements


class SurveyQueries:
    """The statements for one schema.

    Args:
        schema: Name of the schema, unquoted.

    Raises:
        InvalidConfigError: The schema's name cannot be used.
    """

    def __init__(self, schema: str) -> None:
        self.text = statements(schema, "survey.sql")

    async def survey_keys(self, connection: AnyConnection, after: bytes, limit: int) -> list[bytes]:
        """Thread keys behind a key, in order."""
        return [record["thread_key"] for record in await connection.fetch(self.text["survey_keys"], after, limit)]

    async def survey_threads(self, connection: AnyConnection, thread_key: bytes) -> tuple[ThreadRow, ...]:
        """Rows of the thread itself."""
        records = await connection.fetch(self.text["survey_threads"], thread_key)
        return tuple(ThreadRow(record["thread_id"], record["epoch"]) for record in records)

    async def survey_checkpoints(self, connection: AnyConnection, thread_key: bytes) -> tuple[CheckpointRow, ...]:
        """All checkpoints."""
        records = await connection.fetch(self.text["survey_checkpoints"], thread_key)
        return tuple(rows.checkpoint_row(record) for record in records)

    async def survey_segments(self, connection: AnyConnection, thread_key: bytes) -> tuple[SegmentHead, ...]:
        """All segments without their payloads."""
        records = await connection.fetch(self.text["survey_segments"], thread_key)
        return tuple(
            SegmentHead(
                record["segment_id"],
                record["kind"],
                record["namespace"],
                record["checkpoint_id"],
                rows.numbers(record["segment_references"]),
                record["payload_bytes"],
            )
            for record in records
        )

    async def survey_metadata(self, connection: AnyConnection, thread_key: bytes) -> tuple[MetadataRow, ...]:
        """All metadata documents."""
        records = await connection.fetch(self.text["survey_metadata"], thread_key)
        return tuple(MetadataRow(record["metadata_id"], record["document"], record["payload"]) for record in records)

    async def survey_quarantine(self, connection: AnyConnection, thread_key: bytes) -> int:
        """How many rows were taken out."""
        return int(await connection.fetchval(self.text["survey_quarantine"], thread_key))

    async def survey_payloads(
        self, connection: AnyConnection, thread_key: bytes, segment_ids: Sequence[int]
    ) -> list[SegmentRow]:
        """Segments with their payloads."""
        records = await connection.fetch(self.text["survey_payloads"], thread_key, rows.array(segment_ids))
        return [_segment_row(record) for record in records]


class PostgresSurvey:
    """The rows of one thread, read through one transaction."""

    def __init__(self, connection: AnyConnection, queries: SurveyQueries, thread_key: bytes) -> None:
        self._connection = connection
        self._queries = queries
        self._key = thread_key

    async def rows(self) -> ThreadSurvey:
        """All rows, segments without their payloads."""
        queries, connection, key = self._queries, self._connection, self._key
        return ThreadSurvey(
            key,
            await queries.survey_threads(connection, key),
            await queries.survey_checkpoints(connection, key),
            await queries.survey_segments(connection, key),
            await queries.survey_metadata(connection, key),
            await queries.survey_quarantine(connection, key),
        )

    async def payloads(self, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads."""
        return await self._queries.survey_payloads(self._connection, self._key, segment_ids)


def _segment_row(record: Any) -> SegmentRow:
    """A segment whose kind may be one that nobody knows."""
    segment_id, kind, namespace, checkpoint_id, payload, references, first = record
    known = SegmentKind(kind) if kind in {int(each) for each in SegmentKind} else cast("SegmentKind", kind)
    return SegmentRow(segment_id, known, namespace, checkpoint_id, payload, rows.numbers(references), first)
