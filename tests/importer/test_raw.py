"""Cutting stored bytes gives what encoding the decoded value gives, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.conversion.convert import codec_of
from deltastore.importer.raw import RawValues
from deltastore.importer.source import Node, SkipThread
from deltastore.importer.stock_rows import joined
from deltastore.importer.tree import order_of

SERDE = JsonPlusSerializer()
CODEC, _ = codec_of(SERDE)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.builds(HumanMessage, st.text(max_size=40)),
    st.builds(AIMessage, st.text(max_size=40)),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=20),
        st.dictionaries(st.text(max_size=8), inner, max_size=20),
        st.dictionaries(st.integers(0, 9), inner, max_size=3),
        st.builds(_DeltaSnapshot, st.lists(inner, max_size=3)),
    ),
    max_leaves=30,
)


def assert_cut_as_encoded(raw: RawValues, value: Any, base: Any = None) -> Any:
    kind, data = SERDE.dumps_typed(value)
    cut = raw.cut(kind, data, "value", base)
    expected = CODEC.encode(SERDE.loads_typed((kind, data)), "value")
    assert cut.value == expected
    assert joined(cut.value) == (kind, data)
    return cut


@given(values)
def test_any_value(value: Any) -> None:
    assert_cut_as_encoded(RawValues(), value)


@given(st.lists(st.lists(scalars, max_size=30), min_size=1, max_size=5), st.data())
def test_a_list_that_goes_on_from_another_one(lists: list[list[Any]], data: st.DataObject) -> None:
    raw, base = RawValues(), None
    before: list[Any] = []
    for tail in lists:
        value = before[: data.draw(st.integers(0, len(before)))] + tail
        base, before = assert_cut_as_encoded(raw, value, base), value


@pytest.mark.parametrize("count", [0, 15, 16, 17, 65535, 65536])
def test_lengths_around_the_heads_of_messagepack(count: int) -> None:
    raw = RawValues()
    base = assert_cut_as_encoded(raw, list(range(count)))
    assert_cut_as_encoded(raw, list(range(count + 1)), base)
    assert_cut_as_encoded(raw, list(range(max(count - 1, 0))), base)


def test_documents_that_are_not_packed_in_the_usual_way_stay_whole() -> None:
    unusual = b"\xdd\x00\x00\x00\x01\xd9\x01x"  # a text of one byte with a head for 255
    cut = RawValues().cut("msgpack", unusual, "value")
    assert CODEC.decode([("value", cut.value)]) == [["x"]]


@pytest.mark.parametrize(
    ("kind", "data"),
    [("msgpack", b""), ("msgpack", b"\x91"), ("msgpack", b"\x91\xc1"), ("msgpack", b"\x01\x02"), ("json", b"[1,"),
     ("json", b"\xff"), ("yaml", b"x"), ("msgpack+aes", b"x")],
)  # fmt: skip
def test_what_nobody_can_decode(kind: str, data: bytes) -> None:
    with pytest.raises(SkipThread, match=r"^here: "):
        RawValues().cut(kind, data, "here")


def test_the_order_of_a_tree() -> None:
    nodes = [
        Node("", name, parent) for name, parent in [("d", "b"), ("a", None), ("c", "a"), ("b", "a"), ("x", "gone")]
    ]
    assert [node.checkpoint_id for node in order_of([*nodes, Node("n", "a", "b")])] == ["a", "b", "d", "c", "x", "a"]
    with pytest.raises(SkipThread, match="cycle"):
        order_of([Node("", "a", "b"), Node("", "b", "a")])
