"""Parts of a thread that is being migrated, as bytes.

A part is the rows that an import made in one go, sealed together with the thread, the part's number and the digest of
the part before. So parts of two imports that met cannot be mistaken for those of one: the first part that does not
follow the one before it does not open, and what comes behind it neither.
"""

from __future__ import annotations

from typing import Any

from deltastore.core.edits import NewRows
from deltastore.core.frame import seal, unseal
from deltastore.core.model import CheckpointRow, MetadataRow, SegmentKind, SegmentRow
from deltastore.core.payload import pack, unpack
from deltastore.errors import CorruptPayloadError

LEVEL = 1
"""Of zstd: the payloads inside are compressed already."""


def seal_part(rows: NewRows, thread_key: bytes, part: int, before: bytes) -> bytes:
    """Rows as a part.

    Args:
        rows: The rows; marks of checkpoints are not kept.
        thread_key: The thread.
        part: The part's number.
        before: The digest of the part before, sealed; empty for the first one.

    Raises:
        UnserializableValueError: The rows are too large together.
    """
    document = [
        [
            [row.namespace, row.checkpoint_id, row.parent_id, row.depth, row.segments, row.payload, row.metadata_id]
            for row in rows.checkpoints
        ],
        [
            [row.segment_id, int(row.kind), row.namespace, row.checkpoint_id, row.payload, row.references]
            for row in rows.segments
        ],
        [[row.metadata_id, row.document, row.payload] for row in rows.metadata],
    ]
    return seal(pack(document), associated=_binding(thread_key, part, before), level=LEVEL)


def open_part(sealed: bytes, thread_key: bytes, part: int, before: bytes) -> NewRows:
    """The rows of a part. Raises `CorruptPayloadError` if it is damaged or does not follow the one before."""
    document = unpack(unseal(sealed, associated=_binding(thread_key, part, before)))
    try:
        return _rows(document)
    except (TypeError, ValueError) as error:
        raise CorruptPayloadError("a staged part has an unknown form", detail=repr(error)) from error


def _rows(document: Any) -> NewRows:
    checkpoints, segments, metadata = document
    return NewRows(
        tuple(
            CheckpointRow(namespace, checkpoint_id, parent_id, depth, tuple(segment_ids), payload, metadata_id)
            for namespace, checkpoint_id, parent_id, depth, segment_ids, payload, metadata_id in checkpoints
        ),
        tuple(
            SegmentRow(segment_id, SegmentKind(kind), namespace, checkpoint_id, payload, tuple(references))
            for segment_id, kind, namespace, checkpoint_id, payload, references in segments
        ),
        tuple(MetadataRow(*columns) for columns in metadata),
    )


def _binding(thread_key: bytes, part: int, before: bytes) -> bytes:
    return pack(["part", thread_key, part, before])
