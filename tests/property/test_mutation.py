"""F42: what is stored is what the caller gave at that moment, and what is handed out is the caller's own."""

from __future__ import annotations

import asyncio
import copy
import operator
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from deltastore import DeltaSaver
from tests.support.exact import exact, exact_tuple
from tests.support.puts import NOTHING, Puts


async def test_a_list_that_grows_while_it_is_saved_is_stored_as_it_was(database_dsn: str):
    """Two hundred times, in the loop that goes on with the graph."""
    async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=7) as saver:
        growing: list[Any] = [{"n": -1}]
        parent: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        lengths = {}
        for number in range(200):
            checkpoint: Any = {
                "v": 2,
                "id": f"{number:05}",
                "ts": None,
                "channel_values": {"a": growing},
                "channel_versions": {"a": number},
                "versions_seen": {},
            }
            lengths[number] = copy.deepcopy(growing)
            save = asyncio.ensure_future(saver.aput(parent, checkpoint, {"step": number}, {"a": number}))
            write = asyncio.ensure_future(saver.aput_writes(at(number), [("b", growing)], "task"))
            await asyncio.sleep(0)
            growing.append({"n": number, "late": False})
            growing[number // 2]["late"] = number
            parent = await save
            await write
        for number in (0, 1, 6, 7, 8, 100, 199):
            found = await saver.aget_tuple(at(number))
            assert found is not None
            assert found.checkpoint["channel_values"] == {"a": lengths[number]}
            assert found.pending_writes == [("task", "b", lengths[number])]


def at(number: int) -> Any:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": f"{number:05}"}}


def test_another_thread_that_keeps_appending_breaks_no_save():
    """The stored list is some prefix of what there was."""
    puts = Puts(DeltaSaver.in_memory(snapshot_frequency=5))
    growing: list[str] = []
    stop = threading.Event()

    def append() -> None:
        while not stop.is_set():
            growing.append(f"item {len(growing)}")
            if len(growing) % 50 == 0:
                time.sleep(0.001)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        head = None
        while len(growing) < 2000:
            head = puts.put(head, {"a": growing})
            stored = puts.values(head)["a"]
            assert stored == [f"item {number}" for number in range(len(stored))]
    finally:
        stop.set()
        thread.join()


def changing_meanwhile(change: Callable[[], None]) -> JsonPlusSerializer:
    """Another thread changes the value between its first encoding and what follows."""
    serde: Any = JsonPlusSerializer()
    changes = [change]

    def dumps_typed(value: Any) -> tuple[str, bytes]:
        encoded = JsonPlusSerializer.dumps_typed(serde, value)
        while changes:
            changes.pop()()
        return encoded

    serde.dumps_typed = dumps_typed
    return serde  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["dict", "list", "message"])
def test_a_change_right_after_an_element_was_encoded_is_seen_by_the_next_save(kind: str):
    """Else it would be taken for what was encoded, and never be stored."""
    element: Any = {"dict": {"k": 0}, "list": [0], "message": HumanMessage("0")}[kind]
    changes: dict[str, Callable[[Any], None]] = {
        "dict": lambda value: value.update(k=value["k"] + 1),
        "list": lambda value: value.append(1),
        "message": lambda value: setattr(value, "content", value.content + "1"),
    }
    saver = DeltaSaver.in_memory(serde=changing_meanwhile(lambda: changes[kind](element)))
    puts = Puts(saver)
    root = puts.put(None, {"a": [element]})
    head = puts.put(root, {"a": [element]})
    assert exact(puts.values(head)["a"]) == exact([element])
    assert exact(puts.values(root)["a"]) != exact([element])


def test_a_state_that_was_handed_out_is_the_callers_own():
    """Changing it changes no later load, and no later save of others."""
    puts = Puts(DeltaSaver.in_memory())
    root = puts.put(None, {"a": [{"k": [1]}], "b": {"x": {"y": 1}}, "c": HumanMessage("hi", id="1")})
    puts.write(root, [("a", [{"w": [1]}])])
    head = puts.put(root, {"d": 1}, metadata={"tags": ["a"]})
    last = puts.step(head, "e", [{"h": 1}])
    expected = {each: exact_tuple(puts.found(each)) for each in (root, head, last)}
    history = puts.exact_history(last, "e", "a")
    for each in (root, head, last):
        found: Any = puts.found(each)
        found.checkpoint["channel_values"]["a"][0]["k"].append(2)
        found.checkpoint["channel_values"]["a"].append(3)
        found.checkpoint["channel_values"]["b"]["x"]["y"] = 2
        found.checkpoint["channel_values"]["c"].content = "changed"
        found.checkpoint["channel_versions"]["a"] = 99
        found.checkpoint["versions_seen"]["n"] = {"a": 1}
        found.metadata["tags"] = "changed"
        found.metadata["step"] = 99
        found.config["configurable"]["thread_id"] = "other"
        for _, _, value in found.pending_writes:
            value.append("changed")
    entries: Any = puts.saver.get_delta_channel_history(config=puts.config(last), channels=["e", "a"])
    entries["e"]["writes"][0][2].append("changed")
    entries["a"]["writes"].append("changed")
    assert {each: exact_tuple(puts.found(each)) for each in (root, head, last)} == expected
    assert puts.exact_history(last, "e", "a") == history
    another = puts.put(root, {"d": 2})
    assert exact(puts.values(another)["a"]) == exact([{"k": [1]}])


