"""A run whose thread is deleted between any two of its saves does not bring it back."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph

from deltastore import DeltaSaver, ThreadDeletedError
from tests.support.puts import NOTHING, Puts

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def join(state: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(state or []), *(item for write in writes for item in write)]


class State(TypedDict):
    log: Annotated[list[str], DeltaChannel(join)]
    count: int


def graph_of(saver: DeltaSaver, delete: Any) -> Any:
    """Three steps, the second one a subgraph; `delete` is told each node."""

    def node(name: str) -> Any:
        def work(state: State) -> dict[str, Any]:
            delete(name)
            return {"log": [name], "count": state["count"] + 1}

        return work

    inner = StateGraph(State).add_node("inner", node("inner")).add_node("inner 2", node("inner 2"))
    inner.add_edge(START, "inner").add_edge("inner", "inner 2")
    outer = StateGraph(State).add_node("first", node("first")).add_node("middle", inner.compile())
    outer.add_node("last", node("last"))
    outer.add_edge(START, "first").add_edge("first", "middle").add_edge("middle", "last")
    return outer.compile(checkpointer=saver)


def structure(saver: DeltaSaver, thread_id: str = "t") -> Any:
    engine = saver._bridge.engine

    async def rows(engine: Any) -> Any:
        from deltastore.conversion import validate

        async with engine.storage.view(validate.thread(thread_id).key) as view:
            return await view.rows()

    assert engine is not None
    return saver._bridge.run(rows)


@pytest.mark.parametrize("where", ["first", "inner", "inner 2", "last"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_run_does_not_bring_its_thread_back(saver: DeltaSaver, durability: Any, where: str) -> None:
    is_on = False

    def delete(name: str) -> None:
        if is_on and name == where:
            saver.delete_thread("t")

    graph = graph_of(saver, delete)
    graph.invoke({"log": ["input"], "count": 0}, CONFIG, durability=durability)
    is_on = True
    with pytest.raises(ThreadDeletedError):
        graph.invoke({"log": ["input"], "count": 0}, CONFIG, durability=durability)
    assert structure(saver) is None
    assert list(saver.list(CONFIG)) == []
    is_on = False
    state = graph.invoke({"log": ["new"], "count": 0}, CONFIG, durability=durability)
    assert state["log"][0] == "new"
    assert graph.get_state(CONFIG).values == state


def test_a_thread_that_begins_anew_during_its_deletion_is_whole(saver: DeltaSaver) -> None:
    """New runs right after the deletion, with writes that may come before their checkpoint."""
    graph = graph_of(saver, lambda name: None)
    for number in range(10):
        state = graph.invoke({"log": [f"run {number}"], "count": 0}, CONFIG, durability="async")
        assert state["log"] == [f"run {number}", "first", *state["log"][2:]]
        assert graph.get_state(CONFIG).values == state
        saver.delete_thread("t")


def test_late_saves_of_every_kind(saver: DeltaSaver) -> None:
    puts = Puts(saver)
    root = puts.put(None, {"a": ["x" * 50]})
    head = puts.put(root, {"a": ["x" * 50, "y"]})
    saver.delete_thread("t")
    with pytest.raises(ThreadDeletedError, match=r"thread 't'.*was deleted"):
        puts.put(head, {"a": ["x" * 50, "y", "z"]})
    with pytest.raises(ThreadDeletedError):
        puts.put(head, {"a": NOTHING})
    with pytest.raises(ThreadDeletedError):
        puts.write(head, [("a", 1)])
    assert structure(saver) is None
    assert saver.undelete_thread("t")
    assert not saver.undelete_thread("t")
    late = puts.put(head, {"a": ["x" * 50, "y", "z"]})
    assert puts.values() == {"a": ["x" * 50, "y", "z"]}
    puts.write(late, [("a", 1)])


def test_pins_of_threads_that_are_not_there(saver: DeltaSaver) -> None:
    with pytest.raises(ValueError, match="no thread 't'"):
        saver.pin("t")
    with pytest.raises(ValueError, match="no thread 't'"):
        saver.unpin("t")
