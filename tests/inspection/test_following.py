"""Next nodes, compared with what LangGraph says with the graph at hand."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from deltastore import DeltaSaver
from deltastore.inspection import history, show


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def node(name: str) -> Any:
    def run(state: State) -> dict[str, Any]:
        return {"log": [name]}

    return run


def chain(builder: StateGraph[Any]) -> None:
    builder.add_node("a", node("a"))
    builder.add_node("b", node("b"))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", END)


def fan(builder: StateGraph[Any]) -> None:
    """Two branches of different length that meet in a join, then a deferred node."""
    for name in ("a", "b", "b2", "c"):
        builder.add_node(name, node(name))
    builder.add_node("last", node("last"), defer=True)
    builder.add_edge(START, "a")
    builder.add_edge(START, "b")
    builder.add_edge("b", "b2")
    builder.add_edge(["a", "b2"], "c")
    builder.add_edge("c", "last")
    builder.add_edge("a", "last")


def sends(builder: StateGraph[Any]) -> None:
    builder.add_node("split", node("split"))
    builder.add_node("work", node("work"))
    builder.add_edge(START, "split")
    builder.add_conditional_edges("split", lambda state: [Send("work", state), Send("work", {"log": ["x" * 3000]})])


def asking(builder: StateGraph[Any]) -> None:
    def ask(state: State) -> dict[str, Any]:
        return {"log": [interrupt("well?")]}

    builder.add_node("ask", ask)
    builder.add_node("beside", node("beside"))
    builder.add_edge(START, "ask")
    builder.add_edge(START, "beside")


def asking_each(builder: StateGraph[Any]) -> None:
    def ask(state: State) -> dict[str, Any]:
        return {"log": [interrupt(state["log"])]} if state["log"] == ["b"] else {"log": ["done"]}

    builder.add_node("split", node("split"))
    builder.add_node("ask", ask)
    builder.add_node("other", node("other"))
    builder.add_edge(START, "split")
    targets = [Send("other", {"log": []}), Send("ask", {"log": ["a"]}), Send("ask", {"log": ["b"]})]
    builder.add_conditional_edges("split", lambda _: targets)


def looping(builder: StateGraph[Any]) -> None:
    def go(state: State) -> Command[Any]:
        return Command(update={"log": ["go"]}, goto=END if len(state["log"]) > 5 else "go")

    builder.add_node("go", go, destinations=("go", END))
    builder.add_edge(START, "go")


def test_the_nodes_of_sends(saver: DeltaSaver) -> None:
    builder: StateGraph[Any] = StateGraph(State)
    asking_each(builder)
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"log": []}, config)
    view = asyncio.run(show(saver, "t"))
    assert sorted((str(each.node), each.channel) for each in view.writes) == [
        ("ask", "__interrupt__"),
        ("ask", "log"),
        ("other", "log"),
    ]
    assert view.next == graph.get_state(config).next


@pytest.mark.parametrize("build", [chain, fan, sends, asking, looping])
def test_what_langgraph_says(saver: DeltaSaver, build: Any) -> None:
    builder: StateGraph[Any] = StateGraph(State)
    build(builder)
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"log": []}, config)

    async def collect() -> list[tuple[str, ...]]:
        return [each.next async for each in history(saver, "t")]

    expected = [tuple(sorted(each.next)) for each in graph.get_state_history(config)]
    assert [tuple(sorted(each)) for each in asyncio.run(collect())] == expected
    present = asyncio.run(show(saver, "t"))
    assert present.next == graph.get_state(config).next
    assert present.status == ("interrupted" if build is asking else "")
    if build is asking:
        assert [(each.node, each.channel) for each in present.writes] == [("ask", "__interrupt__"), ("beside", "log")]
        graph.invoke(Command(resume="yes"), config)
        assert asyncio.run(show(saver, "t")).status == ""


def test_the_functional_api(saver: DeltaSaver) -> None:
    @task
    def double(number: int) -> int:
        return 2 * number

    @entrypoint(checkpointer=saver)
    def work(number: int, *, previous: int | None = None) -> Any:
        result = double(number).result() + (previous or 0)
        return entrypoint.final(value=result, save=result)

    config: Any = {"configurable": {"thread_id": "t"}}
    assert [work.invoke(number, config) for number in (1, 2)] == [2, 6]
    view = asyncio.run(show(saver, "t"))
    assert {each.channel: each.value for each in view.channels} == {"__end__": 6, "__previous__": 6}
    assert view.next == work.get_state(config).next == ()
