"""Rows on their way into an archive, opened and numbered from 1, and out of one, sealed and with ids of a database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from deltastore.core.archive import Row
from deltastore.core.chain import describe, open_plain
from deltastore.core.frame import Cipher, seal, unseal
from deltastore.core.model import MetadataRow, SegmentRow, ThreadRef
from deltastore.core.payload import checkpoint_binding, metadata_binding, segment_binding
from deltastore.core.renumber import NewNumber, renumber_checkpoint, renumber_segment
from deltastore.errors import BrokenChainError, CorruptPayloadError, StoredDataError


class Packing:
    """Makes archive rows of stored rows.

    Args:
        thread: The thread.
        segment_ids: The ids of all its segments.
        cipher: Opens ciphered payloads.
    """

    def __init__(self, thread: ThreadRef, segment_ids: Iterable[int], cipher: Cipher | None) -> None:
        self._thread = thread
        self._cipher = cipher
        self._numbers = {each: number for number, each in enumerate(sorted(segment_ids), 1)}

    def pack(self, row: Row) -> Row:
        """The row with its payload opened and with numbers from 1.

        Raises:
            StoredDataError: The row cannot be read, or names a segment that is not there.
        """
        if isinstance(row, MetadataRow):
            where = f"metadata document {row.metadata_id} of thread {self._thread.thread_id!r}"
            return replace(row, payload=self._open(row.payload, metadata_binding(row.metadata_id), where))
        where = describe(self._thread, row.namespace, row.checkpoint_id)
        new_number = self._finder(where)
        if isinstance(row, SegmentRow):
            return replace(
                row,
                segment_id=new_number(row.segment_id),
                payload=renumber_segment(row.kind, open_plain(self._thread, row, self._cipher), new_number),
                references=tuple(map(new_number, row.references)),
            )
        plain = self._open(row.payload, checkpoint_binding(row), where)
        return replace(
            row, payload=renumber_checkpoint(plain, new_number), segments=tuple(map(new_number, row.segments))
        )

    def _open(self, payload: bytes, associated: bytes, where: str) -> bytes:
        try:
            return unseal(payload, associated=associated, cipher=self._cipher)
        except StoredDataError as error:
            raise type(error)(f"{where}: {error.message}", detail=error.detail, hint=error.hint) from error

    def _finder(self, where: str) -> NewNumber:
        def new_number(segment_id: int) -> int:
            number = self._numbers.get(segment_id)
            if number is None:
                raise BrokenChainError(
                    f"{where}: segment {segment_id} is missing",
                    detail="the thread is damaged; it was left as it is",
                    hint="restore the rows from a backup, or delete the checkpoints that need it",
                )
            return number

        return new_number


class Unpacking:
    """Makes stored rows of archive rows.

    Args:
        numbers: The new ids of the segments, ascending.
        cipher: Ciphers the payloads.
    """

    def __init__(self, numbers: Sequence[int], cipher: Cipher | None) -> None:
        self._numbers = numbers
        self._cipher = cipher

    def unpack(self, row: Row) -> Row:
        """The row sealed for its place, with the new ids. Raises `CorruptPayloadError` for what makes no sense."""
        if isinstance(row, MetadataRow):
            return replace(row, payload=self._seal(row.payload, metadata_binding(row.metadata_id)))
        if isinstance(row, SegmentRow):
            plain = renumber_segment(row.kind, row.payload, self._id)
            return replace(
                row,
                segment_id=self._id(row.segment_id),
                payload=self._seal(plain, segment_binding(row.kind, row.namespace, row.checkpoint_id)),
                references=tuple(map(self._id, row.references)),
            )
        plain = renumber_checkpoint(row.payload, self._id)
        return replace(
            row, payload=self._seal(plain, checkpoint_binding(row)), segments=tuple(map(self._id, row.segments))
        )

    def _seal(self, plain: bytes, associated: bytes) -> bytes:
        return seal(plain, associated=associated, cipher=self._cipher)

    def _id(self, number: int) -> int:
        if not 0 < number <= len(self._numbers):
            raise CorruptPayloadError(
                f"an archive names segment {number}",
                detail=f"it has {len(self._numbers)}",
                hint="it was written wrongly: report it",
            )
        return self._numbers[number - 1]
