"""The memo skips encoding only where nothing changed: every kind of in-place mutation is seen."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from deltastore.conversion.convert import codec_of, put_of
from deltastore.conversion.validate import thread
from deltastore.core.codec import Codec
from deltastore.core.draft import Put
from deltastore.core.imprint import imprint
from deltastore.core.memo import RECENT_MAX, Memo, Memos
from deltastore.core.remembered import Elements, Recall
from deltastore.langgraph.serializer import LoadedTypesSerializer


def codec() -> Codec:
    return codec_of(LoadedTypesSerializer())[0]


def message() -> AIMessage:
    return AIMessage(
        content="text",
        id="1",
        tool_calls=[{"name": "look", "args": {"at": [1, {"deep": True}]}, "id": "call", "type": "tool_call"}],
        response_metadata={"finish_reason": "stop", "logprobs": [0.5, 1.0]},
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    )


MUTATIONS: dict[str, Any] = {
    "content": lambda m: setattr(m, "content", "other"),
    "content of the same length": lambda m: setattr(m, "content", "texU"),
    "content to blocks": lambda m: setattr(m, "content", [{"type": "text", "text": "text"}]),
    "id": lambda m: setattr(m, "id", None),
    "int to bool": lambda m: m.usage_metadata.__setitem__("input_tokens", True),
    "int to float": lambda m: m.usage_metadata.__setitem__("input_tokens", 1.0),
    "bool to int, deep": lambda m: m.tool_calls[0]["args"]["at"][1].__setitem__("deep", 1),
    "float to int": lambda m: m.response_metadata["logprobs"].__setitem__(1, 1),
    "sign": lambda m: m.response_metadata["logprobs"].__setitem__(0, -0.5),
    "list grows": lambda m: m.tool_calls[0]["args"]["at"].append(None),
    "list to tuple": lambda m: m.tool_calls[0]["args"].__setitem__("at", (1, {"deep": True})),
    "key added": lambda m: m.additional_kwargs.__setitem__("refusal", None),
    "key removed": lambda m: m.response_metadata.pop("finish_reason"),
    "keys swapped": lambda m: m.response_metadata.__setitem__("logprobs", m.response_metadata.pop("logprobs")[::-1]),
    "field added": lambda m: setattr(m, "extra_field", 1),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_seen(name: str) -> None:
    value = message()
    remembered = imprint(value, b"\x00item")
    assert remembered is not None
    assert remembered.is_of(value)
    MUTATIONS[name](value)
    assert not remembered.is_of(value)


@pytest.mark.parametrize(
    "value", ["text", [1, [2]], {"a": [1]}, HumanMessage("hi"), ToolMessage("x", tool_call_id="1")]
)
def test_unchanged_values_are_recalled_without_encoding(value: Any) -> None:
    memo = Memo(None)
    first = memo.recall("c")
    encoded = codec().encode([value], "w", first)
    memo.replace({"c": first})

    class Refusing:
        def dumps_typed(self, _: Any) -> Any:
            raise AssertionError("encoded again")

        def loads_typed(self, _: Any) -> Any:
            raise AssertionError

    second = Codec(Refusing(), is_msgpack=True, snapshot_type=tuple).encode([value], "w", memo.recall("c"))
    assert (second.items, second.digests) == (encoded.items, encoded.digests)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": "x", "b": "y"}, {"b": "y", "a": "x"}),
        ({1: "one"}, {True: "one"}),
        ({1: "one"}, {1.0: "one"}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}),
    ],
)
def test_the_order_and_the_types_of_keys_count(before: dict[Any, Any], after: dict[Any, Any]) -> None:
    remembered = imprint(before, b"\x00item")
    assert remembered is not None
    assert before == after
    changed = dict(after)
    before.clear()
    before.update(changed)
    assert not remembered.is_of(before)


def test_an_equal_but_other_object_is_encoded_again() -> None:
    memo, value = Memo(None), message()
    recall = memo.recall("c")
    codec().encode([value], "w", recall)
    memo.replace({"c": recall})
    assert memo.recall("c").find(copy.deepcopy(value)) is None


@pytest.mark.parametrize("gone", ["text", [1], {"a": "x" * 2000}, message()], ids=lambda gone: type(gone).__name__)
def test_an_object_with_the_identity_of_one_that_is_gone_is_encoded_again(gone: Any) -> None:
    """Another thread may replace what is remembered, and let objects go, while a value is encoded."""
    others: list[Any] = ["other", ["other"], {"a": "y" * 2000}, HumanMessage("other")]
    recall = Recall([{id(other): imprint(gone, b"\x00gone") for other in others}])
    assert [recall.find(other) for other in others] == [None] * 4


def test_what_holds_an_array_is_not_remembered() -> None:
    numpy = pytest.importorskip("numpy")
    value = ToolMessage("x", tool_call_id="1", artifact=numpy.zeros((2, 3)))
    item = codec().encode([value], "w").items[0]
    assert imprint(value, item) is None


@pytest.mark.parametrize("value", [1, 1.5, None, True, b"x", (1, 2), {1, 2}, bytearray(b"x")])
def test_other_kinds_are_not_remembered(value: Any) -> None:
    recall = Memo(None).recall("c")
    codec().encode([value], "w", recall)
    assert recall.objects == []


def found(memo: Memo, value: Any) -> bool:
    return memo.recall("c").find(value) is not None


def written(memo: Memo, value: Any) -> None:
    recall = memo.recall("c")
    codec().encode([value], "w", recall)
    memo.add(recall)


def test_elements_of_writes_are_remembered_until_the_next_checkpoint() -> None:
    memo, value = Memo(None), message()
    written(memo, value)
    assert found(memo, value)
    memo.replace({"other": memo.recall("other")})
    assert not found(memo, value)
    assert memo.size_bytes == Memo(None).size_bytes


def test_many_elements_of_writes_are_not_remembered() -> None:
    memo, values = Memo(None), [f"text {number}" for number in range(3 * RECENT_MAX)]
    for value in values:
        written(memo, value)
        assert found(memo, value)
    assert sum(found(memo, value) for value in values) <= RECENT_MAX


def test_what_a_run_had_is_forgotten_when_the_next_one_loads() -> None:
    memo, before, written_before, loaded = Memo(None), message(), message(), message()
    recall = memo.recall("c")
    codec().encode([before], "w", recall)
    memo.replace({"c": recall})
    written(memo, written_before)
    items = codec().encode([loaded], "w").items
    memo.begin({"c": Elements.of([loaded], [imprint(loaded, items[0])], items)})
    assert [found(memo, value) for value in (before, written_before, loaded)] == [False, False, True]


def put(memos: Memos, codec: Codec, metadata: dict[str, Any]) -> Put:
    """A put of the next checkpoint of a thread."""
    checkpoint: Any = {"v": 1, "id": "1", "channel_versions": {}, "versions_seen": {}, "channel_values": {}}
    config: Any = {"configurable": {"thread_id": "t"}}
    return put_of(codec, config, checkpoint, cast("Any", metadata), {}, memos)[1]


def test_metadata_that_repeats_is_encoded_once() -> None:
    memos, one = Memos(1 << 20), codec()
    first = put(memos, one, {"step": 1, "run_id": "a", "n": 1})
    assert put(memos, one, {"step": 2, "run_id": "a", "n": 1}).shared is first.shared
    changed = put(memos, one, {"step": 2, "run_id": "a", "n": True})
    assert changed.shared == one.encode_item({"run_id": "a", "n": True}, "")
    assert changed.document == '{"run_id": "a", "n": true}'


def test_a_serializer_of_ones_own_is_asked_for_metadata_each_time() -> None:
    memos, own = Memos(1 << 20), Codec(codec().serializer, is_msgpack=False, snapshot_type=tuple)
    first, second = put(memos, own, {"run_id": "a"}), put(memos, own, {"run_id": "a"})
    assert second.shared == first.shared
    assert second.shared is not first.shared


def test_metadata_counts_as_memory() -> None:
    memos, one = Memos(1 << 20), codec()
    before = memos.of(b"other", "", one.serializer).size_bytes
    put(memos, one, {"user": "x" * 1000})
    assert memos.of(thread("t").key, "", one.serializer).size_bytes >= before + 3000


json = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text(max_size=2), child, max_size=3),
    max_leaves=8,
)


@given(
    before=st.dictionaries(st.text(max_size=2), json, max_size=4),
    after=st.dictionaries(st.text(max_size=2), json, max_size=4),
)
def test_contents_that_encode_differently_are_never_taken_for_the_same(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    value = copy.deepcopy(before)
    [item] = codec().encode([value], "w").items
    remembered = imprint(value, item)
    assert remembered is not None
    value.clear()
    value.update(copy.deepcopy(after))
    if remembered.is_of(value):
        assert codec().encode([value], "w").items == [item]


def test_memos_are_bounded() -> None:
    memos = Memos(bytes_max=4000)
    empty = Memo(None).size_bytes
    for number in range(64):
        memo = memos.of(bytes([number]), "", None)
        recall = memo.recall("c")
        codec().encode(["x" * 100 + str(number)], "w", recall)
        memo.replace({"c": recall})
    assert sum(memos.of(bytes([number]), "", None).size_bytes > empty for number in range(64)) <= 3


class Raising:
    def __eq__(self, other: object) -> bool:
        raise AttributeError("no such field")

    __hash__ = None  # type: ignore[assignment]


BUFFERS = [b"text", bytearray(b"text"), memoryview(b"text")]


@pytest.mark.parametrize("value", [[b"text"], {"a": [b"text"]}, [1, {"b": b"text"}], [bytearray(b"x")]])
def test_what_holds_bytes_is_not_remembered(value: Any) -> None:
    """An array in place of bytes would look the same to `marshal`."""
    assert imprint(value, b"\x00item") is None


@pytest.mark.parametrize("other", BUFFERS)
def test_a_buffer_in_place_of_anything_plain_is_seen(other: Any) -> None:
    for before in ("text", 1, None, 1.5, [1], "\x00"):
        value: list[Any] = [before]
        remembered = imprint(value, b"\x00item")
        assert remembered is not None
        value[0] = other
        assert not remembered.is_of(value)


def test_a_comparison_that_raises_is_a_change() -> None:
    value: dict[str, Any] = {"a": 1}
    remembered = imprint(value, b"\x00item")
    assert remembered is not None
    value["a"] = Raising()
    assert not remembered.is_of(value)


def test_another_class_is_a_change() -> None:
    value: Any = HumanMessage("hi")
    remembered = imprint(value, b"\x00item")
    assert remembered is not None
    value.__class__ = AIMessage
    assert not remembered.is_of(value)


def test_a_class_that_cannot_be_hashed_is_no_message() -> None:
    class Meta(type):
        __hash__ = None  # type: ignore[assignment]

    class Unhashable(dict[str, Any], metaclass=Meta):
        pass

    assert imprint(Unhashable(), b"\x00item") is None
