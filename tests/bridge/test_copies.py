"""What LangGraph does to a saver: shallow copies, another serializer, an allow-list, a look at signatures."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore import DeltaSaver, UnserializableValueError, WrongLoopError
from tests.bridge.savers import config, echo_graph, head, memory_saver


@dataclass
class Order:
    number: int


class Unknown:
    """What only pickle can store."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown)

    __hash__ = None  # type: ignore[assignment]


def test_a_copy_shares_the_storage_and_has_its_own_serializer() -> None:
    saver = DeltaSaver.in_memory()
    graph = echo_graph(saver)
    graph.invoke({"words": ["a"]}, config())
    clone = copy.copy(saver)
    clone.serde = JsonPlusSerializer(pickle_fallback=True)
    echo_graph(clone).invoke({"words": [str(object)]}, config("other"))
    assert saver.serde is not clone.serde
    assert clone.get_tuple(config()) == saver.get_tuple(config())
    assert saver.get_tuple(config("other")) == clone.get_tuple(config("other"))


def test_an_assigned_serializer_is_used_at_once() -> None:
    saver = DeltaSaver.in_memory()
    echo_graph(saver).invoke({"words": ["a"]}, config())
    with pytest.raises(UnserializableValueError, match="Unknown"):
        saver.put_writes(head(saver).config, [("words", Unknown())], "task")
    saver.serde = JsonPlusSerializer(pickle_fallback=True)
    saver.put_writes(head(saver).config, [("words", Unknown())], "task")
    assert head(saver).pending_writes == [("task", "words", Unknown())]


async def test_a_copy_made_before_opening_is_open_when_the_original_is() -> None:
    saver = memory_saver()
    clone = copy.copy(saver)
    async with saver:
        assert await clone.aget_tuple(config()) is None
    with pytest.raises(WrongLoopError):
        await clone.aget_tuple(config())


def test_with_allowlist(caplog: pytest.LogCaptureFixture) -> None:
    saver = DeltaSaver.in_memory(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    graph = echo_graph(saver)
    graph.invoke({"words": ["a"]}, config())
    saver.put_writes(head(saver).config, [("words", Order(3))], "task")

    clone = saver.with_allowlist([(Order.__module__, "Order")])
    assert type(clone) is DeltaSaver
    assert head(clone).pending_writes == [("task", "words", Order(3))]
    assert head(saver).pending_writes == [("task", "words", {"number": 3})]
    assert "Blocked deserialization" in caplog.text


@pytest.mark.parametrize("name", ["put_writes", "aput_writes"])
def test_the_signature_shows_task_path(name: str) -> None:
    assert "task_path" in inspect.signature(getattr(DeltaSaver, name)).parameters


def test_every_method_has_both_forms() -> None:
    for name in ("put", "put_writes", "get_tuple", "list", "delete_thread", "delete_for_runs", "copy_thread", "prune",
                 "get_delta_channel_history"):  # fmt: skip
        synchronous = inspect.signature(getattr(DeltaSaver, name)).parameters
        asynchronous = inspect.signature(getattr(DeltaSaver, f"a{name}")).parameters
        assert {name: (each.kind, each.default) for name, each in synchronous.items()} == {
            name: (each.kind, each.default) for name, each in asynchronous.items()
        }
        assert asyncio.iscoroutinefunction(getattr(DeltaSaver, f"a{name}")) or name == "list"


class Reversing:
    """A serializer of another kind: nothing that `JsonPlusSerializer` wrote can be read with it, and the other way."""

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        return "reversed", json.dumps(value).encode()[::-1]

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, text = data
        if kind != "reversed":
            raise ValueError(f"cannot read {kind}")
        return json.loads(text[::-1])


def test_nothing_encoded_with_one_serializer_is_stored_as_if_by_another() -> None:
    """The same objects are put through both: what was remembered of their encoding must not cross over."""
    saver = DeltaSaver.in_memory()
    words = ["the same text object, long enough to be kept apart" * 40, {"a": ["nested"]}]
    clone = copy.copy(saver)
    clone.serde = Reversing()

    def put(target: DeltaSaver, thread_id: str, version: int) -> None:
        checkpoint = create_checkpoint(empty_checkpoint(), None, version)
        checkpoint["channel_values"] = {"words": words}
        checkpoint["channel_versions"] = {"words": version}
        target.put(config(thread_id), checkpoint, {}, {"words": version})

    put(saver, "t", 1)
    put(clone, "t", 2)
    assert head(clone).checkpoint["channel_values"] == {"words": words}
    put(saver, "t", 3)
    assert head(saver).checkpoint["channel_values"] == {"words": words}
