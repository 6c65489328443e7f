"""All rows of one thread as they are stored, for verification: nothing is assumed of them, not even unique keys.

A survey is of one moment. Checkpoints and metadata come whole; segments come as heads, and their payloads are asked for
in batches, since they are most of a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deltastore.core.edits import ThreadChanges
from deltastore.core.model import CheckpointRow, MetadataRow, SegmentRow, ThreadRef

BATCH_BYTES = 8 * 1024 * 1024
BATCH_SEGMENTS = 2000
NO_ID = 0
"""Stands for NULL among ids of segments. No segment has it."""


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A row of a thread itself."""

    thread_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """A segment without its payload.

    `kind` is what is stored, of a known kind or not; `pack_id` is the pack that it was in, or None.
    """

    segment_id: int
    kind: int
    namespace: str
    checkpoint_id: bytes
    references: tuple[int, ...]
    payload_bytes: int
    pack_id: int | None = None


@dataclass(frozen=True, slots=True)
class ThreadSurvey:
    """The rows under one thread key.

    Attributes:
        key: The thread key.
        threads: Rows of the thread itself: one, if all is well.
        checkpoints: All checkpoints.
        segments: All segments, without payloads.
        metadata: All metadata documents.
        quarantined: How many rows an earlier repair took out.
    """

    key: bytes
    threads: tuple[ThreadRow, ...]
    checkpoints: tuple[CheckpointRow, ...]
    segments: tuple[SegmentHead, ...]
    metadata: tuple[MetadataRow, ...]
    quarantined: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored under the key."""
        return not (self.threads or self.checkpoints or self.segments or self.metadata)


@dataclass(frozen=True, slots=True)
class Removal:
    """A row to be taken out of its table and kept in quarantine.

    Attributes:
        reason: Why.
        checkpoint: The key of a checkpoint, or
        segment_id: the id of a segment, or
        metadata_id: the id of a metadata document.
        payload: Only the copy with this payload, where several rows have one key; None for all of them.
    """

    reason: str
    checkpoint: tuple[str, bytes] | None = None
    segment_id: int | None = None
    metadata_id: int | None = None
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class Repairs:
    """What to do to a thread, as one transaction, in this order.

    Attributes:
        thread: The thread. Its row is made, or gets this id, if it is not so.
        drops_copies: Of rows that are equal to another one, one stays.
        removals: Rows to be moved to the quarantine.
        changes: Rows to be rewritten or marked.
        documents: Searchable forms by metadata id, to be written anew.
    """

    thread: ThreadRef
    drops_copies: bool
    removals: tuple[Removal, ...]
    changes: ThreadChanges
    documents: tuple[tuple[int, str], ...]


def batches(heads: Iterable[SegmentHead]) -> Iterator[list[int]]:
    """Ids of segments, in batches whose payloads fit into memory."""
    batch: list[int] = []
    batch_bytes = 0
    for head in heads:
        if batch and (batch_bytes + head.payload_bytes > BATCH_BYTES or len(batch) >= BATCH_SEGMENTS):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(head.segment_id)
        batch_bytes += head.payload_bytes
    if batch:
        yield batch


def head_of(row: SegmentRow) -> SegmentHead:
    """A segment without its payload."""
    return SegmentHead(row.segment_id, row.kind, row.namespace, row.checkpoint_id, row.references, len(row.payload))
