"""A thread on its way back: the file is read in full once before anything is written, then the thread lands whole.

It lands in one transaction with segment ids of its new database, larger than all that it gave before. Payloads are
sealed anew: with the cipher that is given, whether or not the thread had one. That the thread was deleted is forgotten:
runs may go on with it as if it had never been away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from deltastore.archive.files import prove, reading
from deltastore.archive.report import Outcome, Status
from deltastore.conversion import validate
from deltastore.core.archive import ArchiveHeader, Row
from deltastore.core.archive_rows import Unpacking
from deltastore.core.edits import NewRows
from deltastore.core.frame import Cipher
from deltastore.core.model import CheckpointRow, MetadataRow, SegmentRow, ThreadRef
from deltastore.errors import InvalidConfigError
from deltastore.storage import Storage, ThreadEdit


@dataclass(frozen=True, slots=True)
class Restorer:
    """Brings archived threads back.

    Attributes:
        storage: Where they go. Its schema is set up.
        cipher: Deciphers the files, and ciphers the threads.
        replace: Whether a thread that is there already is replaced.
    """

    storage: Storage
    cipher: Cipher | None = None
    replace: bool = False

    async def restore(self, url: str, thread_id: str | None = None) -> Outcome:
        """Brings one thread back, whole or not at all.

        Args:
            url: The file: anything that fsspec opens.
            thread_id: What the thread is to be called; by default as it was.

        Raises:
            InvalidConfigError: The file cannot be opened, or the thread is there already.
            StoredDataError: The file is damaged or cannot be deciphered; nothing was written.
            DatabaseError: The database did not take it; nothing was written.
        """
        header = await asyncio.to_thread(prove, url, self.cipher)
        thread = validate.thread(header.thread_id if thread_id is None else thread_id)
        async with self.storage.edit(thread.key) as edit:
            if not self.replace and await edit.rows() is not None:
                raise InvalidConfigError(
                    f"{url}: thread {thread.thread_id!r} is there already",
                    hint="--as NAME (thread_id=…) for another name, --replace (replace=True) to replace it",
                )
            payload_bytes = await self._land(edit, thread, url)
        await self.storage.forget_deletion(thread.key)
        if header.pinned:
            await self.storage.pin(thread.key, pinned=True)
        return Outcome(
            thread.thread_id, Status.RESTORED, file=url, checkpoints=header.checkpoints, payload_bytes=payload_bytes
        )

    async def _land(self, edit: ThreadEdit, thread: ThreadRef, url: str) -> int:
        """Writes all rows; the bytes of their payloads."""
        await edit.restart(thread)
        payload_bytes = 0
        with ExitStack() as stack:
            reader = await asyncio.to_thread(stack.enter_context, reading(url, self.cipher))
            unpacking = Unpacking(await edit.numbers(reader.header.segments), self.cipher)
            blocks = reader.blocks()
            while (block := await asyncio.to_thread(next, blocks, None)) is not None:
                rows = await asyncio.to_thread(_unpacked, unpacking, block)
                payload_bytes += rows.payload_bytes
                await edit.insert(rows)
        return payload_bytes


def _unpacked(unpacking: Unpacking, block: Iterable[Row]) -> NewRows:
    rows = [unpacking.unpack(row) for row in block]
    return NewRows(
        tuple(row for row in rows if isinstance(row, CheckpointRow)),
        tuple(row for row in rows if isinstance(row, SegmentRow)),
        tuple(row for row in rows if isinstance(row, MetadataRow)),
    )


def read_header(url: str) -> ArchiveHeader:
    """What an archive says about itself; its rows are not read. Raises as `Restorer.restore`."""
    with reading(url, None) as reader:
        return reader.header
