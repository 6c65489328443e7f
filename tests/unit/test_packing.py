"""Packs: what goes in comes out, and what does not fit is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore import CorruptPayloadError, UnreadableValueError
from deltastore.core import packing
from deltastore.core.edits import ThreadRows
from deltastore.core.frame import declared_bytes, seal, unseal
from deltastore.core.model import SegmentKind, SegmentRow, ThreadRef
from deltastore.core.packing import grouped, has_room, open_among, open_pack, seal_pack, unpacked, unpacked_rows
from deltastore.core.payload import pack, pack_values, segment_binding, unpack
from deltastore.errors import StoredDataError

VALUES, PAGES, WRITES = SegmentKind.VALUES, SegmentKind.PAGES, SegmentKind.WRITES
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "pack_v1.json").read_text(encoding="utf-8"))
T = ThreadRef(b"t" * 16, "t")


def key(number: int) -> bytes:
    return number.to_bytes(17)


def row(segment_id: int, kind: SegmentKind = VALUES, checkpoint: int = 1, **fields: Any) -> SegmentRow:
    return SegmentRow(
        segment_id, kind, fields.pop("namespace", ""), key(checkpoint), b"plain %d" % segment_id, **fields
    )


SEGMENTS = (
    row(3, WRITES, 9, references=(1, 2)),
    row(4, VALUES, 7),
    row(700, PAGES, 7, references=(3, 4, 2)),
    row(701, WRITES, 8, namespace="sub|a", references=(3, 699)),
)


def test_frozen_packs_are_read_for_ever() -> None:
    frozen = SegmentRow(701, SegmentKind.PACK, "", key(9), bytes.fromhex(GOLDEN["sealed"]))
    expected = [replace(each, references=tuple(sorted(each.references)), pack_id=701) for each in SEGMENTS]
    assert list(open_pack(frozen, None)) == expected
    sealed = seal_pack(SEGMENTS, None)
    for each in (frozen, sealed):
        plain = unseal(each.payload, associated=segment_binding(SegmentKind.PACK, "", key(9)))
        assert plain.hex() == GOLDEN["document"]


def test_what_is_packed_comes_out_again() -> None:
    packed = seal_pack(SEGMENTS, None)
    assert (packed.segment_id, packed.kind, packed.namespace) == (701, SegmentKind.PACK, "")
    assert (packed.first_checkpoint_id, packed.checkpoint_id) == (key(7), key(9))
    assert packed.references == (1, 2, 699), "what writes name outside of it"
    expected = [replace(each, references=tuple(sorted(each.references)), pack_id=701) for each in SEGMENTS]
    assert list(open_pack(packed, None)) == expected
    assert {each.stored_id for each in expected} == {701}


def test_a_cipher_is_needed_to_open_what_it_ciphered() -> None:
    cipher = EncryptedSerializer.from_pycryptodome_aes(key=b"0" * 16).cipher
    packed = seal_pack(SEGMENTS, cipher)
    assert b"plain" not in packed.payload
    assert len(open_pack(packed, cipher)) == 4
    with pytest.raises(UnreadableValueError, match="no cipher"):
        open_pack(packed, None)
    with pytest.raises(UnreadableValueError, match="pack 701 of thread 't' cannot be read"):
        list(unpacked(T, [packed], None))


@pytest.mark.parametrize("position", [0, 1, 3, 20, -1])
def test_a_flipped_bit_is_noticed(position: int) -> None:
    packed = seal_pack(SEGMENTS, None)
    payload = bytearray(packed.payload)
    payload[position] ^= 4
    with pytest.raises(CorruptPayloadError, match="pack 701 of thread 't' cannot be read"):
        list(unpacked(T, [replace(packed, payload=bytes(payload))], None))


@pytest.mark.parametrize(
    "moved", [{"segment_id": 702}, {"checkpoint_id": key(10)}, {"namespace": "sub"}, {"segment_id": 4}]
)
def test_a_pack_belongs_to_its_row(moved: dict[str, Any]) -> None:
    with pytest.raises(CorruptPayloadError, match="another row"):
        open_pack(replace(seal_pack(SEGMENTS, None), **moved), None)


def changed(position: int, value: Any) -> list[Any]:
    packed = seal_pack(SEGMENTS, None)
    plain = unseal(packed.payload, associated=segment_binding(SegmentKind.PACK, "", key(9)))
    document: list[Any] = unpack(plain)
    document[position] = value
    return document


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        7,
        changed(0, [3, 1, 697]),
        changed(0, [3, 1, 696, 0]),
        changed(0, [-3, 7, 696, 1]),
        changed(1, [3, 1, 2, 4]),
        changed(2, [0, 1, 1, 9]),
        changed(3, [["", "text"]] * 3),
        changed(3, [[b"", key(7)]] * 3),
        changed(4, [None] * 3),
        changed(4, [None, None, None, "x"]),
        changed(5, [b"", b"", b"", "text"]),
    ],
)
def test_documents_of_another_form_are_refused(document: Any) -> None:
    payload = seal(pack(document), associated=segment_binding(SegmentKind.PACK, "", key(9)))
    with pytest.raises(CorruptPayloadError):
        open_pack(replace(seal_pack(SEGMENTS, None), payload=payload), None)


def test_packs_are_closed_behind_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PACK_BYTES", 30)
    monkeypatch.setattr(packing, "PACK_BYTES_MAX", 60)

    def ids(*kinds: SegmentKind) -> list[list[int]]:
        rows = [replace(row(number, kind), payload=b"0123456789") for number, kind in enumerate(kinds, 1)]
        return [[each.segment_id for each in group] for group in grouped(rows)]

    assert ids() == []
    assert ids(WRITES, WRITES) == [[1, 2]]
    assert ids(*[WRITES] * 8) == [[1, 2, 3, 4, 5, 6], [7, 8]]
    assert ids(PAGES, WRITES, WRITES, PAGES, PAGES, WRITES) == [[1, 2, 3, 4, 5], [6]]
    large = [replace(row(1), payload=b"x" * 100), row(2), replace(row(3), payload=b"x" * 100)]
    assert [len(group) for group in grouped(large)] == [1, 1, 1]


def test_small_packs_have_room() -> None:
    packed = seal_pack(SEGMENTS, None)
    assert has_room(packed)
    large = seal_pack([replace(row(1), payload=bytes(packing.PACK_BYTES // 2))], None)
    assert declared_bytes(large.payload) > packing.PACK_BYTES // 2
    assert not has_room(large)


def test_the_structure_of_a_thread_has_what_packs_hold() -> None:
    page = row(700, PAGES, 7)
    packed = seal_pack([row(3, WRITES, 9), page], None)
    loose = row(800, WRITES, 9)
    rows = ThreadRows(T, 1, (), (packed, loose), ())
    found = unpacked_rows(rows, None)
    assert [each.segment_id for each in found.segments] == [3, 700, 800]
    assert [each.payload for each in found.segments] == [b"", page.payload, loose.payload]
    assert found.stored_ids == rows.stored_ids == {700, 800}
    assert unpacked_rows(found, None) is found


def test_segments_are_opened_with_those_that_writes_repeat() -> None:
    document = pack(["task", "", [], []])
    writes = replace(row(2, WRITES, references=(1, 9)), payload=document, pack_id=5)
    values = replace(row(1), payload=pack_values([b"\x00item"]), pack_id=5)
    unasked = replace(row(3), payload=b"\xc1", pack_id=5)
    rows = {each.segment_id: each for each in (writes, values, unasked)}
    found: dict[int, Any] = {}
    assert open_among(rows, [2, 7], T, found, {}, None) == {7, 9}
    assert sorted(found) == [1, 2]
    assert found[2].is_packed
    with pytest.raises(StoredDataError):
        open_among(rows, [3], T, found, {}, None)
