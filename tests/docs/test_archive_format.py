"""`docs/archive-format.md` and the frozen file: what the code writes, and what it reads for ever."""

from __future__ import annotations

import io
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from deltastore import DeltaSaver
from deltastore.conversion.convert import codec_of
from deltastore.core.archive import MARK, ArchiveHeader, ArchiveReader, ArchiveWriter, Row
from deltastore.core.archive_rows import Packing
from deltastore.core.frame import unseal
from deltastore.core.payload import pack
from tests.docs.payload_example import saved
from tests.docs.test_format import bytes_of
from tests.security.test_encryption import serializer

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "archive-format.md").read_text(encoding="utf-8")
GOLDEN = json.loads((ROOT / "tests" / "golden" / "archive_v1.json").read_text(encoding="utf-8"))
FILES = {name: bytes.fromhex(GOLDEN[name]) for name in ("file", "ciphered file")}
PLAIN = bytes.fromhex(GOLDEN["plain block"])
CIPHER = codec_of(serializer())[1]


@pytest.fixture
def rows() -> list[Row]:
    """The rows of the example, packed."""
    saver = DeltaSaver.in_memory(snapshot_frequency=2)
    thread = saved(saver)
    packing = Packing(thread.ref, thread.segments, None)
    stored = [*thread.metadata.values(), *thread.segments.values(), *thread.checkpoints.values()]
    return [packing.pack(row) for row in stored]


def test_the_rows_of_the_example_are_in_the_block_in_this_order() -> None:
    blocks = re.findall(r"<!-- example: rows -->\n```text\n(.*?)```", TEXT, re.DOTALL)
    position = 0
    for block in blocks:
        position = PLAIN.index(bytes_of(block), position)
    assert len(blocks) == 3


def test_the_beginning_of_the_file_is_documented() -> None:
    assert FILES["file"].split(b"{")[0] == MARK
    assert FILES["file"].split(b"\n")[1].decode() in TEXT
    for field in fields(ArchiveHeader):
        assert f"`{field.name}`" in TEXT


def test_the_frozen_plain_block_is_what_is_written(rows: list[Row]) -> None:
    header = ArchiveReader(io.BytesIO(FILES["file"]), None).header
    writer = ArchiveWriter(header, None)
    begin = writer.begin()
    assert not any(writer.add(row) for row in rows)
    block = writer.block()
    assert unseal(block[4:], associated=pack(["archive", "example", 0])) == PLAIN
    assert FILES["file"].startswith(begin)


@pytest.mark.parametrize("name", FILES)
def test_the_frozen_files_are_read(name: str, rows: list[Row]) -> None:
    reader = ArchiveReader(io.BytesIO(FILES[name]), CIPHER if name == "ciphered file" else None)
    assert [row for block in reader.blocks() for row in block] == rows
    assert reader.header.cipher == (name == "ciphered file")
