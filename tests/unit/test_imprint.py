"""An imprint shows every change of a value, and copies of the value equal it and share nothing."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from deltastore.core.imprint import LONG_CHARACTERS, Imprint, imprint
from deltastore.core.templates import Template
from tests.support.exact import exact

LONG = "x" * LONG_CHARACTERS
kinds: st.SearchStrategy[Any] = st.sampled_from([AIMessage, HumanMessage, ToolMessage])

atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=3)
    | st.sampled_from([LONG, "\u20ac" * LONG_CHARACTERS, -0.0, 2**70])
)
plain = st.recursive(
    atoms,
    lambda child: (
        st.lists(child, max_size=3) | st.lists(child, max_size=2).map(tuple) | st.dictionaries(atoms, child, max_size=3)
    ),
    max_leaves=10,
)
names = st.sampled_from(["content", "additional_kwargs", "type", "name", "id", "artifact"])


@st.composite
def messages(draw: st.DrawFn) -> Any:
    """Messages with anything plain in their fields, and any fields."""
    message = draw(kinds).model_construct(_fields_set=draw(st.sets(names)))
    for name, value in draw(st.dictionaries(names, plain, max_size=5)).items():
        message.__dict__[name] = value
    return message


values = st.lists(plain, max_size=3) | st.dictionaries(atoms, plain, max_size=4) | messages()


def of(value: Any) -> Imprint:
    found = imprint(value, b"\x00item")
    assert found is not None
    return found


def template_of(value: Any) -> Template | None:
    """A template, as if the value encoded to its item."""
    return Template.of(value, b"item", lambda _: b"item")


def containers(value: Any) -> list[int]:
    """The identities of all that can change in a value."""
    if isinstance(value, BaseMessage):
        return [id(value), id(value.__pydantic_fields_set__), *containers(value.__dict__)]
    if isinstance(value, dict):
        return [id(value), *[each for part in value.values() for each in containers(part)]]
    if isinstance(value, list | tuple):
        inner = [each for part in value for each in containers(part)]
        return inner if isinstance(value, tuple) else [id(value), *inner]
    return []


@given(values)
def test_copies_are_equal_share_nothing_and_are_proved_unchanged(value: Any) -> None:
    expected, template = exact(value), template_of(value)
    if template is None:
        return
    first, second = template.copy(), template.copy()
    assert exact(first) == exact(second) == expected
    parts = containers(value) + containers(first) + containers(second)
    assert len(parts) == len(set(parts))
    if isinstance(value, BaseMessage):
        assert first.__pydantic_fields_set__ == value.__pydantic_fields_set__
        assert first.__pydantic_extra__ == value.__pydantic_extra__
        assert first.__pydantic_private__ is None
    assert template.imprint is None or template.imprint.is_of(first)


@given(values)
def test_what_did_not_change_is_proved_unchanged(value: Any) -> None:
    assert of(value).is_of(value)


@given(messages(), messages())
def test_a_message_with_the_fields_of_another_one_is_changed(value: Any, other: Any) -> None:
    taken, before = of(value), exact(value)
    value.__dict__.clear()
    value.__dict__.update(copy.deepcopy(other.__dict__))
    if taken.is_of(value):
        assert exact(value) == before


@given(st.dictionaries(atoms, plain, max_size=4), st.dictionaries(atoms, plain, max_size=4))
def test_a_dict_with_the_entries_of_another_one_is_changed(value: dict[Any, Any], other: dict[Any, Any]) -> None:
    taken, before = of(value), exact(value)
    value.clear()
    value.update(copy.deepcopy(other))
    assert taken.is_of(value) <= (exact(value) == before)


class Text(str):
    """Equal to a string, but no exact one."""

    __slots__ = ()


def _swapped(fields: dict[str, Any]) -> None:
    fields["content"], fields["name"] = fields["name"], fields["content"]


def _moved(fields: dict[str, Any]) -> None:
    fields["content"] = fields.pop("content")


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "string and nothing swapped": _swapped,
    "another order": _moved,
    "subclass of str": lambda fields: fields.update(content=Text(fields["content"])),
    "string of numpy": lambda fields: fields.update(content=np.str_(fields["content"])),
    "nothing to string": lambda fields: fields.update(name="ada"),
    "string to nothing": lambda fields: fields.update(content=None),
    "a string more": lambda fields: fields.update(more="text"),
    "something more": lambda fields: fields.update(more=None),
    "a string less": lambda fields: fields.pop("content"),
    "something less": lambda fields: fields.pop("name"),
    "bytes": lambda fields: fields.update(content=fields["content"].encode()),
    "another name": lambda fields: fields.update(named=fields.pop("name")),
}


@pytest.mark.parametrize("kind", ["message", "long dict", "dict"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_fields_is_seen(name: str, kind: str) -> None:
    value: Any = HumanMessage(LONG) if kind == "message" else {"content": LONG, "name": None, "id": "1"}
    if kind == "dict":
        value["content"] = "short"
    taken = of(value)
    assert taken.is_of(value)
    CHANGES[name](value.__dict__ if kind == "message" else value)
    assert not taken.is_of(value)


@pytest.mark.parametrize("other", [Text("content"), np.str_("content")])
def test_a_key_that_only_equals_a_string_is_a_change(other: Any) -> None:
    value: dict[str, Any] = {"content": LONG}
    taken = of(value)
    value[other] = value.pop("content")
    assert not taken.is_of(value)


@pytest.mark.parametrize("value", ["text", 1, 1.5, b"x", None])
def test_what_cannot_change_is_proved_by_itself_only(value: Any) -> None:
    assert of(value).is_of(value)
    assert not of(value).is_of("other")


def test_a_message_whose_names_are_no_strings_has_no_imprint() -> None:
    """1 and True are one key of the table of shapes."""
    value = HumanMessage("hi")
    value.__dict__[True] = 1  # type: ignore[index]
    assert imprint(value, b"") is None


def test_fields_of_no_class_are_a_change_and_have_no_imprint() -> None:
    value = HumanMessage("hi")
    taken = of(value)
    value.unknown = 1  # type: ignore[attr-defined]
    assert not taken.is_of(value)
    assert imprint(value, b"") is None


@pytest.mark.parametrize("value", [HumanMessage(LONG), {"content": LONG}, LONG], ids=["message", "dict", "string"])
def test_strings_exist_once(value: Any) -> None:
    template = template_of(value)
    assert template is not None
    made = template.copy()
    fields = made if isinstance(made, dict) else {"content": made} if isinstance(made, str) else made.__dict__
    assert fields["content"] is LONG


def test_the_garbage_collector_looks_at_nothing_in_an_imprint() -> None:
    taken = of(AIMessage("text", id="1", tool_calls=[{"name": "look", "args": {"at": [1]}, "id": "call"}]))
    gc.collect()
    assert not any(map(gc.is_tracked, (taken.fixed, taken.contents, taken.item, taken.digest)))


def test_messages_with_the_same_fields_have_one_shape() -> None:
    assert of(HumanMessage("a")).shape is of(HumanMessage("b")).shape
    assert of(HumanMessage("a")).shape is not of(HumanMessage("a", name="ada")).shape
