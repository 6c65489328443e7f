"""Drafts to rows: the last step before storage, where payloads are compressed, ciphered and bound to their row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deltastore.core.digests import digest
from deltastore.core.draft import Draft, Items, Put, PutWrites
from deltastore.core.frame import Cipher, seal
from deltastore.core.model import CheckpointRow, MetadataRow, NewSegment, SegmentKind
from deltastore.core.payload import (
    CheckpointPayload,
    checkpoint_binding,
    metadata_binding,
    pack_checkpoint,
    pack_page,
    pack_values,
    pack_writes,
    segment_binding,
)
from deltastore.core.writes import Write


def seal_checkpoint(
    put: Put, drafted: Draft, metadata_id: int, cipher: Cipher | None
) -> tuple[CheckpointRow, tuple[NewSegment, ...]]:
    """The row and the new segments of a drafted save."""
    row = CheckpointRow(
        put.namespace, put.checkpoint_id, put.parent_id, drafted.state.depth, drafted.old_pages, b"", metadata_id
    )
    return seal_row(row, CheckpointPayload(put.volatile, drafted.body), drafted, cipher)


def seal_row(
    row: CheckpointRow, payload: CheckpointPayload, drafted: Draft, cipher: Cipher | None
) -> tuple[CheckpointRow, tuple[NewSegment, ...]]:
    """`row` with its sealed payload, and the drafted new segments sealed for it."""
    plain = pack_checkpoint(payload, drafted.old_pages, len(drafted.pages), bool(drafted.items))
    sealed = replace(row, payload=seal(plain, associated=checkpoint_binding(row), cipher=cipher))
    segments = []
    if drafted.items:
        segments.append(_seal_segment(SegmentKind.VALUES, row, pack_values(drafted.items), (), cipher))
    segments += [
        _seal_segment(SegmentKind.PAGES, row, pack_page(page), tuple(sorted(page.pieces.segment_ids() - {-1})), cipher)
        for page in drafted.pages
    ]
    return sealed, tuple(segments)


def _seal_segment(
    kind: SegmentKind, row: CheckpointRow, plain: bytes, references: tuple[int, ...], cipher: Cipher | None
) -> NewSegment:
    binding = segment_binding(kind, row.namespace, row.checkpoint_id)
    return NewSegment(kind, seal(plain, associated=binding, cipher=cipher), references)


def metadata_id_of(put: Put) -> int:
    """The id of the shared metadata: equal metadata has an equal id."""
    return int.from_bytes(digest(put.shared)[:8], "big", signed=True)


def seal_metadata(put: Put, cipher: Cipher | None) -> MetadataRow:
    """The shared metadata as a row of its own."""
    metadata_id = metadata_id_of(put)
    sealed = seal(put.shared, associated=metadata_binding(metadata_id), cipher=cipher)
    return MetadataRow(metadata_id, put.document, sealed)


def seal_writes(put: PutWrites, writes: Sequence[Write], items: Items, cipher: Cipher | None) -> NewSegment:
    """The segment of a `put_writes` call."""
    references = {place for write in writes for place in write.pieces.segment_ids() if place >= 0}
    plain = pack_writes(put.task_id, put.task_path, writes, items.own)
    binding = segment_binding(SegmentKind.WRITES, put.namespace, put.checkpoint_id)
    sealed = seal(plain, associated=binding, cipher=cipher)
    return NewSegment(SegmentKind.WRITES, sealed, tuple(sorted(references)))
