"""What LangGraph does to a saver: shallow copies, another serializer, an allow-list, a look at signatures."""

from __future__ import annotations

import asyncio
import copy
import inspect
from dataclasses import dataclass

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore import DeltaSaver, WrongLoopError
from tests.bridge.savers import config, echo_graph, memory_saver


@dataclass
class Order:
    number: int


class Marking(JsonPlusSerializer):
    """Marks what it reads."""

    def loads_typed(self, data):
        value = super().loads_typed(data)
        return [*value, "marked"] if isinstance(value, list) else value


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

    class Unknown:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Unknown)

    globals()["Unknown"] = Unknown
    Unknown.__qualname__ = "Unknown"
    echo_graph(saver).invoke({"words": ["a"]}, config())
    checkpoint = saver.get_tuple(config())
    assert checkpoint is not None
    with pytest.raises(ValueError, match="Unknown"):
        saver.put_writes(checkpoint.config, [("words", Unknown())], "task")
    saver.serde = JsonPlusSerializer(pickle_fallback=True)
    saver.put_writes(checkpoint.config, [("words", Unknown())], "task")
    stored = saver.get_tuple(config())
    assert stored is not None
    assert stored.pending_writes[-1] == ("task", "words", Unknown())


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
    head = saver.get_tuple(config())
    assert head is not None
    saver.put_writes(head.config, [("words", Order(3))], "task")

    clone = saver.with_allowlist([(Order.__module__, "Order")])
    assert type(clone) is DeltaSaver
    allowed, blocked = clone.get_tuple(config()), saver.get_tuple(config())
    assert allowed is not None
    assert blocked is not None
    assert allowed.pending_writes == [("task", "words", Order(3))]
    assert blocked.pending_writes == [("task", "words", {"number": 3})]
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
