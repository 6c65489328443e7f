"""One thread as a file: written row by row, and read block by block. Blocking; callers run it in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from hashlib import blake2b
from typing import Any, Protocol

from deltastore.archive.places import opened
from deltastore.core.archive import ArchiveHeader, ArchiveReader, ArchiveWriter, Row
from deltastore.core.archive_rows import Packing
from deltastore.core.frame import Cipher
from deltastore.core.model import SegmentRow
from deltastore.core.payload import pack
from deltastore.errors import CorruptPayloadError, StoredDataError

FINGERPRINT_BYTES = 8


class Writable(Protocol):
    """A binary file."""

    def write(self, data: bytes, /) -> Any:
        """Adds bytes."""


class ThreadFile:
    """Writes an archive.

    Args:
        file: Where it goes.
        header: What it says about itself.
        packing: Opens and numbers the stored rows.
        cipher: Ciphers the blocks.
        packed_bytes: The size of the packs that rows come out of.

    Attributes:
        payload_bytes: Bytes of all stored payloads so far, with those of packs.
        file_bytes: Bytes written so far.
    """

    def __init__(
        self,
        file: Writable,
        header: ArchiveHeader,
        packing: Packing,
        cipher: Cipher | None,
        packed_bytes: int = 0,
    ) -> None:
        self._file = file
        self._packing = packing
        self._writer = ArchiveWriter(header, cipher)
        self._fingerprint = blake2b(header.thread_id.encode(), digest_size=FINGERPRINT_BYTES)
        self.payload_bytes = packed_bytes
        self.file_bytes = 0
        self._write(self._writer.begin())

    def add(self, rows: Iterable[Row]) -> None:
        """Adds stored rows. Raises as `Packing.pack`."""
        for row in rows:
            self.payload_bytes += 0 if isinstance(row, SegmentRow) and row.pack_id is not None else len(row.payload)
            self._fingerprint.update(pack(astuple(row)))
            if self._writer.add(self._packing.pack(row)):
                self._write(self._writer.block())

    def end(self) -> None:
        """Writes what is left."""
        self._write(self._writer.block())
        self._write(self._writer.end())

    @property
    def fingerprint(self) -> str:
        """A digest of the rows as they are stored: the same thread gets the same one again, until it changes."""
        return self._fingerprint.hexdigest()

    @property
    def contents(self) -> bytes:
        """A digest of the plain rows in the file."""
        return self._writer.contents

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.file_bytes += len(data)


@contextmanager
def reading(url: str, cipher: Cipher | None) -> Iterator[ArchiveReader]:
    """An archive for reading.

    Raises:
        InvalidConfigError: It cannot be read.
        StoredDataError: It is damaged, or cannot be deciphered. The text names the file.
    """
    with opened(url) as file:
        try:
            yield ArchiveReader(file, cipher)
        except StoredDataError as error:
            raise type(error)(f"{url}: {error.message}", detail=error.detail, hint=error.hint) from error


def prove(url: str, cipher: Cipher | None, contents: bytes | None = None) -> ArchiveHeader:
    """Reads an archive in full.

    Args:
        url: Where it is.
        cipher: Deciphers it.
        contents: What `ThreadFile.contents` said, if it was written just now.

    Raises:
        InvalidConfigError: It cannot be read.
        StoredDataError: It is damaged, cannot be deciphered, or is not what was written.
    """
    with reading(url, cipher) as reader:
        for _ in reader.blocks():
            pass
        if contents is not None and reader.contents != contents:
            raise CorruptPayloadError("what was read back is not what was written", hint="look at the storage")
        return reader.header
