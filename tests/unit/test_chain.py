"""Chains: every link that does not fit is an error that names what is wrong, never another state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.core.chain import Chain, apply_delta, grow_histories
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
    pack_checkpoint,
    pack_page,
    pack_values,
    pack_writes,
    segment_binding,
)
from deltastore.core.pieces import NewPage, PieceList, Run, own
from deltastore.core.state import History, State, Value
from deltastore.core.writes import OpenSegment, Write
from deltastore.errors import BrokenChainError, CorruptPayloadError, StoredDataError, UnreadableValueError

THREAD = ThreadRef(b"k" * 16, "thread")


def key(number: int) -> bytes:
    return pack_checkpoint_id(f"{number:08x}-0000-4000-8000-000000000000")


@dataclass
class Rows:
    """A chain of stored rows, to be damaged: 0 is an anchor, each next one appends its number."""

    rows: dict[bytes, CheckpointRow] = field(default_factory=dict)
    segments: list[SegmentRow] = field(default_factory=list)

    def add(self, number: int, parent: int | None, depth: int, body: Anchor | Delta, *segments: int) -> None:
        row = CheckpointRow("", key(number), None if parent is None else key(parent), depth, segments, b"", 1)
        plain = pack_checkpoint(CheckpointPayload([1, number], body), segments, 0, False)
        self.rows[row.checkpoint_id] = replace(row, payload=seal(plain, associated=checkpoint_binding(row)))

    def write(self, segment_id: int, number: int, *values: str) -> None:
        writes = [Write("t", "", at, "d", 0, PieceList([value.encode()])) for at, value in enumerate(values)]
        binding = segment_binding(SegmentKind.WRITES, "", key(number))
        payload = seal(pack_writes("t", "", writes, ()), associated=binding)
        self.segments.append(SegmentRow(segment_id, SegmentKind.WRITES, "", key(number), payload))

    def chain(self) -> Chain:
        return Chain.of(THREAD, "", self.rows.values(), self.segments, frozenset(), None)

    def values(self, number: int) -> list[Any]:
        return self.chain().state(key(number)).values["a"].pieces.places

    def change(self, number: int, **changes: Any) -> None:
        """Changes columns of a row and leaves its payload."""
        self.rows[key(number)] = replace(self.rows[key(number)], **changes)


def header(number: int) -> Header:
    return Header({"a": number, "d": number}, {})


def append(number: int, base: int, *consumed: int) -> Delta:
    piece = Run(None, 1, PieceList([f"{number}".encode()]))
    edit = ChannelEdit(0, 1, VALUE_BASE, [Run(0, base), piece])
    return Delta(difference(header(number - 1), header(number)), (), (edit,), consumed)


@pytest.fixture
def rows() -> Rows:
    """0 - 1 - 2 - 3 with writes to 1 that 2 consumed, and a second anchor 4."""
    found = Rows()
    anchor = Anchor(header(0), {"a": Value(1, PieceList([b"0"]))}, {})
    found.add(0, None, 0, anchor)
    found.add(1, 0, 1, append(1, 1))
    found.write(50, 1, "w", "x")
    found.add(2, 1, 2, append(2, 2, 50))
    found.add(3, 2, 3, append(3, 3))
    found.add(4, 3, 0, anchor)
    return found


def test_a_chain_folds_to_the_states_of_all_its_rows(rows: Rows):
    assert [rows.values(number) for number in range(5)] == [
        [b"0"],
        [b"0", b"1"],
        [b"0", b"1", b"2"],
        [b"0", b"1", b"2", b"3"],
        [b"0"],
    ]
    state = rows.chain().state(key(3))
    assert state.depth == 3
    assert state.header.versions == {"a": 3, "d": 3}
    assert state.histories == {"d": History(None, PieceList([location(50, 0), location(50, 1)]))}
    assert rows.chain().state(key(4)).histories == {}


def remove(number: int) -> Callable[[Rows], None]:
    return lambda rows: rows.rows.__delitem__(key(number))


def damage(number: int, **changes: Any) -> Callable[[Rows], None]:
    return lambda rows: rows.change(number, **changes)


def swap_payloads(rows: Rows) -> None:
    one, two = rows.rows[key(1)], rows.rows[key(2)]
    rows.change(1, payload=two.payload)
    rows.change(2, payload=one.payload)


def flip(rows: Rows) -> None:
    payload = bytearray(rows.rows[key(2)].payload)
    payload[len(payload) // 2] ^= 1
    rows.change(2, payload=bytes(payload))


def stand_in(rows: Rows) -> None:
    """Another row in the place of the parent, at the right depth."""
    rows.rows[key(2)] = replace(rows.rows[key(1)], checkpoint_id=key(2), parent_id=key(1), depth=2)


def sealed_again(number: int, parent: int | None, depth: int, body: Anchor | Delta) -> Callable[[Rows], None]:
    return lambda rows: rows.add(number, parent, depth, body)


BREAKS: dict[str, tuple[Callable[[Rows], None], type[StoredDataError], str]] = {
    "the parent is missing": (remove(2), BrokenChainError, "is missing"),
    "an ancestor is missing": (remove(1), BrokenChainError, "is missing"),
    "the anchor is missing": (remove(0), BrokenChainError, "is missing"),
    "the depth is another": (damage(2, depth=1), BrokenChainError, "depth 1 where 2"),
    "the parent is another": (damage(3, parent_id=key(1)), BrokenChainError, "depth 1 where 2"),
    "the parent is itself": (damage(3, parent_id=key(3)), BrokenChainError, "depth"),
    "a loop": (damage(1, parent_id=key(3)), BrokenChainError, "depth"),
    "a delta without a parent": (damage(1, parent_id=None), BrokenChainError, "without a parent"),
    "a delta where an anchor should be": (damage(2, depth=0), BrokenChainError, "depth 0 where 2"),
    "payloads are swapped": (swap_payloads, CorruptPayloadError, "cannot be read"),
    "a flipped bit": (flip, CorruptPayloadError, "cannot be read"),
    "a truncated payload": (
        lambda rows: rows.change(2, payload=rows.rows[key(2)].payload[:-3]),
        CorruptPayloadError,
        "cannot be read",
    ),
    "an empty payload": (damage(2, payload=b""), CorruptPayloadError, "cannot be read"),
    "another row stands in": (stand_in, CorruptPayloadError, "cannot be read"),
    "the writes are missing": (lambda rows: rows.segments.clear(), BrokenChainError, r"missing segments \[50\]"),
    "the writes are damaged": (
        lambda rows: rows.segments.append(replace(rows.segments.pop(), payload=b"\xd1\x00" + b"x" * 20)),
        CorruptPayloadError,
        "segment 50",
    ),
    "the writes are another checkpoint's": (
        lambda rows: rows.segments.append(replace(rows.segments.pop(), checkpoint_id=key(2))),
        CorruptPayloadError,
        "segment 50",
    ),
    "a script outside of its base": (sealed_again(2, 1, 2, append(2, 9, 50)), CorruptPayloadError, "does not fit"),
    "a channel that is not there": (
        sealed_again(2, 1, 2, Delta([0, [], False], (), (ChannelEdit(7, 1, VALUE_BASE, []),), ())),
        CorruptPayloadError,
        "does not fit",
    ),
    "a seed that is not there": (
        sealed_again(2, 1, 2, Delta([0, [], False], (), (ChannelEdit(0, 1, SEED_BASE, [Run(0, 1)]),), ())),
        CorruptPayloadError,
        "does not fit",
    ),
    "a header of another parent": (
        sealed_again(2, 1, 2, Delta([0, [[5, [9]]], False], (), (), ())),
        CorruptPayloadError,
        "does not fit",
    ),
    "a whole header as a difference": (
        sealed_again(2, 1, 2, Delta([], (), (), ())),
        CorruptPayloadError,
        "does not fit",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_link_is_an_error_that_names_it(rows: Rows, name: str):
    break_it, kind, text = BREAKS[name]
    break_it(rows)
    with pytest.raises(kind, match=text) as caught:
        rows.values(3)
    assert "thread 'thread', namespace (root)" in str(caught.value)


@pytest.mark.parametrize("name", BREAKS)
def test_what_does_not_need_the_broken_link_is_still_read(rows: Rows, name: str):
    BREAKS[name][0](rows)
    if not name.startswith("the writes are"):
        assert rows.values(4) == [b"0"]


def test_a_missing_page_is_named():
    rows = Rows()
    rows.add(0, None, 0, Anchor(header(0), {}, {}), 9)
    anchor = b"\x96\x01\x90\xc2" + b"\x95\xc0\x81\xa1a\x01\x80\xc2\x80" + b"\x91\x93\x00\x01\x91\x00" + b"\x90"
    row = rows.rows[key(0)]
    rows.change(0, payload=seal(anchor, associated=checkpoint_binding(row)))
    with pytest.raises(BrokenChainError, match="page 9 is missing"):
        rows.values(0)
    page = seal(pack_page(NewPage(PieceList([b"p"]), [])), associated=segment_binding(SegmentKind.PAGES, "", key(0)))
    rows.segments.append(SegmentRow(9, SegmentKind.PAGES, "", key(0), page))
    assert rows.values(0) == [b"p"]


class Hidden:
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "hidden", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


def test_a_ciphered_row_needs_its_cipher():
    row = CheckpointRow("", key(0), None, 0, (), b"", 1)
    plain = pack_checkpoint(CheckpointPayload([], Anchor(header(0), {}, {})), (), 0, False)
    row = replace(row, payload=seal(plain, associated=checkpoint_binding(row), cipher=Hidden()))
    assert Chain.of(THREAD, "", [row], [], frozenset(), Hidden()).state(key(0)).header == header(0)
    with pytest.raises(UnreadableValueError, match="thread 'thread'"):
        Chain.of(THREAD, "", [row], [], frozenset(), None).state(key(0))


def test_a_known_state_ends_the_walk_and_must_fit(rows: Rows):
    known = rows.chain().state(key(2))
    del rows.rows[key(0)], rows.rows[key(1)], rows.rows[key(2)]
    chain = Chain.of(THREAD, "", rows.rows.values(), (), frozenset(), None, {key(2): known})
    assert chain.state(key(3)).values["a"].pieces.places == [b"0", b"1", b"2", b"3"]
    wrong = Chain.of(THREAD, "", rows.rows.values(), (), frozenset(), None, {key(2): replace(known, depth=5)})
    with pytest.raises(BrokenChainError, match="does not follow"):
        wrong.state(key(3))


def test_a_long_chain_is_folded_without_recursion():
    rows = Rows()
    rows.add(0, None, 0, Anchor(header(0), {"a": Value(1, PieceList([b"0"]))}, {}))
    for number in range(1, 3000):
        edit = ChannelEdit(0, 1, VALUE_BASE, [Run(0, 1)])
        rows.add(number, number - 1, number, Delta(difference(header(number - 1), header(number)), (), (edit,), ()))
    assert rows.chain().state(key(2999)).depth == 2999


# --- histories


def write_segment(segment_id: int, *channels: str) -> OpenSegment:
    writes = [Write("t", "", at, channel, 0, PieceList([b"w"])) for at, channel in enumerate(channels)]
    return OpenSegment(segment_id, (), tuple(writes))


SEED = Value(1, PieceList([b"s"]))


def test_histories_grow_from_values_from_histories_and_from_nothing():
    parent = State(
        Header({}, {}),
        {"valued": SEED, "stays": SEED},
        {
            "grows": History(SEED, PieceList([1])),
            "rests": History(None, PieceList([2])),
            "ends": History(None, PieceList([3])),
        },
    )
    grown = grow_histories(
        parent, {"stays": SEED, "ends": SEED}, {"valued": [4], "grows": [5, 6], "new": [7], "ends": [8]}
    )
    assert grown == {
        "grows": History(SEED, PieceList([1, 5, 6])),
        "rests": History(None, PieceList([2])),
        "valued": History(SEED, PieceList([4])),
        "new": History(None, PieceList([7])),
    }
    assert parent.histories["grows"].writes.places == [1]


def test_ignored_channels_get_no_history():
    parent = State(Header({"a": 1}, {}), {}, {}, 0)
    delta = Delta([None, [], False], (), (), (5,))
    state = apply_delta(parent, delta, [write_segment(5, "a", "__error__")], frozenset({"__error__"}))
    assert state.histories == {"a": History(None, PieceList([location(5, 0)]))}


def test_a_channel_that_leaves_the_header_leaves_its_value_as_seed():
    parent = State(Header({"a": 1, "b": 1}, {}), {"a": SEED, "b": SEED}, {}, 0)
    child = Header({"b": 1}, {})
    state = apply_delta(parent, Delta(difference(parent.header, child), (), (), ()), (), frozenset())
    assert state.values == {"b": SEED}
    assert state.histories == {"a": History(SEED, PieceList([]))}


def test_a_dropped_channel_can_come_back_from_its_seed():
    parent = State(Header({"a": 1}, {}), {"a": Value(1, PieceList([b"1", b"2"]))}, {}, 0)
    dropped = apply_delta(parent, Delta([None, [[2, [0]]], False], (0,), (), ()), (), frozenset())
    assert dropped.values == {}
    edit = ChannelEdit(0, 1, SEED_BASE, [Run(1, 1), Run(None, 1, PieceList([b"3"]))])
    again = apply_delta(dropped, Delta([None, [[3, [0]]], False], (), (edit,), ()), (), frozenset())
    assert again.values["a"].pieces.places == [b"2", b"3"]
    assert again.histories == {}
    fresh = ChannelEdit("new", 0, NO_BASE, [Run(None, 1, PieceList([b"n"]))])
    more = apply_delta(again, Delta([None, [[4, ["new"]]], False], (), (fresh,), ()), (), frozenset())
    assert more.values["new"].pieces.places == [b"n"]


@given(st.lists(st.sampled_from(["value", "clear", "write", "nothing"]), max_size=12))
def test_a_history_is_what_happened_since_the_last_value(steps: list[str]):
    state = State(Header({"a": 0}, {}), {}, {}, 0)
    seed: Value | None = None
    since: list[int] = []
    has_value = False
    for number, step in enumerate(steps, 1):
        consumed = [write_segment(number, "a")] if step == "write" else []
        if step == "value":
            values = {"a": Value(1, PieceList([b"v%d" % number]))}
        else:
            values = dict(state.values) if step == "nothing" else {}
        gained = {"a": [location(number, 0)]} if consumed else {}
        histories = grow_histories(state, values, gained)
        if has_value:
            seed, since = state.values["a"], []
        since = since + gained.get("a", [])
        state, has_value = State(state.header, values, histories, number), "a" in values
        found = state.histories.get("a", History(None, PieceList([])))
        if not has_value:
            assert (found.seed, found.writes.places) == (seed, since)
        else:
            assert "a" not in state.histories
            seed, since = None, []


def test_values_of_a_segment_are_opened_with_it():
    plain = seal(pack_values([b"\x00\x01"]), associated=segment_binding(SegmentKind.VALUES, "", key(0)))
    chain = Chain.of(THREAD, "", [], [SegmentRow(3, SegmentKind.VALUES, "", key(0), plain)], frozenset(), None)
    assert chain.segments[3].items == (b"\x00\x01",)
    assert chain.writes == {}


def test_values_of_another_checkpoint_are_no_own_values():
    rows = Rows()
    anchor = Anchor(header(0), {"a": Value(1, PieceList([own(0)]))}, {})
    rows.add(0, None, 0, anchor, 9)
    row = rows.rows[key(0)]
    plain = pack_checkpoint(CheckpointPayload([], anchor), (), 0, True)
    rows.change(0, payload=seal(plain, associated=checkpoint_binding(row)))
    for owner, is_right in ((key(0), True), (key(1), False)):
        sealed = seal(pack_values([b"v"]), associated=segment_binding(SegmentKind.VALUES, "", owner))
        rows.segments[:] = [SegmentRow(9, SegmentKind.VALUES, "", owner, sealed)]
        if is_right:
            assert rows.chain().state(key(0)).values["a"].pieces.places == [location(9, 0)]
        else:
            with pytest.raises(BrokenChainError, match="values of another checkpoint"):
                rows.chain().state(key(0))
