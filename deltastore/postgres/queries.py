"""One typed function for each statement of `queries.sql`, under the same name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, TypeAlias

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy

from deltastore.core.edits import LockBounds, ThreadOutline
from deltastore.core.model import (
    Chains,
    CheckpointRow,
    Known,
    ListEntry,
    ListQuery,
    MetadataRow,
    NewSegment,
    Refusal,
    Save,
    Saved,
    SaveWrites,
    SegmentRow,
    ThreadRef,
)
from deltastore.postgres import rows
from deltastore.postgres.naming import render
from deltastore.postgres.rows import ThreadHead

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


AnyConnection: TypeAlias = "Connection[Any] | PoolConnectionProxy[Any]"


def statements(schema: str, file_name: str = "queries.sql") -> dict[str, str]:
    """All statements of a file of this package by name, for one schema, without their comments.

    Raises:
        InvalidConfigError: The schema's name cannot be used.
    """
    text = files("deltastore.postgres").joinpath(file_name).read_text(encoding="utf-8")
    _, *named = _NAME.split(text)
    return {name: _statement(body, schema) for name, body in zip(named[::2], named[1::2], strict=True)}


def _statement(body: str, schema: str) -> str:
    lines = [line for line in body.strip().splitlines() if not line.startswith("--")]
    return render("\n".join(lines).removesuffix(";"), schema)


def skipping_locked(text: str) -> str:
    """A save's statement that stores nothing, instead of waiting, if the thread is locked."""
    return text.replace("FOR KEY SHARE", "FOR KEY SHARE SKIP LOCKED")


async def together(connection: AnyConnection, text: str, arguments: Sequence[tuple[Any, ...]]) -> list[Saved | None]:
    """Runs a save's statement for several saves in one transaction.

    Returns:
        For each, in order, what was stored; None if it was not.
    """
    answers = map(rows.save_answer, await connection.fetchmany(text, arguments))
    return [answer if isinstance(answer, Saved) else None for answer in answers]


