"""The records of whole threads: how one is read, changed at once under its lock, and moved in."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltastore.core.model import CheckpointRow, MetadataRow, NewSegment, SegmentRow, ThreadRef


@dataclass(frozen=True, slots=True)
class ThreadRows:
    """The structure of a whole thread, read under its exclusive lock.

    `segments` have their payload only where it holds structure (pages, packs); elsewhere it is empty.
    `metadata` holds (metadata_id, run id found in the document or None).
    `revision` changes with every edit; `created_seconds` is the time of the thread's first row, since 1970.
    """

    thread: ThreadRef
    epoch: int
    checkpoints: tuple[CheckpointRow, ...]
    segments: tuple[SegmentRow, ...]
    metadata: tuple[tuple[int, str | None], ...]
    revision: int = 0
    pinned: bool = False
    created_seconds: float = 0.0

    @property
    def stored_ids(self) -> set[int]:
        """Ids of the rows that the segments are in."""
        return {segment.stored_id for segment in self.segments}


@dataclass(frozen=True, slots=True)
class ThreadOutline:
    """The keys of a thread's checkpoints: enough to see whether a policy concerns it.

    Attributes:
        thread: The thread.
        pinned: Exempt from retention.
        created_seconds: The time of its first row, since 1970.
        checkpoints: (namespace, checkpoint id, hidden) of each row.
    """

    thread: ThreadRef
    pinned: bool
    created_seconds: float
    checkpoints: tuple[tuple[str, bytes, bool], ...]


@dataclass(frozen=True, slots=True)
class LockBounds:
    """How long an edit may wait for its thread, and each of its statements may take, in milliseconds."""

    wait_ms: int
    statement_ms: int


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows of a thread that is written as a whole, with the segment ids that `ThreadEdit.numbers` gave."""

    checkpoints: tuple[CheckpointRow, ...] = ()
    segments: tuple[SegmentRow, ...] = ()
    metadata: tuple[MetadataRow, ...] = ()

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum(sum(len(row.payload) for row in rows) for rows in (self.checkpoints, self.segments, self.metadata))


@dataclass(frozen=True, slots=True)
class StagedThread:
    """A thread that has parts in staging.

    Attributes:
        thread: The thread that will be.
        parts: How many parts there are.
        idle_seconds: Since the newest of them was added.
    """

    thread: ThreadRef
    parts: int
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """A stored checkpoint that gets another payload or other marks; same key. New segments go before `row.segments`."""

    row: CheckpointRow
    new_segments: tuple[NewSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadChanges:
    """What to change in a thread, as one transaction; the epoch moves on if anything is removed or rewritten."""

    updates: tuple[RowUpdate, ...] = ()
    delete_checkpoints: tuple[tuple[str, bytes], ...] = ()
    delete_segments: tuple[int, ...] = ()
    delete_metadata: tuple[int, ...] = ()
    new_metadata: tuple[MetadataRow, ...] = field(default=())
    marks: tuple[tuple[str, bytes, bool, bool], ...] = ()
    """(namespace, checkpoint id, hidden, orphaned) to set without touching the payload; keeps the epoch."""
    packs: tuple[SegmentRow, ...] = ()
    """Packs in place of segments that are deleted."""

    def __bool__(self) -> bool:
        return bool(
            self.updates
            or self.delete_checkpoints
            or self.delete_segments
            or self.delete_metadata
            or self.new_metadata
            or self.marks
        )

    @property
    def removes(self) -> bool:
        """Whether references that others hold can become invalid."""
        return bool(self.updates or self.delete_checkpoints or self.delete_segments or self.delete_metadata)
