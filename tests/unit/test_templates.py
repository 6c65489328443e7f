"""Templates give what decoding gives, and nothing that is handed out shares anything that can change."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from pydantic import BaseModel

from deltastore.conversion.convert import codec_of
from deltastore.core.imprint import DEPTH_MAX
from deltastore.core.templates import Templates
from deltastore.langgraph.serializer import LoadedTypesSerializer
from tests.support.exact import exact

CODEC = codec_of(LoadedTypesSerializer())[0]


class Note(BaseModel):
    text: str


class Counting:
    """Decodes, and counts the items that it was given."""

    def __init__(self) -> None:
        self.items = 0

    def __call__(self, items: Sequence[bytes]) -> list[Any]:
        self.items += len(items)
        return CODEC._load_all(items)


def items_of(values: list[Any]) -> list[bytes]:
    return CODEC.encode(values, "values").items


def message() -> AIMessage:
    return AIMessage(
        content=[{"type": "text", "text": "hello"}],
        id="1",
        tool_calls=[{"name": "look", "args": {"at": [1, {"deep": [True]}]}, "id": "call", "type": "tool_call"}],
        response_metadata={"logprobs": [0.5], "usage": {"details": {"cached": 1}}},
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    )


KEPT = [
    "text",
    7,
    2.5,
    None,
    True,
    b"bytes",
    UUID(int=5),
    datetime(2026, 1, 2, tzinfo=UTC),
    [1, [2, {"a": [None]}]],
    [],
    {},
    {"long": "x" * 5000, "deep": [{"a": None}], "short": "y"},
    {"a": {"b": [1, 2]}, "c": []},
    message(),
    HumanMessage("hi", name="ada", additional_kwargs={"x": [1]}),
    ToolMessage("result", tool_call_id="call", artifact={"rows": [[1, 2]]}),
    RemoveMessage(id="1"),
]


@pytest.mark.parametrize("value", KEPT, ids=lambda value: type(value).__name__)
def test_from_the_third_load_on_nothing_is_decoded(value: Any) -> None:
    templates, items = Templates(), items_of([value])
    for _ in range(2):
        templates.load(items, CODEC._load_all, CODEC._encoded)
    counting = Counting()
    [found] = templates.load(items, counting, CODEC._encoded)
    assert counting.items == 0
    assert exact(found) == exact(CODEC._load_all(items)[0])


def test_the_first_load_keeps_nothing() -> None:
    templates, items = Templates(), items_of([message()])
    templates.load(items, CODEC._load_all, CODEC._encoded)
    counting = Counting()
    templates.load(items, counting, CODEC._encoded)
    assert counting.items == 1


def _spoil(value: Any) -> None:
    """Changes everything that can be changed in place, at any depth."""
    if isinstance(value, dict):
        for part in value.values():
            _spoil(part)
        value["spoilt"] = True
    elif isinstance(value, list):
        for part in value:
            _spoil(part)
        value.append("spoilt")
    elif isinstance(value, AIMessage | HumanMessage | ToolMessage | RemoveMessage):
        _spoil(value.__dict__)
        value.__pydantic_fields_set__.add("spoilt")
        value.added_later = "spoilt"  # type: ignore[union-attr]


def test_changing_what_was_handed_out_changes_no_later_load() -> None:
    templates, items = Templates(), items_of(KEPT)
    expected = exact(CODEC._load_all(items))
    for _ in range(5):
        found = templates.load(items, CODEC._load_all, CODEC._encoded)
        assert exact(found) == expected
        for value in found:
            _spoil(value)


def test_an_item_that_occurs_twice_is_two_objects() -> None:
    templates, items = Templates(), items_of([message(), message()])
    for _ in range(3):
        first, second = templates.load(items, CODEC._load_all, CODEC._encoded)
        assert first is not second
        assert first.tool_calls is not second.tool_calls


class Opaque(dict[str, Any]):
    """A kind that is not copied."""


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(DEPTH_MAX + 2):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [{1, 2}, np.zeros(3), {"a": np.zeros(2)}, {(1, 2): "key"}, _deep()],
    ids=lambda v: type(v).__name__,
)
def test_other_kinds_are_decoded_each_time(value: Any) -> None:
    templates, items = Templates(), items_of([value])
    for _ in range(3):
        counting = Counting()
        [found] = templates.load(items, counting, CODEC._encoded)
        assert counting.items == 1
        assert items_of([found]) == items


def test_what_the_last_load_did_not_use_is_forgotten() -> None:
    templates, first, second = Templates(), items_of([message()]), items_of([HumanMessage("other")])
    for items in (first, first, second):
        templates.load(items, CODEC._load_all, CODEC._encoded)
    counting = Counting()
    templates.load(first, counting, CODEC._encoded)
    assert counting.items == 1
    assert templates.size_bytes > 0


json = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text(max_size=2), child, max_size=3),
    max_leaves=12,
)


@given(st.lists(st.lists(json, max_size=4), min_size=3, max_size=5))
def test_any_sequence_of_loads_equals_decoding(loads: list[list[Any]]) -> None:
    templates = Templates()
    for values in loads:
        items = items_of(values)
        found = templates.load(items, CODEC._load_all, CODEC._encoded)
        assert exact(found) == exact(CODEC._load_all(items))
        for value in found:
            _spoil(value)


def test_what_a_class_became_because_it_was_away_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """LangGraph's serializer gives a plain dict for an object of a class that is not there at the moment."""
    templates, items = Templates(), items_of([{"note": Note(text="a")}, Note(text="b")])
    for _ in range(2):
        templates.load(items, CODEC._load_all, CODEC._encoded)
    with monkeypatch.context() as patch:
        patch.delattr(sys.modules[__name__], "Note")
        fresh = Templates()
        for _ in range(2):
            assert fresh.load(items, CODEC._load_all, CODEC._encoded) == [{"note": {"text": "a"}}, {"text": "b"}]
    inside, alone = fresh.load(items, CODEC._load_all, CODEC._encoded)
    assert (type(inside["note"]), type(alone)) == (Note, Note)
