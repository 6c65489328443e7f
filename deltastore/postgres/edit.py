"""One thread as of one moment, `ThreadView`, and under its exclusive lock, `ThreadEdit`, on PostgreSQL.

An edit runs inside a transaction whose first statement took the row of the thread. Every later statement has a snapshot
of its own (READ COMMITTED), taken when no save of the thread was under way: so it sees all of them, and none can come
between. A view runs inside a transaction that has one snapshot (REPEATABLE READ) and takes no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import asyncpg

from deltastore.core.edits import NewRows, RowUpdate, ThreadChanges, ThreadRows
from deltastore.core.model import MetadataRow, SegmentRow, ThreadRef
from deltastore.errors import ThreadBusyError
from deltastore.observing import extra
from deltastore.postgres.queries import AnyConnection, Queries
from deltastore.postgres.rows import ThreadHead

_LOG = logging.getLogger("deltastore.postgres")


class PostgresView:
    """The thread of one `view`; `head` is its row, None if there is no such thread."""

    def __init__(self, connection: AnyConnection, queries: Queries, thread_key: bytes, head: ThreadHead | None) -> None:
        self._connection = connection
        self._queries = queries
        self._key = thread_key
        self._head = head

    async def rows(self) -> ThreadRows | None:
        """The whole structure of the thread, or None if there is no such thread."""
        head = self._head
        if head is None:
            return None
        return ThreadRows(
            thread=head.thread,
            epoch=head.epoch,
            revision=head.revision,
            pinned=head.pinned,
            created_seconds=head.created_seconds,
            checkpoints=tuple(await self._queries.edit_checkpoints(self._connection, self._key)),
            segments=tuple(await self._queries.edit_segments(self._connection, self._key)),
            metadata=tuple(await self._queries.edit_metadata(self._connection, self._key)),
        )

    async def segments(self, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads; those that do not exist are left out."""
        return await self._queries.load_segments(self._connection, self._key, segment_ids)

    async def documents(self, metadata_ids: Sequence[int]) -> list[MetadataRow]:
        """Metadata documents with their payloads; those that do not exist are left out."""
        return await self._queries.edit_documents(self._connection, self._key, metadata_ids)

    async def quarantined(self) -> int:
        """How many rows of the thread a repair took out."""
        return await self._queries.count_quarantined(self._connection, self._key)

    async def payload_bytes(self, segment_ids: Sequence[int], metadata_ids: Sequence[int]) -> int:
        """The size of the payloads of segments and metadata documents, all together."""
        return await self._queries.payload_bytes(self._connection, self._key, segment_ids, metadata_ids)


class PostgresEdit(PostgresView):
    """The thread of one `edit`; `head` is its locked row."""

    _removed: str = ""

    async def is_still(self, rows: ThreadRows) -> bool:
        """Whether the thread is what it was: the same revision, under which rows can only have been added."""
        head = self._head
        if head is None or (head.epoch, head.revision, head.pinned) != (rows.epoch, rows.revision, rows.pinned):
            return False
        counts = await self._queries.count_rows(self._connection, self._key)
        return counts == (len(rows.checkpoints), len(rows.stored_ids))

    async def remove(self) -> None:
        """Removes all rows of the thread, and remembers that."""
        await self._queries.bury_thread(self._connection, self._key)
        await self._queries.delete_thread(self._connection, self._key)
        self._removed = "the thread"

    def log(self) -> None:
        """Writes a log line if something was removed; called when that is committed."""
        if self._removed and self._head is not None:
            _LOG.info("removed %s", self._removed, extra=extra(thread_id=self._head.thread.thread_id))

    @property
    def connection(self) -> AnyConnection:
        """The connection of the transaction."""
        return self._connection

    async def renew(self) -> None:
        """Tells saves that rely on what was there before that it may be gone."""
        await self._queries.renew_epoch(self._connection, self._key)

    async def apply(self, changes: ThreadChanges) -> None:
        """Makes the changes, which end with the transaction."""
        if not changes:
            return
        queries, connection, key = self._queries, self._connection, self._key
        if changes.new_metadata:
            await queries.insert_metadata(connection, key, changes.new_metadata)
        for update in changes.updates:
            await self._update(update)
        if changes.marks:
            await queries.mark_checkpoints(connection, key, changes.marks)
        if changes.delete_checkpoints:
            await queries.delete_checkpoints(connection, key, changes.delete_checkpoints)
        if changes.delete_segments:
            await queries.delete_segments(connection, key, changes.delete_segments)
        if changes.packs:
            await queries.insert_segment(connection, key, changes.packs)
        if changes.delete_metadata:
            await queries.delete_metadata(connection, key, changes.delete_metadata)
        await (queries.renew_epoch if changes.removes else queries.renew_revision)(connection, key)
        self._note(changes)

    def _note(self, changes: ThreadChanges) -> None:
        """What the log is to say: nothing, if rows were only marked, or exchanged for packs."""
        if changes.removes and not changes.packs:
            self._removed = (
                f"{len(changes.delete_checkpoints)} checkpoints, {len(changes.delete_segments)} segments and "
                f"{len(changes.delete_metadata)} metadata documents, rewrote {len(changes.updates)} checkpoints"
            )

    async def restart(self, thread: ThreadRef) -> None:
        """Removes all rows of the thread and makes its row anew, so that nobody else can until the transaction ends."""
        if self._head is not None:
            await self._queries.delete_thread(self._connection, self._key)
        try:
            is_pinned = self._head is not None and self._head.pinned
            self._head = await self._queries.create_thread(self._connection, thread, is_pinned)
        except asyncpg.UniqueViolationError as error:
            raise ThreadBusyError(
                f"thread {thread.thread_id!r} was created by someone else at the same moment", hint="run it again"
            ) from error

    async def numbers(self, count: int) -> Sequence[int]:
        """New segment ids."""
        return await self._queries.take_numbers(self._connection, count)

    async def insert(self, rows: NewRows) -> None:
        """Adds rows to a restarted thread."""
        await self._queries.insert_metadata(self._connection, self._key, rows.metadata)
        await self._queries.insert_segment(self._connection, self._key, rows.segments)
        await self._queries.insert_checkpoint(self._connection, self._key, rows.checkpoints)

    async def unstage(self) -> None:
        """Removes what is staged of the thread."""
        await self._queries.unstage(self._connection, self._key)

    async def _update(self, update: RowUpdate) -> None:
        row = update.row
        new_ids: tuple[int, ...] = ()
        if update.new_segments:
            new_ids = await self._queries.insert_segments(self._connection, self._key, row, update.new_segments)
        await self._queries.update_checkpoint(self._connection, self._key, row, new_ids + row.segments)