class Queries:
    """The statements for one schema.

    Args:
        schema: Name of the schema, unquoted.

    Raises:
        InvalidConfigError: The schema's name cannot be used.
    """

    def __init__(self, schema: str) -> None:
        self.text = statements(schema)

    async def schema_version(self, connection: AnyConnection) -> int:
        """Number of the last migration."""
        version: int | None = await connection.fetchval(self.text["schema_version"])
        return version or 0

    async def save(self, connection: AnyConnection, save: Save) -> Saved | Refusal | None:
        """Stores a checkpoint; None if the thread changed while the statement waited and it is to be run again."""
        return rows.save_answer(await connection.fetchrow(self.text["save"], *rows.save_arguments(save)))

    async def save_writes(self, connection: AnyConnection, save: SaveWrites) -> Saved | Refusal | None:
        """Stores pending writes; None if it is to be run again."""
        return rows.save_answer(await connection.fetchrow(self.text["save_writes"], *rows.writes_arguments(save)))

    async def load_chains(
        self,
        connection: AnyConnection,
        thread_key: bytes,
        namespace: str,
        checkpoint_ids: Sequence[bytes] | None,
        known: Known | None,
    ) -> Chains | None:
        """Rows that rebuild some checkpoints, or the head."""
        ends = (None, "{}") if known is None else (known.epoch, rows.keys(known.checkpoint_ids))
        wanted = None if checkpoint_ids is None else rows.keys(checkpoint_ids)
        records = await connection.fetch(self.text["load_chains"], thread_key, namespace, wanted, *ends)
        return rows.chains(records, thread_key, namespace, checkpoint_ids)

    async def load_segments(
        self, connection: AnyConnection, thread_key: bytes, segment_ids: Sequence[int]
    ) -> list[SegmentRow]:
        """Segments by id."""
        records = await connection.fetch(self.text["load_segments"], thread_key, rows.array(segment_ids))
        return rows.segment_rows(records)

    async def list_checkpoint(
        self, connection: AnyConnection, thread_key: bytes, namespace: str, checkpoint_id: bytes, document: str | None
    ) -> list[ListEntry]:
        """The entry of one checkpoint, if it is visible and its metadata matches."""
        records = await connection.fetch(self.text["list_checkpoint"], thread_key, namespace, checkpoint_id, document)
        return rows.list_entries(records)

    async def list_namespace(
        self, connection: AnyConnection, thread_key: bytes, namespace: str, document: str | None, limit: int
    ) -> list[ListEntry]:
        """The newest entries of a namespace."""
        records = await connection.fetch(self.text["list_namespace"], thread_key, namespace, document, limit)
        return rows.list_entries(records)

    async def list_namespace_below(
        self,
        connection: AnyConnection,
        thread_key: bytes,
        namespace: str,
        below: bytes,
        document: str | None,
        limit: int,
    ) -> list[ListEntry]:
        """The newest entries of a namespace below an id."""
        records = await connection.fetch(
            self.text["list_namespace_below"], thread_key, namespace, below, document, limit
        )
        return rows.list_entries(records)

    async def list_thread(self, connection: AnyConnection, query: ListQuery) -> list[ListEntry]:
        """A page of all namespaces of a thread."""
        cursor = query.cursor
        records = await connection.fetch(
            self.text["list_thread"], query.thread_key, query.checkpoint_id, query.before,
            cursor and cursor.checkpoint_id, cursor and cursor.namespace, query.document, query.limit,
        )  # fmt: skip
        return rows.list_entries(records)

    async def list_all(self, connection: AnyConnection, query: ListQuery) -> list[ListEntry]:
        """A page of all threads."""
        cursor = query.cursor
        records = await connection.fetch(
            self.text["list_all"], query.namespace, query.checkpoint_id, query.before, cursor and cursor.checkpoint_id,
            cursor and cursor.thread_key, cursor and cursor.namespace, query.document, query.limit,
        )  # fmt: skip
        return rows.list_entries(records)

    async def find_runs(self, connection: AnyConnection, run_ids: Sequence[str]) -> list[bytes]:
        """Keys of threads with metadata of these runs."""
        return [record["thread_key"] for record in await connection.fetch(self.text["find_runs"], run_ids)]

    async def list_threads(self, connection: AnyConnection, after: bytes, limit: int) -> list[ThreadRef]:
        """Threads behind a key."""
        records = await connection.fetch(self.text["list_threads"], after, limit)
        return [ThreadRef(record["thread_key"], record["thread_id"]) for record in records]

    async def outline_threads(self, connection: AnyConnection, after: bytes, limit: int) -> list[ThreadOutline]:
        """Threads behind a key, with the keys of their checkpoints."""
        return rows.outlines(await connection.fetch(self.text["outline_threads"], after, limit))

    async def pin_thread(self, connection: AnyConnection, thread_key: bytes, pinned: bool) -> bool:
        """Marks a thread; whether it is there."""
        return bool(await connection.fetchval(self.text["pin_thread"], thread_key, pinned))

    async def bound_transaction(self, connection: AnyConnection, bounds: LockBounds) -> None:
        """Bounds the transaction that is open."""
        await connection.fetchrow(self.text["bound_transaction"], str(bounds.wait_ms), str(bounds.statement_ms))

    async def lock_thread(self, connection: AnyConnection, thread_key: bytes) -> ThreadHead | None:
        """Takes the thread for the rest of the transaction; None if it is not there."""
        return rows.thread_head(await connection.fetchrow(self.text["lock_thread"], thread_key), thread_key)

    async def view_thread(self, connection: AnyConnection, thread_key: bytes) -> ThreadHead | None:
        """The row of a thread; None if it is not there."""
        return rows.thread_head(await connection.fetchrow(self.text["view_thread"], thread_key), thread_key)

    async def count_rows(self, connection: AnyConnection, thread_key: bytes) -> tuple[int, int]:
        """How many checkpoints and segments a thread has."""
        record: Any = await connection.fetchrow(self.text["count_rows"], thread_key)
        return record["checkpoints"], record["segments"]

    async def count_quarantined(self, connection: AnyConnection, thread_key: bytes) -> int:
        """Rows of a thread that a repair took out."""
        return int(await connection.fetchval(self.text["count_quarantined"], thread_key))

    async def payload_bytes(
        self, connection: AnyConnection, thread_key: bytes, segment_ids: Sequence[int], metadata_ids: Sequence[int]
    ) -> int:
        """The size of payloads, all together."""
        return int(
            await connection.fetchval(
                self.text["payload_bytes"], thread_key, rows.array(segment_ids), rows.array(metadata_ids)
            )
        )

    async def edit_checkpoints(self, connection: AnyConnection, thread_key: bytes) -> list[CheckpointRow]:
        """All checkpoints of a thread."""
        records = await connection.fetch(self.text["edit_checkpoints"], thread_key)
        return [rows.checkpoint_row(record) for record in records]

    async def edit_segments(self, connection: AnyConnection, thread_key: bytes) -> list[SegmentRow]:
        """All segments of a thread, with the payload of pages and packs only."""
        records = await connection.fetch(self.text["edit_segments"], thread_key)
        return rows.segment_rows(records)

    async def edit_metadata(self, connection: AnyConnection, thread_key: bytes) -> list[tuple[int, str | None]]:
        """Ids of all metadata documents of a thread with their runs."""
        records = await connection.fetch(self.text["edit_metadata"], thread_key)
        return [(record["metadata_id"], record["run_id"]) for record in records]

    async def edit_documents(
        self, connection: AnyConnection, thread_key: bytes, metadata_ids: Sequence[int]
    ) -> list[MetadataRow]:
        """Metadata documents by id."""
        records = await connection.fetch(self.text["edit_documents"], thread_key, rows.array(metadata_ids))
        return [MetadataRow(record["metadata_id"], record["document"], record["payload"]) for record in records]

    async def insert_segments(
        self, connection: AnyConnection, thread_key: bytes, row: CheckpointRow, segments: Sequence[NewSegment]
    ) -> tuple[int, ...]:
        """Adds segments to a checkpoint; their ids in order."""
        records = await connection.fetch(
            self.text["insert_segments"], thread_key, row.namespace, row.checkpoint_id, *rows.segment_columns(segments)
        )
        return tuple(sorted(record["segment_id"] for record in records))

    async def update_checkpoint(
        self, connection: AnyConnection, thread_key: bytes, row: CheckpointRow, segments: Sequence[int]
    ) -> None:
        """Rewrites a checkpoint to `row`, but with these segments."""
        await connection.execute(
            self.text["update_checkpoint"], thread_key, row.namespace, row.checkpoint_id, row.parent_id, row.depth,
            rows.array(segments), row.payload, row.metadata_id, row.hidden, row.orphaned,
        )  # fmt: skip

    async def mark_checkpoints(
        self, connection: AnyConnection, thread_key: bytes, marks: Sequence[tuple[str, bytes, bool, bool]]
    ) -> None:
        """Sets (namespace, checkpoint id, hidden, orphaned)."""
        namespaces, checkpoint_ids, hidden, orphaned = zip(*marks, strict=True)
        await connection.execute(
            self.text["mark_checkpoints"],
            thread_key, namespaces, rows.keys(checkpoint_ids), rows.array(hidden), rows.array(orphaned),
        )  # fmt: skip

    async def delete_checkpoints(
        self, connection: AnyConnection, thread_key: bytes, keys: Sequence[tuple[str, bytes]]
    ) -> None:
        """Removes checkpoints by (namespace, checkpoint id)."""
        namespaces, checkpoint_ids = zip(*keys, strict=True)
        await connection.execute(self.text["delete_checkpoints"], thread_key, namespaces, rows.keys(checkpoint_ids))

    async def delete_segments(self, connection: AnyConnection, thread_key: bytes, segment_ids: Sequence[int]) -> None:
        """Removes segments by id."""
        await connection.execute(self.text["delete_segments"], thread_key, rows.array(segment_ids))

    async def delete_metadata(self, connection: AnyConnection, thread_key: bytes, metadata_ids: Sequence[int]) -> None:
        """Removes metadata documents by id."""
        await connection.execute(self.text["delete_metadata"], thread_key, rows.array(metadata_ids))

    async def insert_metadata(
        self, connection: AnyConnection, thread_key: bytes, documents: Sequence[MetadataRow]
    ) -> None:
        """Adds metadata documents, except those that are there."""
        await connection.executemany(
            self.text["insert_metadata"],
            [(thread_key, each.metadata_id, each.document, each.payload) for each in documents],
        )

    async def create_thread(self, connection: AnyConnection, thread: ThreadRef, pinned: bool) -> ThreadHead | None:
        """Makes the row of a thread, and gives it."""
        record = await connection.fetchrow(self.text["create_thread"], thread.key, thread.thread_id, pinned)
        return rows.thread_head(record, thread.key)

    async def take_numbers(self, connection: AnyConnection, count: int) -> list[int]:
        """Numbers of the sequence, ascending."""
        records = await connection.fetch(self.text["take_numbers"], count)
        return sorted(record["number"] for record in records)

    async def insert_segment(
        self, connection: AnyConnection, thread_key: bytes, segments: Sequence[SegmentRow]
    ) -> None:
        """Adds segments that have their ids."""
        await connection.executemany(
            self.text["insert_segment"],
            [
                (thread_key, each.segment_id, int(each.kind), each.namespace, each.checkpoint_id,
                 rows.array_or_null(each.references), each.payload, each.first_checkpoint_id)
                for each in segments
            ],
        )  # fmt: skip

    async def insert_checkpoint(
        self, connection: AnyConnection, thread_key: bytes, checkpoints: Sequence[CheckpointRow]
    ) -> None:
        """Adds checkpoints whose segments have their ids."""
        await connection.executemany(
            self.text["insert_checkpoint"],
            [
                (thread_key, each.namespace, each.checkpoint_id, each.parent_id, each.depth,
                 rows.array_or_null(each.segments),
                 each.payload, each.metadata_id, each.hidden, each.orphaned)
                for each in checkpoints
            ],
        )  # fmt: skip

    async def unstage(self, connection: AnyConnection, thread_key: bytes) -> None:
        """Removes all staged parts of a thread."""
        await connection.execute(self.text["unstage"], thread_key)

    async def renew_revision(self, connection: AnyConnection, thread_key: bytes) -> None:
        """Tells saves that wait for this edit to look again."""
        await connection.execute(self.text["renew_revision"], thread_key)

    async def renew_epoch(self, connection: AnyConnection, thread_key: bytes) -> None:
        """Tells saves that rely on what was there before this edit that it may be gone."""
        await connection.execute(self.text["renew_epoch"], thread_key)

    async def bury_thread(self, connection: AnyConnection, thread_key: bytes) -> None:
        """Remembers that a thread was deleted, before it is."""
        await connection.execute(self.text["bury_thread"], thread_key)

    async def extend_deletion(self, connection: AnyConnection, thread_key: bytes, checkpoint_id: bytes) -> bool:
        """Raises a tombstone to a checkpoint; whether there is one and no thread."""
        return bool(await connection.fetchval(self.text["extend_deletion"], thread_key, checkpoint_id))

    async def forget_deletion(self, connection: AnyConnection, thread_key: bytes) -> bool:
        """Removes a tombstone; whether it was there."""
        return bool(await connection.fetchval(self.text["forget_deletion"], thread_key))

    async def forget_deletions(self, connection: AnyConnection, older_than_seconds: float) -> None:
        """Removes old tombstones."""
        await connection.execute(self.text["forget_deletions"], older_than_seconds)

    async def delete_thread(self, connection: AnyConnection, thread_key: bytes) -> None:
        """Removes every row of a thread."""
        await connection.execute(self.text["delete_thread"], thread_key)

    async def has_rows(self, connection: AnyConnection, thread_key: bytes) -> bool:
        """Whether anything is stored under a thread key."""
        return bool(await connection.fetchval(self.text["has_rows"], thread_key))

    async def copy_thread(self, connection: AnyConnection, source_key: bytes, target: ThreadRef) -> None:
        """Copies the row of a thread; its epoch is new."""
        await connection.execute(self.text["copy_thread"], source_key, target.key, target.thread_id)

    async def copy_checkpoints(self, connection: AnyConnection, source_key: bytes, target: ThreadRef) -> None:
        """Copies the checkpoints of a thread."""
        await connection.execute(self.text["copy_checkpoints"], source_key, target.key)

    async def copy_segments(self, connection: AnyConnection, source_key: bytes, target: ThreadRef) -> None:
        """Copies the segments of a thread, under the same ids."""
        await connection.execute(self.text["copy_segments"], source_key, target.key)

    async def copy_metadata(self, connection: AnyConnection, source_key: bytes, target: ThreadRef) -> None:
        """Copies the metadata documents of a thread."""
        await connection.execute(self.text["copy_metadata"], source_key, target.key)
