"""Every kind of value comes back as from LangGraph's saver in memory, or is refused before anything is stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Overwrite, Send
from pydantic import SecretStr

from deltastore import DeltaSaver
from deltastore.errors import UnserializableValueError
from tests.property.kinds import REFUSED, STORABLE, Data, Model, Odd, Point
from tests.support.exact import exact
from tests.support.puts import NOTHING, Puts, uuid_of

WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda value: value,
    "in a list": lambda value: [1, value, "x"],
    "in a dict": lambda value: {"k": value, "l": 2},
    "deep": lambda value: [{"k": [value]}],
    "in a tuple": lambda value: (value, 1),
}


def found(value: Any) -> Any:
    """A value in a form that can be compared, with arrays too."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, memoryview):
        return "memoryview", bytes(value)
    if isinstance(value, list):
        return [found(each) for each in value]
    if isinstance(value, tuple) and type(value) is tuple:
        return "tuple", [found(each) for each in value]
    if type(value) is dict:
        return [(exact(key), found(each)) for key, each in value.items()]
    return exact(value)


def stored(puts: Puts, value: Any) -> Any:
    """What becomes of a value in a channel, kept by a delta, in an anchor, as a write and in a history."""
    root = puts.put(None, {"a": value, "b": 1})
    puts.write(root, [("a", value), ("c", value)])
    head = puts.put(root, {"b": 2})
    for number in range(3):
        head = puts.put(head, {"b": number})
    last = puts.put(head, {"a": NOTHING})
    seed, _ = puts.history(last, "a")
    pending = [each for _, _, each in puts.found(root).pending_writes or []]
    return [found(each) for each in (puts.values(root)["a"], puts.values(head)["a"], seed, *pending)]


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", STORABLE)
def test_a_value_comes_back_as_from_the_stock_saver(kind: str, wrapper: str, caplog: pytest.LogCaptureFixture):
    """F11, F12, F14: the same value, or the same error; also when a saver that knows nothing reads it."""
    value = WRAPPERS[wrapper](STORABLE[kind])
    saver = DeltaSaver.in_memory(snapshot_frequency=3)
    try:
        expected = stored(Puts(InMemorySaver()), value)
    except Exception:  # noqa: BLE001 - whatever the serializer raises
        with pytest.raises(UnserializableValueError):
            stored(Puts(saver), value)
        return
    assert stored(Puts(saver), value) == expected
    saver._bridge.engine.cache._threads.clear()
    assert found(Puts(saver).values()["b"]) == found(2)


@pytest.mark.parametrize("kind", STORABLE)
def test_a_value_that_does_not_change_is_stored_once(kind: str):
    """Also where it comes back as another type, as tuples in lists do: no endless deltas."""
    saver = DeltaSaver.in_memory()
    puts = Puts(saver)
    try:
        head = puts.put(None, {"a": [STORABLE[kind], "x" * 2000]})
    except UnserializableValueError:
        return
    storage: Any = saver._bridge.engine.storage
    before = count_of_items(storage)
    for _ in range(5):
        head = puts.put(head, {"a": puts.values(head)["a"]})
        head = puts.put(head, {"a": [STORABLE[kind], "x" * 2000]})
    if kind not in {"Overwrite", "exception"}:  # which come back as something else
        assert count_of_items(storage) == before


def count_of_items(storage: Any) -> int:
    return sum(len(thread.segments) for thread in storage._threads.values())


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", REFUSED)
def test_a_value_that_cannot_be_kept_is_refused_and_the_saver_goes_on(kind: str, wrapper: str):
    """F15: one error, nothing half-written, the checkpoint before still readable."""
    saver = DeltaSaver.in_memory()
    puts = Puts(saver)
    root = puts.put(None, {"a": ["fine"]})
    value = WRAPPERS[wrapper](REFUSED[kind])
    storage: Any = saver._bridge.engine.storage
    before = {key: thread.copy(thread.ref, thread.epoch) for key, thread in storage._threads.items()}
    for attempt in (
        lambda: puts.put(root, {"a": value}),
        lambda: puts.write(root, [("b", "fine"), ("a", value)]),
        lambda: puts.put(root, {"a": ["fine"]}, metadata={"user": value}),
    ):
        with pytest.raises(UnserializableValueError):
            attempt()
    assert storage._threads == before
    assert puts.values(root) == {"a": ["fine"]}
    head = puts.put(root, {"a": ["fine", "again"]})
    assert puts.values(head) == {"a": ["fine", "again"]}


