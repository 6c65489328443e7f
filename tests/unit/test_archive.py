"""The file of an archived thread: its bytes, its bounds, and that no damage goes unnoticed."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from deltastore.core import archive
from deltastore.core.archive import ArchiveHeader, ArchiveReader, ArchiveWriter, Row
from deltastore.core.model import CheckpointRow, MetadataRow, SegmentKind, SegmentRow
from deltastore.errors import CorruptPayloadError, StoredDataError, UnreadableValueError

HEADER = ArchiveHeader("thread ü", 1, 2, 2, "2026-01-01T00:00:00+00:00", "0.1.0", cipher=False, pinned=True)
ROWS: list[Row] = [
    MetadataRow(-5, '{"user": "ann"}', b"metadata"),
    SegmentRow(1, SegmentKind.WRITES, "", b"\x01" * 17, b"writes"),
    SegmentRow(2, SegmentKind.PAGES, "sub|ä", b"\x02" * 17, b"page", (1,)),
    CheckpointRow("", b"\x01" * 17, None, 0, (2, 1), b"anchor", -5, orphaned=True),
    CheckpointRow("", b"\x02" * 17, b"\x01" * 17, 1, (), b"delta", -5, hidden=True),
]


class Xor:
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "xor", bytes(each ^ 0x55 for each in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "xor"
        return bytes(each ^ 0x55 for each in ciphertext)


def written(rows: list[Row] = ROWS, header: ArchiveHeader = HEADER, cipher: Any = None) -> bytes:
    writer = ArchiveWriter(header, cipher)
    parts = [writer.begin()]
    parts += [writer.block() for row in rows if writer.add(row)]
    return b"".join([*parts, writer.block(), writer.end()])


def read(data: bytes, cipher: Any = None) -> list[Row]:
    reader = ArchiveReader(io.BytesIO(data), cipher)
    return [row for block in reader.blocks() for row in block]


@pytest.mark.parametrize("cipher", [None, Xor()])
def test_rows_come_back(cipher: Any) -> None:
    data = written(cipher=cipher)
    assert read(data, cipher) == ROWS
    assert ArchiveReader(io.BytesIO(data), None).header == HEADER
    assert data.startswith(b'deltastore archive 1\n{"thread_id": "thread \\u00fc", ')
    if cipher is not None:
        assert b"user" not in data


def test_many_blocks_and_the_digest_of_their_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "BLOCK_BYTES", 100)
    writer = ArchiveWriter(HEADER, None)
    data = writer.begin()
    full = []
    for row in ROWS:
        full.append(writer.add(row))
        data += writer.block() if full[-1] else b""
    data += writer.block() + writer.end()
    assert full == [False, True, False, True, False]
    reader = ArchiveReader(io.BytesIO(data), None)
    assert [len(block) for block in reader.blocks()] == [2, 2, 1]
    assert reader.contents == writer.contents


@pytest.mark.parametrize("cipher", [None, Xor()])
def test_every_flipped_byte_is_noticed(cipher: Any) -> None:
    data = written(cipher=cipher)
    chance = random.Random(1)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << chance.randrange(8)
        with pytest.raises(StoredDataError):
            read(bytes(damaged), cipher)


def test_every_shorter_or_longer_file_is_refused() -> None:
    data = written()
    for length in range(len(data)):
        with pytest.raises(CorruptPayloadError):
            read(data[:length])
    with pytest.raises(CorruptPayloadError, match="is damaged"):
        read(data + b"\n")


def test_blocks_of_other_files_or_places_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "BLOCK_BYTES", 1)
    writer = ArchiveWriter(HEADER, None)
    begin, blocks = writer.begin(), []
    for row in ROWS:
        writer.add(row)
        blocks.append(writer.block())
    exchanged = [blocks[1], blocks[0], *blocks[2:]]
    with pytest.raises(CorruptPayloadError, match="belongs to another row"):
        read(begin + b"".join(exchanged) + writer.end())
    other = ArchiveWriter(replace(HEADER, thread_id="other"), None)
    with pytest.raises(CorruptPayloadError, match="belongs to another row"):
        read(other.begin() + b"".join(blocks) + other.end())


def test_rows_that_the_header_does_not_count_are_refused() -> None:
    with pytest.raises(CorruptPayloadError, match="lacks rows"):
        read(written(ROWS[1:]))


@pytest.mark.parametrize(
    "row",
    [
        [],
        5,
        [4, 1],
        [1, 1, "{}"],
        [1, 1, "{}", "payload"],
        [1, "1", "{}", b""],
        [2, 9, "", b"k", [], b""],
        [2, 1, "", b"k", ["1"], b""],
        [2, 1, None, b"k", [], b""],
        [3, "", b"k", "parent", 0, [], 1, 0, b""],
        [3, "", b"k", None, 0, [1.5], 1, 0, b""],
        [3, "", b"k", None, 0, [], 1, 0, b"", b""],
    ],
)
def test_rows_of_another_form_are_refused(row: Any) -> None:
    writer = ArchiveWriter(HEADER, None)
    begin = writer.begin()
    writer._rows.append(row)
    with pytest.raises(CorruptPayloadError, match="something that is not a row"):
        read(begin + writer.block() + writer.end())


def test_a_cipher_is_needed_and_named() -> None:
    data = written(cipher=Xor())
    with pytest.raises(UnreadableValueError, match="encrypted with 'xor'"):
        read(data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is not an archive"),
        (b"PK\x03\x04" * 20, "is not an archive"),
        (b"deltastore archive 2\n{}\n", "newer deltastore"),
        (b"deltastore archive 1\n", "no whole header"),
        (b"deltastore archive 1\n{}\n", "unknown form"),
        (b"deltastore archive 1\n[]\n", "unknown form"),
        (b"deltastore archive 1\nx\n", "unknown form"),
    ],
)
def test_other_files_are_told_apart(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptPayloadError, match=problem):
        read(data)


@pytest.mark.parametrize("field", ["thread_id", "segments", "cipher"])
def test_headers_of_another_form_are_refused(field: str) -> None:
    document = json.loads(HEADER.encode())
    values: list[Any] = [None, -1, "1", [], 1.5]
    for value in values:
        if isinstance(value, type(document[field])) and value != -1:
            continue
        line = json.dumps({**document, field: value}).encode()
        with pytest.raises(CorruptPayloadError, match="unknown form"):
            ArchiveHeader.decode(line)
    assert ArchiveHeader.decode(json.dumps({**document, "later": 1}).encode()) == HEADER


def test_a_declared_length_takes_no_memory() -> None:
    class Tiny(io.BytesIO):
        asked_bytes_max = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.asked_bytes_max = max(self.asked_bytes_max, size or 0)
            return super().read(size)

    begin = ArchiveWriter(HEADER, None).begin()
    file = Tiny(begin + (2**31 - 3).to_bytes(4))
    with pytest.raises(CorruptPayloadError, match="is cut off"):
        list(ArchiveReader(file, None).blocks())
    assert file.asked_bytes_max <= 2**20
    with pytest.raises(CorruptPayloadError, match="impossible length"):
        list(ArchiveReader(io.BytesIO(begin + b"\xff" * 4), None).blocks())


def test_an_endless_header_is_refused() -> None:
    with pytest.raises(CorruptPayloadError, match="no whole header"):
        ArchiveReader(io.BytesIO(archive.MARK + b" " * (archive.HEADER_BYTES_MAX + 10)), None)
