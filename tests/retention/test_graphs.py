"""Graphs go on after retention as their twins do that were left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from operator import add
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from deltastore import DeltaSaver, RetentionPolicy, RetentionRule
from deltastore.verification import verify_threads
from tests.retention.trees import rows_of, seen

HEADS = RetentionPolicy((RetentionRule(keep_last=1),), grace_seconds=0)
LAST = RetentionPolicy((RetentionRule(keep_last=3),), grace_seconds=0)


def join(state: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(state or []), *(item for write in writes for item in write)]


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], DeltaChannel(join, snapshot_frequency=7)]
    total: Annotated[int, add]


def answer(state: State) -> dict[str, Any]:
    number = len(state["messages"])
    return {"messages": [AIMessage(f"answer {number}", id=f"a{number}")], "log": [f"answered {number}"], "total": 1}


def ask(state: State) -> dict[str, Any]:
    return {"log": [f"asked: {interrupt('may I?')}"], "total": 10}


def graph_of(saver: DeltaSaver) -> Any:
    inner = StateGraph(State).add_node("inner answer", answer).add_edge(START, "inner answer")
    outer = StateGraph(State).add_node("answer", answer).add_node("nested", inner.compile(checkpointer=True))
    outer.add_node("ask", ask)
    outer.add_edge(START, "answer").add_edge("answer", "nested").add_edge("nested", "ask")
    return outer.compile(checkpointer=saver)


def config(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def turn(graph: Any, name: str, number: int) -> None:
    graph.invoke({"messages": [HumanMessage(f"question {number}", id=f"h{number}")]}, config(name))
    graph.invoke(Command(resume=f"yes {number}"), config(name))


def states(graph: Any, name: str) -> Any:
    found = graph.get_state(config(name), subgraphs=True)
    return found.values, found.next, [each.value for task in found.tasks for each in task.interrupts]


@pytest.mark.parametrize("policy", [HEADS, LAST], ids=["heads", "last 3"])
def test_a_graph_goes_on_as_its_twin_does(saver: DeltaSaver, policy: RetentionPolicy) -> None:
    graph = graph_of(saver)
    for name in ("kept", "pruned"):
        for number in range(4):
            turn(graph, name, number)
        graph.invoke({"messages": [HumanMessage("last", id="last")]}, config(name))
    saver.pin("kept")
    for number in range(4, 7):
        before = seen(saver, "pruned")
        report = saver.retain(policy)
        after = seen(saver, "pruned")
        assert report.checkpoints == len(before) - len(after) > 0
        assert after == {key: before[key] for key in after}
        assert states(graph, "pruned") == states(graph, "kept")
        for name in ("kept", "pruned"):
            graph.invoke(Command(resume="yes"), config(name))
            turn(graph, name, number)
            graph.invoke({"messages": [HumanMessage("more", id=f"more {number}")]}, config(name))
        assert states(graph, "pruned") == states(graph, "kept")
    found = saver._bridge.run(lambda engine: verify_threads(saver))
    assert found.is_sound


def test_what_stays_can_be_gone_back_to(saver: DeltaSaver) -> None:
    graph = graph_of(saver)
    for number in range(3):
        turn(graph, "t", number)
    history = list(graph.get_state_history(config("t")))
    saver.retain(RetentionPolicy((RetentionRule(keep_last=5),), grace_seconds=0))
    left = list(graph.get_state_history(config("t")))
    assert [each.values for each in left] == [each.values for each in history[:5]]
    again = graph.invoke(None, left[-1].config)
    assert len(again["messages"]) >= len(left[-1].values["messages"])
    graph.update_state(left[2].config, {"log": ["updated"]}, as_node="ask")
    assert graph.get_state(config("t")).values["log"][-1] == "updated"


def test_an_encrypted_thread(database_dsn: str) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    with DeltaSaver.from_conn_string(database_dsn, serde=serde) as saver:
        graph = graph_of(saver)
        for number in range(3):
            turn(graph, "t", number)
        before = seen(saver, "t")
        rules = RetentionRule(filter={"source": "input"}, keep_all=True), RetentionRule(keep_last=2)
        report = saver.retain(RetentionPolicy(rules, grace_seconds=0))
        after = seen(saver, "t")
        assert report.rules[1].checkpoints == len(before) - len(after) > 5
        assert after == {key: before[key] for key in after}


def test_a_whole_conversation_that_is_idle(saver: DeltaSaver) -> None:
    graph = graph_of(saver)
    turn(graph, "t", 0)
    policy = RetentionPolicy((RetentionRule(idle_seconds=86_400),))
    assert saver.retain(policy).deleted_threads == 0
    assert saver.retain(policy, now=datetime.now(UTC) + timedelta(days=2)).deleted_threads == 1
    assert rows_of(saver, "t") is None
    turn(graph, "t", 0)
    assert len(graph.get_state(config("t")).values["messages"]) == 3
