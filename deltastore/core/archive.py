r"""The file of an archived thread: its rows, opened, compressed together, and proved as a whole.

    deltastore archive 1\n         the mark, with the version of this layout
    {"thread_id": ..., ...}\n      the header: JSON, one line
    length, sealed block          as often as needed; 4 bytes, big-endian, then a payload as in `frame.py`
    0, digest                     4 zero bytes, then BLAKE2b (32 bytes) of all bytes before

A block is a MessagePack array of rows: first all metadata documents, then all segments, then all checkpoints. A row is
what the table keeps, with its payload *opened*: small payloads that were compressed one by one become less than half as
large when they are compressed together. Each block is sealed like a payload (`frame.py`), so it says how it is
compressed, is ciphered if there is a cipher, and is bound by its checksum to its thread and its place in the file.

Segments are numbered from 1 in their order, in place of the ids of the database that they come from (`renumber.py`), so
an archive can be brought into any database.

Writing holds one block in memory, reading too. A length is believed only as far as the file really goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from typing import Any, Final, Protocol

from deltastore.core.compress import PLAIN_BYTES_MAX
from deltastore.core.frame import Cipher, seal, unseal
from deltastore.core.model import CheckpointRow, MetadataRow, SegmentKind, SegmentRow
from deltastore.core.payload import pack, unpack
from deltastore.errors import CorruptPayloadError, StoredDataError, UnreadableValueError

MARK: Final = b"deltastore archive 1\n"
BLOCK_BYTES: Final = 4 * 1024 * 1024
"""A block is closed when its plain bytes reach this; one larger row makes a larger block."""

HEADER_BYTES_MAX: Final = 1024 * 1024
LEVEL: Final = 19
ROW_BYTES: Final = 64
"""About what a row takes beside its payload."""

_LENGTH_BYTES: Final = 4
_DIGEST_BYTES: Final = 32
_READ_BYTES: Final = 1024 * 1024
_DOCUMENT, _SEGMENT, _CHECKPOINT = 1, 2, 3
_HIDDEN, _ORPHANED = 1, 2
_COLUMNS: Final = {
    _DOCUMENT: (int, str, bytes),
    _SEGMENT: (int, str, bytes, list, bytes),
    _CHECKPOINT: (str, bytes, bytes | None, int, list, int, int, bytes),
}
_HINT: Final = "take another copy of the file"

Row = MetadataRow | SegmentRow | CheckpointRow
"""A row with its payload opened; segments are numbered from 1."""


class Readable(Protocol):
    """A binary file."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; fewer only at the end."""


@dataclass(frozen=True, slots=True)
class ArchiveHeader:
    """What an archive says about itself before its rows.

    Attributes:
        thread_id: The thread.
        documents: How many metadata documents it has.
        segments: How many segments.
        checkpoints: How many checkpoints, support rows included.
        archived_at: When it was written, in ISO form.
        written_by: The version of deltastore that wrote it.
        cipher: Whether its blocks are ciphered.
        pinned: Whether it was exempt from retention.
    """

    thread_id: str
    documents: int
    segments: int
    checkpoints: int
    archived_at: str
    written_by: str
    cipher: bool
    pinned: bool

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many rows of each sort there are."""
        return self.documents, self.segments, self.checkpoints

    def encode(self) -> bytes:
        """The header's line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> ArchiveHeader:
        """The inverse of `encode`; keys that are not known are left out. Raises `CorruptPayloadError`."""
        try:
            document = json.loads(line)
            found = {each.name: (document[each.name], each.type) for each in fields(cls)}
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged("has a header of an unknown form", repr(error)) from error
        for name, (value, type_name) in found.items():
            if type(value).__name__ != type_name or (type_name == "int" and value < 0):
                raise _damaged("has a header of an unknown form", f"{name} is {value!r}")
        return cls(**{name: value for name, (value, _) in found.items()})


# --- writing


class ArchiveWriter:
    """Makes the bytes of an archive: `begin`, then `block` whenever `add` says that one is full, then `end`.

    Args:
        header: What the archive says about itself.
        cipher: Ciphers the blocks.
    """

    def __init__(self, header: ArchiveHeader, cipher: Cipher | None) -> None:
        self._thread_id = header.thread_id
        self._begin = MARK + header.encode()
        self._cipher = cipher
        self._digest = blake2b(digest_size=_DIGEST_BYTES)
        self._contents = blake2b(digest_size=_DIGEST_BYTES)
        self._rows: list[Any] = []
        self._waiting_bytes = 0
        self._blocks = 0

    def begin(self) -> bytes:
        """The bytes before the first block."""
        self._digest.update(self._begin)
        return self._begin

    def add(self, row: Row) -> bool:
        """Adds a row. True if a block is full."""
        self._rows.append(_pack_row(row))
        self._waiting_bytes += len(row.payload) + ROW_BYTES
        return self._waiting_bytes >= BLOCK_BYTES

    def block(self) -> bytes:
        """The rows that were added since the last block, as a block; takes a while."""
        if not self._rows:
            return b""
        plain = pack(self._rows)
        self._contents.update(plain)
        associated = _binding(self._thread_id, self._blocks)
        sealed = seal(plain, associated=associated, cipher=self._cipher, level=LEVEL)
        self._rows, self._waiting_bytes, self._blocks = [], 0, self._blocks + 1
        block = len(sealed).to_bytes(_LENGTH_BYTES) + sealed
        self._digest.update(block)
        return block

    def end(self) -> bytes:
        """The bytes behind the last block."""
        self._digest.update(bytes(_LENGTH_BYTES))
        return bytes(_LENGTH_BYTES) + self._digest.digest()

    @property
    def contents(self) -> bytes:
        """A digest of the plain rows of all blocks so far; the same as that of a reader that has read them."""
        return self._contents.digest()


