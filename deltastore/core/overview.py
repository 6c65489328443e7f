"""Records of overviews: which threads and namespaces there are, without any state.

**The order of threads** is that of their newest checkpoint in the root namespace, the newest first. A checkpoint that
was deleted counts as long as its row is there: so the order can be read from the index alone, and a cursor stays right.
Threads without any checkpoint there come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from deltastore.core.containment import contains
from deltastore.core.model import Chains, CheckpointRow, ListEntry, MetadataRow, SegmentKind, ThreadRef


@dataclass(frozen=True, slots=True, order=True)
class ThreadsCursor:
    """Position in the list of threads: the newest ordered key of the root namespace (empty for none), thread key."""

    newest: bytes
    thread_key: bytes


@dataclass(frozen=True, slots=True)
class ThreadsQuery:
    """Which threads to list.

    Attributes:
        document: JSON text; only threads with a visible checkpoint whose metadata document contains it (jsonb `@>`).
        cursor: Continue after this entry of an earlier page.
        limit: Entries in one page.
        pinned: Only pinned threads.
    """

    document: str | None = None
    cursor: ThreadsCursor | None = None
    limit: int = 100
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class ThreadEntry:
    """One thread in a listing.

    Attributes:
        thread: The thread.
        created_at: When it got its first row.
        pinned: Exempt from retention.
        newest: What it is sorted by: see `ThreadsCursor`.
        head: The newest visible checkpoint of the root namespace, if there is one.
    """

    thread: ThreadRef
    created_at: datetime
    pinned: bool
    newest: bytes
    head: ListEntry | None

    @property
    def cursor(self) -> ThreadsCursor:
        """Where the next page starts."""
        return ThreadsCursor(self.newest, self.thread.key)


@dataclass(frozen=True, slots=True)
class NamespaceEntry:
    """One namespace of a thread, with the ordered key of its newest visible checkpoint."""

    namespace: str
    newest: bytes


def thread_entry(
    bare: ThreadEntry, rows: Iterable[CheckpointRow], metadata: Mapping[int, MetadataRow], query: ThreadsQuery
) -> ThreadEntry | None:
    """The entry of a thread whose rows are at hand; None if the query does not ask for it.

    Args:
        bare: What is known of the thread without its rows.
        rows: Its checkpoints.
        metadata: Its metadata documents.
        query: What is asked for.
    """
    stored = list(rows)
    visible = [row for row in stored if not row.hidden]
    if query.document is not None:
        found = {number for number, each in metadata.items() if contains(each.document, query.document)}
        if not any(row.metadata_id in found for row in visible):
            return None
    newest = max((row.checkpoint_id for row in stored if row.namespace == ""), default=b"")
    if query.cursor is not None and ThreadsCursor(newest, bare.thread.key) >= query.cursor:
        return None
    head = max((row for row in visible if row.namespace == ""), key=lambda row: row.checkpoint_id, default=None)
    entry = None if head is None else ListEntry(bare.thread, head, metadata[head.metadata_id])
    return replace(bare, newest=newest, head=entry)


def namespace_entries(rows: Iterable[CheckpointRow], after: str | None, limit: int) -> list[NamespaceEntry]:
    """The first namespaces behind `after`, in the order of their names, from rows that are at hand."""
    newest: dict[str, bytes] = {}
    for row in rows:
        if not row.hidden and (after is None or row.namespace > after):
            newest[row.namespace] = max(newest.get(row.namespace, b""), row.checkpoint_id)
    names = sorted(newest, key=str.encode)[:limit]
    return [NamespaceEntry(name, newest[name]) for name in names]


def without_values(chains: Chains) -> Chains:
    """Chains as structure only: no segments of values, no metadata."""
    segments = tuple(segment for segment in chains.segments if segment.kind is not SegmentKind.VALUES)
    return replace(chains, segments=segments, metadata=())