@pytest.mark.parametrize(
    ("hide", "path"),
    [
        (lambda text: Send("node", {"k": text}), ".arg['k']"),
        (lambda text: Send(text, 1), ".node"),
        (lambda text: deque([1, text]), "[1]"),
        (lambda text: {1, text}, "["),
        (lambda text: Point(1, text), "[1]"),
        (lambda text: Data("a", [{"k": (text,)}]), ".parts[0]['k'][0]"),
        (lambda text: Model(name="a", inner={text: [1]}), ""),
        (lambda text: HumanMessage("a", extra=text), ".extra"),
        (lambda text: HumanMessage([{"type": "text", "text": text}]), ".content[0]['text']"),
        (SecretStr, ".get_secret_value()"),
        (lambda text: Interrupt(value=text, id="i"), ".value"),
        (lambda text: Overwrite([text]), ".value[0]"),
        (lambda text: _DeltaSnapshot([text]), "[0]"),
        (lambda text: {text: 1}, ""),
        (lambda text: {(1, text): 1}, ""),
        (lambda text: nested(text, 200), "[0]"),
    ],
)
def test_a_lone_surrogate_is_found_wherever_it_is(hide: Callable[[str], Any], path: str):
    """F12: the serializer would write a question mark in its place."""
    puts = Puts(DeltaSaver.in_memory())
    for value in (hide("fine?"), [hide("fine? é \U0001f600")]):
        puts.put(None, {"a": value})
    with pytest.raises(UnserializableValueError) as caught:
        puts.put(None, {"a": hide("a\ud800")})
    assert path in str(caught.value)
    with pytest.raises(UnserializableValueError):
        puts.put(None, {"a": [1, hide("a\udfff")]})
    with pytest.raises(UnserializableValueError):
        puts.write(uuid_of(1), [("a", {"k": hide("a\ud800")})])


def nested(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([1, {"cart": [0, {"qty": Odd()}]}], "state.a[1]['cart'][1]['qty']"),
        ({"cart": [0, 1, 2, {"qty": 2**70}]}, "state.a['cart'][3]['qty']"),
        ({"text": ["fine", "a\ud800"]}, "state.a['text'][1]"),
        (Odd(), "state.a"),
    ],
)
def test_the_error_names_channel_and_path(value: Any, path: str):
    puts = Puts(DeltaSaver.in_memory())
    with pytest.raises(UnserializableValueError) as caught:
        puts.put(None, {"a": value})
    assert path in str(caught.value)
    assert "namespace (root), " in str(caught.value)


def test_values_that_hold_themselves_are_refused():
    left: list[Any] = []
    right: list[Any] = [left]
    left.append(right)
    mapping: dict[str, Any] = {}
    mapping["self"] = mapping
    puts = Puts(DeltaSaver.in_memory())
    for value in (left, mapping, [mapping]):
        with pytest.raises(UnserializableValueError):
            puts.put(None, {"a": value})
    puts.put(None, {"a": ["fine"]})


def test_a_value_that_is_nested_too_deeply_is_refused():
    value = nested(1, 3000)
    puts = Puts(DeltaSaver.in_memory())
    with pytest.raises(UnserializableValueError):
        puts.put(None, {"a": value})
    with pytest.raises(UnserializableValueError):
        puts.put(None, {"a": {"?": value}})