def test_what_was_given_is_not_changed_and_not_kept():
    puts = Puts(DeltaSaver.in_memory())
    message = HumanMessage("hi")
    value: list[Any] = [message, {"k": [1]}]
    metadata: dict[str, Any] = {"tags": ["a"]}
    root = puts.put(None, {"a": value}, metadata=metadata)
    puts.write(root, [("a", value)])
    assert message.id is None
    assert value == [message, {"k": [1]}]
    value[1]["k"].append(2)
    message.content = "changed"
    metadata["tags"].append("b")
    assert exact(puts.values(root)["a"]) == exact([HumanMessage("hi"), {"k": [1]}])
    assert exact((puts.found(root).pending_writes or [])[0][2]) == exact([HumanMessage("hi"), {"k": [1]}])
    assert puts.found(root).metadata["tags"] == ["a"]  # type: ignore[typeddict-item]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_that_changes_its_state_in_place_is_stored_step_by_step(durability: Any):
    schema = TypedDict("schema", {"log": Annotated[list, operator.add], "cart": dict})  # noqa: UP013
    seen: list[Any] = []

    def node(state: Any) -> Any:
        state["cart"].setdefault("items", []).append(len(state["log"]))
        return {"log": [len(state["log"])], "cart": state["cart"]}

    builder: Any = StateGraph(schema)
    previous = START
    for number in range(5):
        builder.add_node(f"n{number}", node)
        builder.add_edge(previous, f"n{number}")
        previous = f"n{number}"
    graph = builder.compile(checkpointer=DeltaSaver.in_memory(snapshot_frequency=2))
    config: Any = {"configurable": {"thread_id": "t"}}
    result = graph.invoke({"log": [], "cart": {}}, config, durability=durability)
    assert result["cart"] == {"items": [0, 1, 2, 3, 4]}
    seen = [each.values for each in graph.get_state_history(config)]
    assert seen[0] == result
    if durability == "sync":
        assert [len(each["cart"].get("items", [])) for each in seen[:-1]] == [5, 4, 3, 2, 1, 0]


plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.floats(-1, 1), st.text(max_size=2), st.just(-0.0)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=5,
)
messages = st.one_of(
    st.builds(HumanMessage, st.text(max_size=3), additional_kwargs=st.dictionaries(st.sampled_from("ab"), plain)),
    st.builds(
        AIMessage,
        st.text(max_size=3),
        id=st.sampled_from([None, "1"]),
        response_metadata=st.fixed_dictionaries({"m": plain}),
    ),
    st.builds(ToolMessage, st.text(max_size=3), tool_call_id=st.just("c"), artifact=plain),
)
elements = st.one_of(plain, messages)


def containers(value: Any) -> list[Any]:
    """All that can be changed in place inside a value."""
    found = []
    if isinstance(value, list):
        found = [value, *(each for child in value for each in containers(child))]
    elif isinstance(value, dict):
        found = [value, *(each for child in value.values() for each in containers(child))]
    elif isinstance(value, HumanMessage | AIMessage | ToolMessage):
        free = (value.additional_kwargs, value.response_metadata, getattr(value, "artifact", None))
        found = [value, *(each for child in free for each in containers(child))]
    return found


@given(data=st.data())
def test_any_change_in_place_is_seen(data: st.DataObject):
    """Saves of the same objects, changed anywhere in between, by one saver that remembers what it encoded."""
    puts = Puts(DeltaSaver.in_memory(snapshot_frequency=4))
    value = data.draw(st.one_of(st.lists(elements, max_size=4), st.dictionaries(st.sampled_from("kl"), elements)))
    head = None
    for _ in range(data.draw(st.integers(2, 5))):
        places = containers(value)
        if places:
            change(data, data.draw(st.sampled_from(places)))
        expected = exact(copy.deepcopy(value))
        head = puts.put(head, {"a": value})
        assert exact(puts.values(head)["a"]) == expected
        if data.draw(st.booleans()):
            value = puts.values(head)["a"]  # goes on with what was handed out, as LangGraph does
    assert head is not None
    puts.put(head, {"a": NOTHING})
    assert exact(puts.values(head)["a"]) == expected


def change(data: st.DataObject, place: Any) -> None:
    if isinstance(place, list):
        change_list(data, place)
    elif isinstance(place, dict):
        change_dict(data, place)
    else:
        place.content = data.draw(st.text(max_size=2))
        place.id = data.draw(st.sampled_from([None, "1", "2"]))


def change_list(data: st.DataObject, place: list[Any]) -> None:
    match data.draw(st.sampled_from(["append", "replace", "pop", "turn", "swap types"])):
        case "append":
            place.append(data.draw(plain))
        case "replace" if place:
            place[0] = data.draw(plain)
        case "pop" if place:
            place.pop()
        case "turn":
            place.reverse()
        case "swap types" if place:
            place[0] = swapped(place[0])


def change_dict(data: st.DataObject, place: dict[str, Any]) -> None:
    keys = list(place)
    match data.draw(st.sampled_from(["set", "pop", "move", "swap types"])):
        case "set":
            place[data.draw(st.sampled_from("abc"))] = data.draw(plain)
        case "pop" if keys:
            del place[keys[0]]
        case "move" if keys:
            place[keys[0]] = place.pop(keys[0])
        case "swap types" if keys:
            place[keys[0]] = swapped(place[keys[0]])


def swapped(value: Any) -> Any:
    """An equal value of another type, where there is one."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return bool(value) if value in (0, 1) else float(value)
    if isinstance(value, float):
        return -value
    return value
