"""Drafts: what a save stores, and that it is the state which a load will rebuild."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore.conversion.convert import codec_of
from deltastore.core import draft as drafts
from deltastore.core.chain import Chain
from deltastore.core.codec import Codec, EncodedValue
from deltastore.core.digests import digest
from deltastore.core.draft import EMPTY, Draft, Items, Put, anchor_draft, draft, foreign_channels
from deltastore.core.header import Header
from deltastore.core.identifiers import pack_checkpoint_id
from deltastore.core.model import Location, SegmentRow, ThreadRef, location
from deltastore.core.payload import SEED_BASE, VALUE_BASE, Anchor, Delta
from deltastore.core.pieces import PieceList, own
from deltastore.core.sealing import seal_checkpoint
from deltastore.core.state import History, State, Value
from deltastore.errors import InvalidConfigError

CODEC: Codec = codec_of(JsonPlusSerializer())[0]
THREAD = ThreadRef(b"k" * 16, "t")


def key(number: int) -> bytes:
    return pack_checkpoint_id(f"{number:08x}-0000-4000-8000-000000000000")


def put_of(number: int, values: Mapping[str, Any], parent: State | None = None, **versions: Any) -> Put:
    """A put whose named channels are those with values, and those whose new version is given as `...`."""
    before = {} if parent is None else parent.header.versions
    kept = {name: version for name, version in versions.items() if version is not ...}
    named = [*values, *(name for name, version in versions.items() if version is ...)]
    return Put(
        "",
        key(number),
        None if parent is None else key(number - 1),
        Header({**before, **kept, **dict.fromkeys(named, number)}, {}),
        frozenset(named),
        {name: CODEC.encode(value, name) for name, value in values.items()},
        [1, number],
        b"\x00\x80",
        "{}",
    )


class Store:
    """A thread of checkpoints, each on the one before, as the engine would store them."""

    def __init__(self, snapshot_frequency: int = 5, inline_bytes: int = 20) -> None:
        self.snapshot_frequency, self.inline_bytes = snapshot_frequency, inline_bytes
        self.items: dict[int, bytes] = {}
        self.rows: list[Any] = []
        self.segments: list[SegmentRow] = []
        self.state: State | None = None
        self.number = 0

    def known(self, mark: bytes) -> int | None:
        return next((place for place, item in self.items.items() if digest(item) == mark), None)

    def item(self, place: Location) -> bytes:
        return place if isinstance(place, bytes) else self.items[place]

    def marks(self, value: Value) -> list[Any]:
        digests = [digest(self.item(place)) for place in value.pieces.places]
        return digests if value.pieces.keys is None else list(zip(value.pieces.keys, digests, strict=True))

    def put(self, values: Mapping[str, Any], **versions: Any) -> Draft:
        self.number += 1
        put = put_of(self.number, values, self.state, **versions)
        drafted = draft(
            put, self.state, (), self.marks, Items(self.known, self.inline_bytes),
            foreign={}, snapshot_frequency=self.snapshot_frequency, ignored=frozenset(), item_of=self.items.get,
        )  # fmt: skip
        row, new = seal_checkpoint(put, drafted, 1, None)
        first = 100 * self.number
        ids = tuple(range(first, first + len(new)))
        for segment_id, segment in zip(ids, new, strict=True):
            self.segments.append(SegmentRow(segment_id, segment.kind, "", key(self.number), segment.payload))
        for opened in drafted.opened(ids):
            self.items |= {location(opened.segment_id, index): item for index, item in enumerate(opened.items)}
        self.rows.append(
            type(row)(**{**{name: getattr(row, name) for name in row.__slots__}, "segments": ids + row.segments})
        )
        self.state = drafted.settled(ids)
        return drafted

    def rebuilt(self) -> State:
        """The last state as a load makes it."""
        return Chain.of(THREAD, "", self.rows, self.segments, frozenset(), None).state(key(self.number))

    def value(self, channel: str) -> Any:
        value = self.rebuilt().values[channel]
        encoded = EncodedValue(value.kind, [self.item(place) for place in value.pieces.places], value.pieces.keys)
        return CODEC.decode([(channel, encoded)])[0]


def without_marks(state: State) -> Any:
    """A state without what only the cache knows of it."""

    def shown(value: Value | None) -> Any:
        return value and (value.kind, value.pieces.places, value.pieces.keys or None, value.pieces.pages)

    values = {name: shown(value) for name, value in state.values.items()}
    histories = {name: (shown(history.seed), history.writes) for name, history in state.histories.items()}
    return state.header, values, histories, state.depth


texts = st.builds(lambda letter, size: letter * size, st.sampled_from("ab"), st.sampled_from([1, 30, 300]))
parts = st.one_of(st.integers(0, 3), texts)
channel_values = st.one_of(
    st.lists(parts, max_size=6), st.dictionaries(st.sampled_from("klm"), parts, max_size=3), parts, st.tuples(parts)
)


@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), channel_values | st.just(...), max_size=2), min_size=1, max_size=9),
    st.integers(1, 4),
    st.sampled_from([0, 20, 10_000]),
    st.sampled_from([2, 3, 256]),
)
def test_the_state_that_a_save_leaves_is_the_one_that_a_load_rebuilds(
    steps: list[dict[str, Any]], snapshot_frequency: int, inline_bytes: int, page_pieces: int
):
    store = Store(snapshot_frequency, inline_bytes)
    expected: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deltastore.core.pieces.PAGE_PIECES", page_pieces)
        patch.setattr("deltastore.core.pieces.PAGE_PIECES_MIN", 2)
        for step in steps:
            given_values = {name: value for name, value in step.items() if value is not ...}
            cleared = [name for name, value in step.items() if value is ...]
            store.put(given_values, **dict.fromkeys(cleared, ...))
            expected = {name: value for name, value in {**expected, **given_values}.items() if name not in cleared}
            assert store.state is not None
            assert without_marks(store.rebuilt()) == without_marks(store.state)
            assert store.rebuilt().values.keys() == expected.keys()
            for name, value in expected.items():
                assert store.value(name) == (value if not isinstance(value, tuple) else [*value])


def test_where_an_item_goes_depends_on_its_size_and_on_what_is_known():
    known = {digest(b"stored" * 10): 77}
    items = Items(known.get, 100)
    assert items.place(b"x" * 16, digest(b"x" * 16)) == b"x" * 16
    assert items.place(b"x" * 100, digest(b"x" * 100)) == b"x" * 100
    assert items.place(b"x" * 101, digest(b"x" * 101)) == own(0)
    assert items.place(b"y" * 200, digest(b"y" * 200)) == own(1)
    assert items.place(b"x" * 101, digest(b"x" * 101)) == own(0)
    assert items.place(b"stored" * 10, digest(b"stored" * 10)) == 77
    assert items.own == [b"x" * 101, b"y" * 200]


def test_a_save_cannot_hold_more_items_than_a_location_can_say(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(drafts, "ITEMS_MAX", 2)
    items = Items(lambda mark: None, 0)
    for letter in (b"a", b"b", b"a"):
        items.place(letter * 20, digest(letter * 20))
    with pytest.raises(InvalidConfigError, match="more than 2 new items"):
        items.place(b"c" * 20, digest(b"c" * 20))


def test_nothing_that_the_parent_has_is_stored_again():
    store = Store(inline_bytes=0)
    texts = [f"{number} " * 50 for number in range(10)]
    store.put({"a": texts, "b": {"k": texts[0], "l": "new " * 20}})
    for value in (texts, texts[::-1], texts[3:], [texts[0]] * 5, [texts[4], *texts], {"x": texts[1]}, texts[2]):
        drafted = store.put({"a": value})
        assert drafted.items == []
        assert store.value("a") == value
    drafted = store.put({"a": [*texts, "one more " * 10]})
    assert [CODEC.decode_item(item, "") for item in drafted.items] == ["one more " * 10]


def test_an_anchor_comes_every_so_many_steps_and_refers_to_what_is_stored():
    store = Store(snapshot_frequency=3, inline_bytes=0)
    kinds = []
    for number in range(10):
        drafted = store.put({"a": ["text " * 20] * 3, "n": number})
        kinds.append(isinstance(drafted.body, Anchor))
        assert drafted.items == [] or number == 0
    assert kinds == [True, False, False] * 3 + [True]


def test_a_frequency_of_one_makes_every_row_an_anchor():
    store = Store(snapshot_frequency=1)
    assert all(isinstance(store.put({"n": number}).body, Anchor) for number in range(4))


def test_a_channel_that_comes_back_copies_from_its_seed():
    store = Store(snapshot_frequency=9, inline_bytes=0)
    texts = ["text " * 20, "other " * 20]
    store.put({"a": texts})
    store.put({}, a=...)
    drafted = store.put({"a": [*texts, "third " * 20]})
    assert isinstance(drafted.body, Delta)
    [edit] = drafted.body.sets
    assert edit.base == SEED_BASE
    assert len(drafted.items) == 1
    again = store.put({"a": texts})
    assert isinstance(again.body, Delta)
    assert again.body.sets[0].base == VALUE_BASE


def test_foreign_channels_are_those_whose_version_is_neither_the_parents_nor_new():
    parent = State(Header({"same": 1, "other": 1, "type": 1, "new": 1}, {}))
    put = put_of(5, {"new": 1}, None, same=1, other=2, type=1.0, unknown="1")
    assert foreign_channels(put, parent) == {"other": 2, "type": 1.0, "unknown": "1"}
    assert foreign_channels(put, EMPTY) == {"same": 1, "other": 2, "type": 1.0, "unknown": "1"}


def test_what_is_found_for_foreign_channels_becomes_part_of_an_anchor():
    parent = State(Header({"a": 1, "h": 1}, {}), {"a": Value(0, PieceList([b"old"]))}, {}, 0)
    value, history = Value(0, PieceList([b"found"])), History(None, PieceList([location(4, 0)]))
    put = put_of(5, {"b": 1}, parent, a=7, h=8, gone=9)
    drafted = draft(
        put, parent, (), lambda value: [], Items(lambda mark: None, 100),
        foreign={"a": value, "h": history, "gone": None}, snapshot_frequency=50, ignored=frozenset(),
    )  # fmt: skip
    assert isinstance(drafted.body, Anchor)
    assert drafted.references
    assert drafted.state.values == {"a": value, "b": drafted.state.values["b"]}
    assert drafted.state.histories == {"h": history}
    assert drafted.state.header.versions == {"a": 7, "h": 8, "b": 5, "gone": 9}


def test_an_anchor_without_references_says_so():
    state = State(Header({"a": 1}, {}), {"a": Value(1, PieceList([b"inline", own(0)]))}, {}, 0)
    assert not anchor_draft(state, [b"item"]).references
    stored = State(state.header, {"a": Value(1, PieceList([location(3, 0)]))}, {}, 0)
    assert anchor_draft(stored, []).references
    written = State(state.header, {}, {"a": History(None, PieceList([location(3, 0)]))}, 0)
    assert anchor_draft(written, []).references
