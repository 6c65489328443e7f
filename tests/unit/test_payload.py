"""Documents of payloads: frozen bytes that stay readable for ever, and round trips of everything else."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.core.chain import Chain
from deltastore.core.frame import seal
from deltastore.core.header import Header, difference
from deltastore.core.identifiers import pack_checkpoint_id
from deltastore.core.model import CheckpointRow, SegmentKind, SegmentRow, ThreadRef, location
from deltastore.core.payload import (
    NO_BASE,
    SEED_BASE,
    VALUE_BASE,
    Anchor,
    ChannelEdit,
    CheckpointPayload,
    Delta,
    checkpoint_binding,
    metadata_binding,
    pack_checkpoint,
    pack_page,
    pack_values,
    pack_writes,
    segment_binding,
    unpack,
    unpack_checkpoint,
    unpack_page,
    unpack_values,
    unpack_volatile,
    unpack_writes,
)
from deltastore.core.pieces import PAGE_PIECES, NewPage, PageSpan, PieceList, Run, own, paginate, settle
from deltastore.core.state import History, State, Value
from deltastore.core.writes import Write
from deltastore.errors import BrokenChainError, CorruptPayloadError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "payload_v1.json").read_text(encoding="utf-8"))
DOCUMENTS = {name: bytes.fromhex(document) for name, document in GOLDEN["documents"].items()}
THREAD = ThreadRef(b"k" * 16, "thread")
TASK = "0b6e1c3a-7d7e-4e67-9c1e-3f2f8d7f9a10"

# --- the frozen chain: an anchor with a page, two deltas, and what was written along it

PAGE_ID, ANCHOR_VALUES, FIRST_WRITES, SECOND_WRITES, DELTA_VALUES = 11, 12, 13, 14, 15
NEW_PAGE = NewPage(PieceList([location(3, 0), own(0), b"\x00\x05", location(9, 1048575)]), [b"\x00\xa3two"])
PAGE = settle(NEW_PAGE.pieces, PAGE_ID, ())
DICT_PAGE = NewPage(PieceList([location(3, 7), b"\x00\xc0", own(0)], ["k", "é", "own"]), [b"\x02raw"])
ANCHOR_HEADER = Header(
    {"messages": 4294967297, "log": "00000000000000000000000000000002.0.5", "facts": 1.5, "quiet": 1},
    {"agent": {"messages": 4294967297, "log": "1"}, "__input__": {}},
    ["messages", "log"],
    "2026-01-01T00:00:00.250000+00:00",
    {"v": b"\x00\x04", "pending_sends": b"\x00\x90"},
)
ANCHOR = Anchor(
    ANCHOR_HEADER,
    {
        "messages": Value(1, PieceList([*PAGE.places, location(ANCHOR_VALUES, 0)], None, (PageSpan(0, 4, PAGE_ID),))),
        "facts": Value(2, PieceList([location(ANCHOR_VALUES, 1), b"\x01"], ["a", "b"])),
        "log": Value(5, PieceList([b"\x00\x01"])),
        "empty": Value(2, PieceList([])),
    },
    {
        "quiet": History(Value(0, PieceList([b"\x00\xa1s"])), PieceList([location(5, 0), location(6, 3)])),
        "unseeded": History(None, PieceList([location(6, 1)])),
    },
)
FIRST_HEADER = Header(
    {**ANCHOR_HEADER.versions, "messages": 8589934593, "quiet": 2, "new": 8589934593},
    {**ANCHOR_HEADER.seen, "agent": {"messages": 4294967297, "log": ANCHOR_HEADER.versions["log"]}},
    ["messages", "new"],
    "2026-01-01T00:00:01.500000+00:00",
    {"v": b"\x00\x04", "pending_sends": b"\x00\x90"},
)
FIRST = Delta(
    difference(ANCHOR_HEADER, FIRST_HEADER),
    (3, 1),
    (
        ChannelEdit(0, 1, VALUE_BASE, [Run(0, 5), Run(None, 2, PieceList([own(0), b"\x00\x07"]))]),
        ChannelEdit("new", 2, NO_BASE, [Run(None, 1, PieceList([location(FIRST_WRITES, 0)], ["k"]))]),
    ),
    (FIRST_WRITES, SECOND_WRITES),
)
SECOND_HEADER = Header(
    {"messages": 8589934593, "quiet": 12884901889, "log": 12884901889},
    {"agent": {}, "other": {"quiet": "x"}},
    None,
    "not a time",
    {"v": b"\x00\x04"},
)
SECOND = Delta(
    difference(FIRST_HEADER, SECOND_HEADER),
    (),
    (ChannelEdit(3, 5, SEED_BASE, [Run(0, 1), Run(None, 1, PieceList([b"\x00\x02"]))]),),
    (),
)
EMPTY = Delta([0, [], False], (), (), ())
WRITES = (
    Write(TASK, "~__pregel_pull, agent", 0, "messages", 1, PieceList([own(0), b"\x00\x07"])),
    Write(TASK, "~__pregel_pull, agent", 1, "quiet", 0, PieceList([own(1)])),
    Write(TASK, "~__pregel_pull, agent", -3, "__interrupt__", 2, PieceList([location(3, 0)], ["k"])),
)
OTHER_WRITES = (Write("a task", "", 0, "quiet", 0, PieceList([b"\x01"])),)
ITEMS = (b"\x00\xa3one", b"\x02raw")
WRITTEN = {
    "anchor": pack_checkpoint(CheckpointPayload([2, 7, {"quiet": [1, 2]}], ANCHOR), (PAGE_ID,), 0, True),
    "first delta": pack_checkpoint(CheckpointPayload([1, 8], FIRST), (), 0, True),
    "second delta": pack_checkpoint(CheckpointPayload([], SECOND), (), 0, False),
    "smallest delta": pack_checkpoint(CheckpointPayload([1, 9], EMPTY), (), 0, False),
    "page": pack_page(NEW_PAGE),
    "page of a dict": pack_page(DICT_PAGE),
    "values": pack_values(ITEMS),
    "writes": pack_writes(TASK, "~__pregel_pull, agent", WRITES, ITEMS),
    "other writes": pack_writes("a task", "", OTHER_WRITES, ()),
}


def shown(state: State) -> Any:
    """A state as JSON."""

    def pieces(each: PieceList) -> Any:
        places = [place.hex() if isinstance(place, bytes) else place for place in each.places]
        return [places, each.keys, [[page.start, page.count, page.segment_id] for page in each.pages]]

    def value(each: Value | None) -> Any:
        return None if each is None else [each.kind, pieces(each.pieces)]

    header = state.header
    return {
        "versions": header.versions,
        "seen": header.seen,
        "updated": header.updated,
        "timestamp": header.timestamp,
        "extra": {key: item.hex() for key, item in header.extra.items()},
        "values": {channel: value(each) for channel, each in sorted(state.values.items())},
        "histories": {
            channel: [value(each.seed), pieces(each.writes)] for channel, each in sorted(state.histories.items())
        },
        "depth": state.depth,
    }


IDS = [pack_checkpoint_id(f"1f0a1b2c-3d4e-6f70-8123-{number:012x}") for number in range(3)]


def frozen_chain() -> Chain:
    """The frozen documents, sealed for their rows."""
    rows = []
    shapes = [("anchor", (ANCHOR_VALUES, PAGE_ID)), ("first delta", (DELTA_VALUES,)), ("second delta", ())]
    for depth, (name, segments) in enumerate(shapes):
        row = CheckpointRow("", IDS[depth], IDS[depth - 1] if depth else None, depth, segments, b"", 1)
        payload = seal(DOCUMENTS[name], associated=checkpoint_binding(row))
        rows.append(CheckpointRow(row.namespace, row.checkpoint_id, row.parent_id, depth, segments, payload, 1))
    written = [
        segment(PAGE_ID, SegmentKind.PAGES, "page"),
        segment(ANCHOR_VALUES, SegmentKind.VALUES, "values"),
        segment(FIRST_WRITES, SegmentKind.WRITES, "writes"),
        segment(SECOND_WRITES, SegmentKind.WRITES, "other writes"),
    ]
    return Chain.of(THREAD, "", rows, written, frozenset({"__interrupt__"}), None)


def segment(segment_id: int, kind: SegmentKind, name: str) -> SegmentRow:
    payload = seal(DOCUMENTS[name], associated=segment_binding(kind, "", IDS[0]))
    return SegmentRow(segment_id, kind, "", IDS[0], payload)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_today_is_what_was_frozen(name: str):
    """A changed byte is a new version of the format, which must read this one too."""
    assert WRITTEN[name].hex() == DOCUMENTS[name].hex()


def test_frozen_documents_fold_to_the_frozen_states():
    chain = frozen_chain()
    found = json.loads(json.dumps([shown(chain.state(each)) for each in IDS]))
    assert found == GOLDEN["states"]


def test_frozen_documents_give_their_records():
    pages = {PAGE_ID: PAGE}
    assert unpack_checkpoint(DOCUMENTS["anchor"], (ANCHOR_VALUES, PAGE_ID), pages).body == ANCHOR
    assert unpack_volatile(DOCUMENTS["anchor"]) == [2, 7, {"quiet": [1, 2]}]
    assert unpack_volatile(DOCUMENTS["second delta"]) == []
    page = unpack_page(PAGE_ID, DOCUMENTS["page"])
    assert (page.page, page.items) == (PAGE, (b"\x00\xa3two",))
    page = unpack_page(20, DOCUMENTS["page of a dict"])
    assert (page.page, page.items) == (settle(DICT_PAGE.pieces, 20, ()), (b"\x02raw",))
    assert unpack_values(12, DOCUMENTS["values"]).items == ITEMS
    opened = unpack_writes(FIRST_WRITES, DOCUMENTS["writes"])
    assert opened.items == ITEMS
    assert [(each.task_id, each.task_path, each.index, each.channel, each.kind) for each in opened.writes] == [
        (each.task_id, each.task_path, each.index, each.channel, each.kind) for each in WRITES
    ]
    assert [each.pieces for each in opened.writes] == [settle(each.pieces, FIRST_WRITES, ()) for each in WRITES]


def test_a_new_page_is_named_by_its_position():
    flat = PieceList([location(3, number) for number in range(PAGE_PIECES + 20)])
    paged, new = paginate(flat, 0, lambda place: b"item" if place % 2 else None)
    anchor = Anchor(Header({"a": 1}, {}), {"a": Value(1, paged)}, {})
    plain = pack_checkpoint(CheckpointPayload([], anchor), (7,), len(new), True)
    body = unpack_checkpoint(plain, (21, 22, 7), {22: settle(new[0].pieces, 22, ()), 7: PieceList([])}).body
    assert isinstance(body, Anchor)
    assert body.values["a"].pieces == settle(paged, 21, [22])


def test_a_missing_page_is_a_broken_chain():
    with pytest.raises(BrokenChainError, match="page 11"):
        unpack_checkpoint(DOCUMENTS["anchor"], (ANCHOR_VALUES, PAGE_ID), {})


@pytest.mark.parametrize("name", ["anchor", "first delta", "second delta"])
@given(data=st.data())
def test_damaged_documents_are_refused_or_read_and_never_anything_else(name: str, data: st.DataObject):
    """Damage is found by the checksum before; what gets through must not end in another error than ours."""
    plain = bytearray(DOCUMENTS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    plain = plain[: data.draw(st.integers(0, len(plain)))]
    with suppress(CorruptPayloadError, BrokenChainError):
        unpack_checkpoint(bytes(plain), (ANCHOR_VALUES, PAGE_ID), {PAGE_ID: PAGE})
        unpack_volatile(bytes(plain))


@pytest.mark.parametrize("name", ["page", "values", "writes", "other writes"])
@given(data=st.data())
def test_damaged_segments_are_refused_or_read_and_never_anything_else(name: str, data: st.DataObject):
    plain = bytearray(DOCUMENTS[name])
    plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    plain = plain[: data.draw(st.integers(0, len(plain)))]
    for read in (
        lambda each: unpack_page(1, each),
        lambda each: unpack_values(1, each),
        lambda each: unpack_writes(1, each),
    ):
        with suppress(CorruptPayloadError):
            read(bytes(plain))


@pytest.mark.parametrize("plain", [b"", b"\xc1", b"\x00", b"\xc0", b"\x90", b"\x91\x02", b"\x81\x00\x00", b"\xa4text"])
def test_what_is_no_document_is_refused(plain: bytes):
    for read in (
        lambda: unpack_checkpoint(plain, (1,), {}),
        lambda: unpack_volatile(plain),
        lambda: unpack_page(1, plain),
        lambda: unpack_values(1, plain),
        lambda: unpack_writes(1, plain),
    ):
        with pytest.raises(CorruptPayloadError):
            read()


def test_bindings_tell_every_row_from_every_other():
    rows = [
        CheckpointRow(namespace, checkpoint_id, parent_id, depth, (), b"", 1)
        for namespace in ("", "a")
        for checkpoint_id in (b"1", b"2")
        for parent_id in (None, b"", b"1")
        for depth in (0, 1)
    ]
    bindings = [checkpoint_binding(row) for row in rows]
    bindings += [segment_binding(kind, name, key) for kind in SegmentKind for name in ("", "a") for key in (b"1", b"2")]
    bindings += [metadata_binding(number) for number in (-1, 0, 1, 2**62)]
    assert len(set(bindings)) == len(bindings)


def test_unpacking_gives_plain_types():
    assert unpack(b"\x92\x01\xa1a") == [1, "a"]
    with pytest.raises(CorruptPayloadError, match="MessagePack"):
        unpack(b"\xd9")
