"""Which checkpoints a listing asks for, in dicts."""

from __future__ import annotations

from collections.abc import Iterator

from deltastore.core.containment import contains
from deltastore.core.model import CheckpointRow, ListCursor, ListEntry, ListQuery, MetadataRow
from deltastore.errors import BrokenChainError
from deltastore.memory.thread import MemoryThread


def matching_checkpoints(
    thread: MemoryThread, query: ListQuery
) -> Iterator[tuple[ListCursor, MemoryThread, CheckpointRow]]:
    """The thread's checkpoints that the query asks for, with their places in the listing."""
    if query.thread_key is not None and query.thread_key != thread.ref.key:
        return
    for row in thread.checkpoints.values():
        cursor = ListCursor(row.checkpoint_id, thread.ref.key, row.namespace)
        if (
            not row.hidden
            and query.namespace in (None, row.namespace)
            and query.checkpoint_id in (None, row.checkpoint_id)
            and (query.before is None or row.checkpoint_id < query.before)
            and (query.cursor is None or cursor < query.cursor)
            and (query.document is None or _describes(thread.metadata.get(row.metadata_id), query.document))
        ):
            yield cursor, thread, row


def _describes(metadata: MetadataRow | None, document: str) -> bool:
    return metadata is not None and contains(metadata.document, document)


def list_entry(thread: MemoryThread, row: CheckpointRow) -> ListEntry:
    """A checkpoint as an entry. Raises `BrokenChainError` if its metadata is missing."""
    metadata = thread.metadata.get(row.metadata_id)
    if metadata is None:
        raise BrokenChainError(f"metadata of a checkpoint of thread {thread.ref.thread_id!r} is missing")
    return ListEntry(thread.ref, row, metadata)
