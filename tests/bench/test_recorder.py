from __future__ import annotations

import copy
import inspect
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph

from bench.recorder import Recorder, timed
from bench.stage import thread_config


class Counts(TypedDict):
    """A list that grows."""

    numbers: Annotated[list[int], lambda left, right: left + right]


def graph_on(saver: Any) -> Any:
    builder = StateGraph(Counts)
    builder.add_node("step", lambda state: {"numbers": [len(state["numbers"])]})
    builder.add_edge(START, "step")
    return builder.compile(checkpointer=saver)


def test_a_timed_saver_looks_like_the_saver():
    plain, saver = InMemorySaver(), timed(InMemorySaver(), Recorder())
    assert isinstance(saver, InMemorySaver)
    for name in ("aput", "aput_writes", "aget_tuple", "aget_delta_channel_history"):
        assert inspect.signature(getattr(saver, name)) == inspect.signature(getattr(plain, name))
    assert "task_path" in inspect.signature(saver.aput_writes).parameters
    assert type(InMemorySaver()) is InMemorySaver


async def test_latencies_and_heads_are_noted():
    recorder = Recorder()
    graph = graph_on(timed(InMemorySaver(), recorder))
    await graph.ainvoke({"numbers": [7]}, thread_config("t"))
    latencies = recorder.take_latencies()
    assert len(latencies["put"]) == 3
    assert len(latencies["get_tuple"]) == 1
    assert recorder.take_latencies() == {}
    state = await graph.aget_state(thread_config("t"))
    assert recorder.head_id("t") == state.config["configurable"]["checkpoint_id"]
    assert len(recorder.saved_ids["t"]) == 3


async def test_copies_of_a_timed_saver_are_timed_too():
    recorder = Recorder()
    clone = copy.copy(timed(InMemorySaver(), recorder))
    clone.serde = JsonPlusSerializer()  # what with_allowlist does, where LangGraph is strict
    assert await clone.aget_tuple(thread_config("t")) is None
    assert list(recorder.take_latencies()) == ["get_tuple"]


async def test_evidence_has_values_as_they_were_put_and_writes_in_time():
    recorder = Recorder()
    graph = graph_on(timed(InMemorySaver(), recorder))
    await graph.ainvoke({"numbers": [1]}, thread_config("t"))
    with recorder.watch(really=True) as evidence:
        await graph.ainvoke({"numbers": [2]}, thread_config("t"))
    assert [item.writes_known for item in evidence] == [True, True, False]
    assert [len(item.writes) for item in evidence] == [2, 1, 0]
    assert all("numbers" in item.channels for item in evidence)
    puts = [item.put for item in evidence if item.put]
    assert [put.metadata["source"] for put in puts] == ['"input"', '"loop"', '"loop"']
    assert [put.parent_id for put in puts] == recorder.saved_ids["t"][2:5]
    with recorder.watch(really=False) as nothing:
        await graph.ainvoke({"numbers": [3]}, thread_config("t"))
    assert nothing == []
