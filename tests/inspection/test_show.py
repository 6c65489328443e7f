"""One checkpoint with its values, and what differs between two."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from types import ModuleType
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite

from deltastore import DeltaSaver
from deltastore.errors import InvalidConfigError
from deltastore.inspection import (
    ChannelDifference,
    CheckpointView,
    Difference,
    ItemDifference,
    Unopened,
    diff,
    message_of,
    show,
)
from tests.support.puts import NOTHING, Puts, uuid_of

COUNTERS = {"counters_since_delta_snapshot": {"messages": [1, 1], "log": [1, 1]}}


def shown(saver: DeltaSaver, **options: Any) -> CheckpointView:
    return asyncio.run(show(saver, "t", **options))


def compared(saver: DeltaSaver, first: str, second: str, **options: Any) -> Difference:
    return asyncio.run(diff(saver, "t", first, second, **options))


def values(view: CheckpointView) -> dict[str, Any]:
    return {each.channel: each.value for each in view.channels}


@pytest.fixture
def gone_class() -> Any:
    """A data class of a module that will not be there when its objects are loaded."""
    module = ModuleType("gone_module")
    made: Any = dataclasses.make_dataclass("Ticket", ["number", "title"])
    made.__module__ = "gone_module"
    module.Ticket = made  # type: ignore[attr-defined]
    sys.modules["gone_module"] = module
    yield made
    sys.modules.pop("gone_module", None)


def test_values_writes_and_metadata(saver: DeltaSaver, puts: Puts) -> None:
    first = puts.put(None, {"log": ["a"], "branch:to:x": None}, metadata={"user": "u"})
    second = puts.put(first, {"log": ["a", "b"], "files": {"x": 1}, "name": "n"})
    puts.write(second, [("log", ["c"])], task="t1", path="~__pregel_pull, node")
    view = shown(saver)
    assert (view.checkpoint_id, view.parent_id, view.step, view.source) == (second, first, 2, "loop")
    assert values(view) == {"log": ["a", "b"], "files": {"x": 1}, "name": "n"}
    assert [(each.task_id, each.node, each.channel, each.value) for each in view.writes] == [
        ("t1", "node", "log", ["c"])
    ]
    assert values(shown(saver, at=first)) == {"log": ["a"]}
    assert shown(saver, at=first).metadata == {"parents": {}, "user": "u"}
    assert values(shown(saver, channels=["files"])) == {"files": {"x": 1}}
    assert values(shown(saver, channels=["branch:to:x"])) == {"branch:to:x": None}
    assert json.loads(json.dumps(view.as_json()))["channels"][0]["value"] == ["a", "b"]


def test_an_input_is_shown(saver: DeltaSaver, puts: Puts) -> None:
    puts.put(None, {"__start__": {"messages": ["hi"]}})
    assert values(shown(saver)) == {"__start__": {"messages": ["hi"]}}
    assert shown(saver).next == ("__start__",)


def test_the_beginning_of_an_id(saver: DeltaSaver, puts: Puts) -> None:
    for name in ("one", "one two", "three", "1f1ed167-7afc-6548-8001-6c9d1b05920a"):
        puts.put(None, {"name": name}, checkpoint_id=name)
    for at, expected in {
        "one": "one",
        "one ": "one two",
        "t": "three",
        "1f1ed167-7": "1f1ed167-7afc-6548-8001-6c9d1b05920a",
    }.items():
        assert shown(saver, at=at).checkpoint_id == expected
    for at, message in {"on": "several checkpoints begin", "four": "has no checkpoint 'four'", "": "empty"}.items():
        with pytest.raises(InvalidConfigError, match=message):
            shown(saver, at=at)
    with pytest.raises(InvalidConfigError, match="has no checkpoint in namespace 'x'"):
        shown(saver, namespace="x")
    with pytest.raises(InvalidConfigError, match="there is no thread 'nobody'"):
        asyncio.run(show(saver, "nobody", at="x"))
    with pytest.raises(InvalidConfigError, match="no value for channel 'y'; it has 'name'"):
        shown(saver, channels=["y"])


def test_messages_of_a_delta_channel_are_folded(saver: DeltaSaver, puts: Puts) -> None:
    head = puts.put(None, {"messages": _DeltaSnapshot([HumanMessage("a", id="1")])}, metadata=COUNTERS)
    assert [(each.origin, each.value) for each in shown(saver).channels] == [("snapshot", [HumanMessage("a", id="1")])]
    head = puts.step(head, "messages", [AIMessage("b", id="2")], {"role": "user", "content": "c"}, metadata=COUNTERS)
    head = puts.step(head, "messages", [AIMessage("B", id="2"), RemoveMessage("1")], metadata=COUNTERS)
    [channel] = shown(saver).channels
    assert (channel.origin, channel.problem) == ("folded", "")
    assert [each.content for each in channel.value] == ["B", "c"]
    puts.step(head, "messages", Overwrite([HumanMessage("new", id="9")]), metadata=COUNTERS)
    assert [each.content for each in shown(saver).channels[0].value] == ["new"]


def extend(value: list[Any], writes: Any) -> list[Any]:
    return [*value, *(each for write in writes for each in write)]


def test_other_delta_channels_need_their_reducer(saver: DeltaSaver, puts: Puts) -> None:
    head = puts.put(None, {"other": 1})
    head = puts.step(head, "log", ["a"], metadata=COUNTERS)
    puts.step(head, "log", ["b"], ["c"], metadata=COUNTERS)
    [_, channel] = shown(saver).channels
    assert (channel.origin, channel.value, channel.writes) == ("unfolded", None, (["a"], ["b"], ["c"]))
    assert "--reducer log=package.module:function" in channel.problem
    [_, channel] = shown(saver, reducers={"log": extend}).channels
    assert (channel.origin, channel.value) == ("folded", ["a", "b", "c"])
    [_, channel] = shown(saver, reducers={"log": lambda value, writes: 1 // 0}).channels
    assert (channel.origin, channel.problem) == (
        "unfolded",
        "the reducer failed: ZeroDivisionError: integer division or modulo by zero",
    )


@pytest.mark.parametrize(
    ("channel", "write", "folds"),
    [
        ("notes", ["text"], False),
        ("notes", [{"role": "user", "content": "x"}], False),
        ("messages", [{"role": "user", "content": "x"}], True),
        ("messages", ["text"], False),
        ("notes", [HumanMessage("x"), "text"], True),
        ("notes", [HumanMessage("x"), 1], False),
    ],
)
def test_only_messages_are_taken_for_messages(
    saver: DeltaSaver, puts: Puts, channel: str, write: Any, folds: bool
) -> None:
    counters = {"counters_since_delta_snapshot": {channel: [1, 1]}}
    puts.step(puts.put(None, {}), channel, write, metadata=counters)
    assert (shown(saver).channels[0].origin == "folded") is folds


def test_an_object_of_a_class_that_is_not_loaded_stays_closed(saver: DeltaSaver, puts: Puts, gone_class: Any) -> None:
    first = puts.put(None, {"tickets": [gone_class(1, "a"), "plain"], "one": gone_class(2, "b"), "fine": 3})
    puts.write(first, [("one", gone_class(3, "c"))])
    del sys.modules["gone_module"]
    view = shown(saver)
    found = values(view)
    assert found["fine"] == 3
    assert found["tickets"][1] == "plain"
    closed = found["one"]
    assert isinstance(closed, Unopened)
    assert (closed.type_name, closed.value) == ("gone_module.Ticket", {"number": 2, "title": "b"})
    assert "not a data class of a loaded module" in closed.reason
    assert {each.channel: each.problem for each in view.channels} == {
        "tickets": "not opened: gone_module.Ticket",
        "one": "not opened: gone_module.Ticket",
        "fine": "",
    }
    assert isinstance(view.writes[0].value, Unopened)
    text = json.dumps(view.as_json())
    assert '"unopened": "gone_module.Ticket"' in text
    second = puts.put(first, {"one": 1})
    assert [each.channel for each in compared(saver, first, second).channels] == ["one"]


def test_a_delta_channel_with_closed_writes_is_not_folded(saver: DeltaSaver, puts: Puts, gone_class: Any) -> None:
    puts.step(puts.put(None, {}), "log", [gone_class(1, "a")], metadata=COUNTERS)
    del sys.modules["gone_module"]
    [channel] = shown(saver, reducers={"log": extend}).channels
    assert (channel.origin, channel.problem) == ("unfolded", "not opened: gone_module.Ticket")


def test_messages_in_all_forms() -> None:
    call: Any = {"name": "look", "args": {"x": 1}, "id": "c1", "type": "tool_call"}
    forms: tuple[Any, ...] = (
        AIMessage("hi", id="1", tool_calls=[call]),
        Unopened(
            "langchain_core.messages.ai.AIMessage", {"type": "ai", "content": "hi", "id": "1", "tool_calls": [call]}
        ),
        {"type": "ai", "content": [{"type": "text", "text": "hi"}], "id": "1", "tool_calls": [call]},
        {
            "role": "assistant", "content": "hi", "id": "1",
            "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": '{"x": 1}'}}],
        },
    )  # fmt: skip
    for value in forms:
        message = message_of(value)
        assert message is not None
        assert (message.role, message.text, message.message_id) == ("ai", "hi", "1")
        assert [(each.name, each.arguments, each.call_id) for each in message.calls] == [("look", '{"x": 1}', "c1")]
    tool = message_of(ToolMessage([{"type": "image", "url": "u"}, "text"], tool_call_id="c", name="n", status="error"))
    assert tool is not None
    assert (tool.role, tool.text, tool.name, tool.answers, tool.status) == ("tool", "[image]\ntext", "n", "c", "error")
    others: tuple[Any, ...] = (
        "text",
        1,
        None,
        [],
        {},
        {"content": 1},
        {"role": "x", "content": ""},
        {"role": ["user"], "content": ""},
    )
    assert [message_of(value) for value in others] == [None] * len(others)


def test_differences(saver: DeltaSaver, puts: Puts) -> None:
    messages = [HumanMessage(str(number), id=str(number)) for number in range(6)]
    first = puts.put(
        None,
        {
            "messages": messages,
            "log": ["a", "b", "c", "d"],
            "files": {"x": 1, "y": 2},
            "n": 1,
            "old": [1],
            "same": {"a": []},
        },
    )
    edited = [*messages[:2], messages[2].model_copy(update={"content": "two"}), *messages[4:], AIMessage("new", id="9")]
    second = puts.put(
        first,
        {
            "messages": edited,
            "log": ["a", "c", "d", "e"],
            "files": {"y": 3, "z": 4},
            "n": 1.0,
            "old": NOTHING,
            "new": [2],
            "same": {"a": []},
        },
    )
    found = {each.channel: (each.how, list(each.items)) for each in compared(saver, first, second).channels}
    assert found == {
        "messages": (
            "changed",
            [
                ItemDifference("removed", 3, messages[3], None),
                ItemDifference("changed", 2, messages[2], edited[2]),
                ItemDifference("added", 5, None, edited[5]),
            ],
        ),
        "log": ("changed", [ItemDifference("removed", 1, "b", None), ItemDifference("added", 3, None, "e")]),
        "files": (
            "changed",
            [
                ItemDifference("removed", "x", 1, None),
                ItemDifference("changed", "y", 2, 3),
                ItemDifference("added", "z", None, 4),
            ],
        ),
        "n": ("changed", [ItemDifference("changed", None, 1, 1.0)]),
        "old": ("removed", [ItemDifference("removed", None, [1], None)]),
        "new": ("added", [ItemDifference("added", None, None, [2])]),
    }
    assert compared(saver, first, first).channels == ()
    reverse = compared(saver, second, first)
    assert (reverse.first, reverse.second, len(reverse.channels)) == (second, first, 6)


def test_another_order_is_a_difference(saver: DeltaSaver, puts: Puts) -> None:
    messages = [HumanMessage(str(number), id=str(number)) for number in range(3)]
    first = puts.put(None, {"messages": messages, "twice": [1, 1, 2]})
    second = puts.put(first, {"messages": messages[::-1], "twice": [1, 2, 1]})
    for channel in compared(saver, first, second).channels:
        assert channel.how == "changed"
        assert channel.items
    assert len(compared(saver, first, second).channels) == 2


def test_a_list_and_a_dict(saver: DeltaSaver, puts: Puts) -> None:
    first = puts.put(None, {"x": [1]})
    second = puts.put(first, {"x": {"a": 1}})
    assert compared(saver, first, second).channels == (
        ChannelDifference("x", "changed", (ItemDifference("changed", None, [1], {"a": 1}),)),
    )


def test_differences_of_delta_channels(saver: DeltaSaver, puts: Puts) -> None:
    first = puts.put(None, {"messages": _DeltaSnapshot([HumanMessage("a", id="1")]), "log": NOTHING}, metadata=COUNTERS)
    second = puts.step(first, "messages", [AIMessage("b", id="2")], metadata=COUNTERS)
    third = puts.step(second, "log", ["x"], metadata=COUNTERS)
    [messages] = compared(saver, first, second).channels
    assert messages.items == (ItemDifference("added", 1, None, AIMessage("b", id="2")),)
    [log] = compared(saver, second, third).channels
    assert (log.channel, log.how, log.items) == ("log", "unknown", ())
    assert "its reducer is not known" in log.problem
    [log] = compared(saver, second, third, reducers={"log": extend}).channels
    assert (log.how, log.items[0].after) == ("added", ["x"])


def test_any_loop_may_ask(puts: Puts) -> None:
    """A saver opened by a plain `with` is looked at from loops of other threads."""
    puts.put(None, {"n": 1})
    assert isinstance(puts.saver, DeltaSaver)
    assert [values(shown(puts.saver)) for _ in range(2)] == [{"n": 1}] * 2
    assert shown(puts.saver, at=uuid_of(1)).checkpoint_id == uuid_of(1)
