"""A thread on its way out: written, read back, and only then removed.

1. Its structure is read as of one moment, and its payloads after that, some megabytes at a time, without a lock: rows
   never change, so what was there is still there, or gone.
2. The file is written under another name, and read back in full.
3. Under the thread's lock: if it is still what it was in step 1, the file gets its name and the thread is removed, in
   the same transaction. Otherwise somebody wrote to it: it stays, and the file goes.

So whatever ends a run, at any moment, the thread is in the database or in a file that was read back, or in both. The
name of a file comes from what the thread holds: a run after an interrupted one replaces the file by the same, and a
thread that was archived, begun anew and archived again gets another one. A file that has its name is never removed.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from deltastore.archive.files import ThreadFile, Writable, prove
from deltastore.archive.places import Draft, Place
from deltastore.archive.report import Outcome, Status
from deltastore.core.archive import ArchiveHeader, Row
from deltastore.core.archive_rows import Packing
from deltastore.core.edits import ThreadRows
from deltastore.core.frame import Cipher
from deltastore.core.model import MetadataRow, SegmentRow, ThreadRef
from deltastore.core.packing import unpacked
from deltastore.errors import BrokenChainError, StoredDataError
from deltastore.storage import Storage, ThreadView
from deltastore.structure import read_rows, without_leftovers

BATCH_BYTES = 4 * 1024 * 1024
BATCH_ROWS_MAX = 1024
FIRST_BATCH_ROWS = 8
NAME_CHARACTERS = 80
SUFFIX = ".deltastore"
_QUARANTINED = "{} rows of it are in quarantine, and would be lost: look at them, then delete them there"

Wanted = Callable[[ThreadView, ThreadRows], Awaitable[bool]]


async def _always(_: ThreadView, __: ThreadRows) -> bool:
    return True


class _ThreadChangedError(Exception):
    """The thread is not what it was when its structure was read."""


@dataclass(frozen=True, slots=True)
class Archiver:
    """Moves threads into files.

    Attributes:
        storage: Where threads are.
        place: Where files go.
        cipher: The cipher of the threads, which ciphers the files too.
        keep: Leave the threads in the database.
        dry_run: Only say which threads would be moved, and into which files.
    """

    storage: Storage
    place: Place
    cipher: Cipher | None = None
    keep: bool = False
    dry_run: bool = False

    async def archive(self, thread: ThreadRef, wanted: Wanted = _always) -> Outcome:
        """Moves one thread. What happens to it alone is the outcome.

        Args:
            thread: The thread.
            wanted: Asked about the thread as it is when it is read: whether it is still to be archived.

        Raises:
            InvalidConfigError: The place cannot be written to; the thread is left as it was.
            DatabaseError: The database is away; the thread is there, or in its file, or both.
        """
        try:
            return await self._archive(thread, wanted)
        except StoredDataError as error:
            return Outcome(thread.thread_id, Status.FAILED, str(error))

    async def _archive(self, thread: ThreadRef, wanted: Wanted) -> Outcome:
        async with self.storage.view(thread.key) as view:
            rows = await read_rows(view, self.cipher)
            if rows is None:
                return Outcome(thread.thread_id, Status.MISSING, "there is no such thread")
            if not await wanted(view, rows):
                return Outcome(thread.thread_id, Status.KEPT)
            if not self.keep and (quarantined := await view.quarantined()):
                return Outcome(thread.thread_id, Status.FAILED, _QUARANTINED.format(quarantined))
            documents = await view.documents([number for number, _ in rows.metadata])
            packs = {each.pack_id for each in rows.segments if each.pack_id is not None}
            packed_bytes = await view.payload_bytes(sorted(packs), ()) if packs else 0
            content = await without_leftovers(view, rows, self.cipher)
        try:
            if self.dry_run:
                with Path(os.devnull).open("wb") as nowhere:  # noqa: ASYNC230 - it takes everything at once
                    written = await self._write(nowhere, content, documents, packed_bytes)
                    return self._outcome(Status.COUNTED, rows, written)
            draft = self.place.draft()
            try:
                await asyncio.to_thread(draft.open)
                written = await self._write(draft, content, documents, packed_bytes)
                await asyncio.to_thread(draft.close)
                await asyncio.to_thread(prove, draft.url, self.cipher, written.contents)
                return await self._settle(draft, rows, written)
            finally:
                await asyncio.to_thread(draft.discard)
        except _ThreadChangedError as error:
            return Outcome(thread.thread_id, Status.CHANGED, str(error))

    async def _write(
        self, file: Writable, rows: ThreadRows, documents: Sequence[MetadataRow], packed_bytes: int
    ) -> ThreadFile:
        """Writes the file. `packed_bytes` is the size of the packs that the thread is stored in."""
        header = ArchiveHeader(
            rows.thread.thread_id,
            len(rows.metadata),
            len(rows.segments),
            len(rows.checkpoints),
            datetime.now(UTC).isoformat(timespec="seconds"),
            version("langgraph-checkpoint-deltastore"),
            self.cipher is not None,
            rows.pinned,
        )
        packing = Packing(rows.thread, [each.segment_id for each in rows.segments], self.cipher)
        written = ThreadFile(file, header, packing, self.cipher, packed_bytes)
        async for batch in self._rows(rows, documents):
            await asyncio.to_thread(written.add, batch)
        await asyncio.to_thread(written.end)
        return written

    async def _settle(self, draft: Draft, rows: ThreadRows, written: ThreadFile) -> Outcome:
        """Names the file and removes the thread, if it is what was written."""
        name = file_name(rows.thread.thread_id, written.fingerprint)
        async with self.storage.edit(rows.thread.key) as edit:
            if not await edit.is_still(rows):
                raise _ThreadChangedError("it was written to or deleted meanwhile")
            await asyncio.to_thread(draft.name, name)
            if not self.keep:
                await edit.remove()
        return self._outcome(Status.COPIED if self.keep else Status.ARCHIVED, rows, written)

    def _outcome(self, status: Status, rows: ThreadRows, written: ThreadFile) -> Outcome:
        return Outcome(
            rows.thread.thread_id,
            status,
            file=self.place.url_of(file_name(rows.thread.thread_id, written.fingerprint)),
            checkpoints=len(rows.checkpoints),
            payload_bytes=written.payload_bytes,
            file_bytes=written.file_bytes,
        )

    async def _rows(self, rows: ThreadRows, documents: Sequence[MetadataRow]) -> AsyncIterator[Sequence[Row]]:
        """All rows in the order of the file, in batches."""
        first = sorted(documents, key=lambda document: document.metadata_id)
        last = sorted(rows.checkpoints, key=lambda checkpoint: checkpoint.key)
        yield first
        ids = sorted(each.segment_id for each in rows.segments)
        batch_rows, at = FIRST_BATCH_ROWS, 0
        found: dict[int, SegmentRow] = {}
        while at < len(ids):
            wanted = ids[at : at + batch_rows]
            found = {each: row for each, row in found.items() if each >= wanted[0]}
            if missing := [each for each in wanted if each not in found]:
                loaded = await self.storage.load_segments(rows.thread.key, missing)
                found |= {each.segment_id: each for each in unpacked(rows.thread, loaded, self.cipher)}
            if not found.keys() >= set(wanted):
                await self._explain(rows)
            yield [found[each] for each in wanted]
            at += len(wanted)
            payload_bytes = 1 + sum(len(found[each].payload) for each in wanted)
            batch_rows = max(1, min(2 * batch_rows, BATCH_ROWS_MAX, BATCH_BYTES * len(wanted) // payload_bytes))
        yield last

    async def _explain(self, rows: ThreadRows) -> None:
        """Says why segments are not there any more."""
        async with self.storage.view(rows.thread.key) as view:
            now = await view.rows()
        if now is None or now.epoch != rows.epoch:
            raise _ThreadChangedError("it was deleted or pruned meanwhile")
        raise BrokenChainError(
            f"thread {rows.thread.thread_id!r}: segments cannot be read although they are there",
            hint="look at the log of the database",
        )


def file_name(thread_id: str, fingerprint: str) -> str:
    """The name of an archive: the thread's id as far as it makes a good name, and the fingerprint."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", thread_id)[:NAME_CHARACTERS] + f".{fingerprint}{SUFFIX}"