def _binding(thread_id: str, number: int) -> bytes:
    return pack(["archive", thread_id, number])


def _pack_row(row: Row) -> list[Any]:
    if isinstance(row, MetadataRow):
        return [_DOCUMENT, row.metadata_id, row.document, row.payload]
    if isinstance(row, SegmentRow):
        return [_SEGMENT, int(row.kind), row.namespace, row.checkpoint_id, list(row.references), row.payload]
    marks = _HIDDEN * row.hidden + _ORPHANED * row.orphaned
    return [
        _CHECKPOINT, row.namespace, row.checkpoint_id, row.parent_id, row.depth, list(row.segments), row.metadata_id,
        marks, row.payload,
    ]  # fmt: skip


# --- reading


class ArchiveReader:
    """Reads an archive from its beginning.

    Args:
        file: Where it is; read once, in order.
        cipher: Deciphers the blocks.

    Raises:
        CorruptPayloadError: It is not an archive, or of a newer version, or damaged in its header.
    """

    def __init__(self, file: Readable, cipher: Cipher | None) -> None:
        self._file = file
        self._cipher = cipher
        self._digest = blake2b(digest_size=_DIGEST_BYTES)
        self._contents = blake2b(digest_size=_DIGEST_BYTES)
        mark = file.read(len(MARK))
        if mark != MARK:
            is_other_version = mark.startswith(MARK.rstrip(b"1\n")) and mark.rstrip()[-1:].isdigit()
            problem = "was written by a newer deltastore" if is_other_version else "is not an archive of deltastore"
            raise _damaged(problem, f"it begins with {mark!r}, expected {MARK!r}")
        line = bytearray()
        while not line.endswith(b"\n"):
            piece = file.read(1)
            if not piece or len(line) > HEADER_BYTES_MAX:
                raise _damaged("has no whole header", f"{len(line)} bytes were read")
            line += piece
        self._digest.update(MARK + line)
        self.header = ArchiveHeader.decode(bytes(line))

    def blocks(self) -> Iterator[list[Row]]:
        """The rows, block by block, each with the number or the key that it had.

        Raises:
            CorruptPayloadError: The file is damaged, or ends too early or too late. Blocks that were given before are
                whole and unchanged.
            UnreadableValueError: The blocks are ciphered and the cipher cannot read them.
        """
        counts = [0, 0, 0]
        number = 0
        while (length := int.from_bytes(self._take(_LENGTH_BYTES))) > 0:
            if length > 2 * PLAIN_BYTES_MAX:
                raise _damaged("declares an impossible length", f"block {number} of {length} bytes")
            yield list(self._rows(self._open(self._take(length), number), counts, number))
            number += 1
        expected, found = self._digest.digest(), self._read(_DIGEST_BYTES)
        if found != expected or self._file.read(1):
            raise _damaged("is damaged", f"digest {found.hex()}, expected {expected.hex()} and then nothing")
        if tuple(counts) != self.header.counts:
            raise _damaged("lacks rows", f"found {tuple(counts)}, the header says {self.header.counts}")

    @property
    def contents(self) -> bytes:
        """A digest of the plain rows of all blocks so far."""
        return self._contents.digest()

    def _take(self, size: int) -> bytes:
        found = self._read(size)
        self._digest.update(found)
        return found

    def _read(self, size: int) -> bytes:
        """Exactly so many bytes; memory is taken for what is there, not for what is declared."""
        pieces: list[bytes] = []
        left = size
        while left:
            piece = self._file.read(min(left, _READ_BYTES))
            if not piece:
                raise _damaged("is cut off", f"{left} of {size} bytes are missing")
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _open(self, sealed: bytes, number: int) -> bytes:
        try:
            plain = unseal(sealed, associated=_binding(self.header.thread_id, number), cipher=self._cipher)
        except UnreadableValueError:
            raise
        except StoredDataError as error:
            raise _damaged("is damaged", f"block {number}: {error.message}, {error.detail}") from error
        self._contents.update(plain)
        return plain

    def _rows(self, plain: bytes, counts: list[int], number: int) -> Iterator[Row]:
        try:
            for packed in unpack(plain):
                counts[packed[0] - 1] += 1
                yield _unpack_row(packed, counts[1])
        except (IndexError, TypeError, ValueError, CorruptPayloadError) as error:
            raise _damaged("holds something that is not a row", f"block {number}: {error!r}") from error


def _unpack_row(packed: list[Any], number: int) -> Row:
    sort, *columns = packed
    types = _COLUMNS.get(sort, ())
    if not types or not all(isinstance(column, each) for column, each in zip(columns, types, strict=True)):
        raise ValueError(f"sort {sort}, columns {[type(column).__name__ for column in columns]}")
    if not all(type(each) is int for column in columns if isinstance(column, list) for each in column):
        raise ValueError("a segment that is no number")
    if sort == _DOCUMENT:
        return MetadataRow(*columns)
    if sort == _SEGMENT:
        kind, namespace, checkpoint_id, references, payload = columns
        return SegmentRow(number, SegmentKind(kind), namespace, checkpoint_id, payload, tuple(references))
    namespace, checkpoint_id, parent_id, depth, segments, metadata_id, marks, payload = columns
    row = CheckpointRow(namespace, checkpoint_id, parent_id, depth, tuple(segments), payload, metadata_id)
    return replace(row, hidden=bool(marks & _HIDDEN), orphaned=bool(marks & _ORPHANED))


def _damaged(problem: str, detail: str) -> CorruptPayloadError:
    return CorruptPayloadError(f"the file {problem}", detail=detail, hint=_HINT)
