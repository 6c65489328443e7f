"""The history of DeltaChannels through real graphs: forks, updates, prunes, copies, channels that change their kind."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import Command, StateUpdate, interrupt
from typing_extensions import TypedDict

from deltastore import DeltaSaver

Durabilities = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
typed_dict: Any = TypedDict  # its fields are computed here, which a type checker does not allow
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def append_all(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


def delta(frequency: int) -> Any:
    """A log that is a DeltaChannel."""
    return Annotated[list, DeltaChannel(append_all, snapshot_frequency=frequency)]


ordinary: Any = Annotated[list, operator.add]


def graph_of(saver: Any, channel: Any, *, steps: int = 1, **nodes: Callable[[Any], Any]) -> Any:
    """A graph whose state is one log; without nodes, `steps` nodes that each append one entry."""
    schema = typed_dict("State", {"log": channel, "quiet": delta(2)})
    names = {f"n{number}": _noting(number) for number in range(steps)}
    builder: Any = StateGraph(schema)
    previous = START
    for name, node in (nodes or names).items():
        builder.add_node(name, node)
        builder.add_edge(previous, name)
        previous = name
    return builder.compile(checkpointer=saver)


def _noting(number: int) -> Callable[[Any], Any]:
    return lambda state: {"log": [f"n{number} saw {len(state['log'])}"]}


def log(graph: Any, config: Any = CONFIG) -> list[Any]:
    return graph.get_state(config).values.get("log", [])  # type: ignore[no-any-return]


def logs(graph: Any, config: Any = CONFIG) -> list[list[Any]]:
    return [each.values.get("log", []) for each in graph.get_state_history(config)]


def chat(saver: Any, channel: Any) -> Any:
    """A chat whose answers are numbered."""
    schema = typed_dict("Chat", {"messages": channel})
    builder: Any = StateGraph(schema)
    builder.add_node(
        "agent", lambda state: {"messages": [AIMessage(f"A{len(state['messages'])}", id=f"{len(state['messages'])}")]}
    )
    builder.add_edge(START, "agent")
    return builder.compile(checkpointer=saver)


def contents(graph: Any, config: Any = CONFIG) -> list[str]:
    return [message.content for message in graph.get_state(config).values["messages"]]


reduce_messages: Any = _messages_delta_reducer
CHANNELS = {
    "add_messages": Annotated[list, add_messages],
    "delta 1": Annotated[list, DeltaChannel(reduce_messages, snapshot_frequency=1)],
    "delta 3": Annotated[list, DeltaChannel(reduce_messages, snapshot_frequency=3)],
    "delta 50": Annotated[list, DeltaChannel(reduce_messages, snapshot_frequency=50)],
}


@Durabilities
@pytest.mark.parametrize("kind", CHANNELS)
def test_a_run_from_an_old_checkpoint_does_not_see_the_branch_it_left(
    saver: DeltaSaver, kind: str, durability: Any, forget: Callable[[], None]
):
    """F06: regenerate an answer; every later read shows the new branch, and by id the old one."""
    graph = chat(saver, CHANNELS[kind])

    def say(text: str, config: Any = CONFIG) -> Any:
        return graph.invoke({"messages": [HumanMessage(text, id=text)]}, config, durability=durability)

    say("h1")
    head_a = graph.get_state(CONFIG).config
    say("h2")
    head_b = graph.get_state(CONFIG).config
    live = say("h2b", head_a)
    head_c = graph.get_state(CONFIG).config
    assert [message.content for message in live["messages"]] == ["h1", "A1", "h2b", "A3"]
    for _ in range(2):
        assert contents(graph) == ["h1", "A1", "h2b", "A3"]
        assert contents(graph, head_b) == ["h1", "A1", "h2", "A3"]
        assert contents(graph, head_a) == ["h1", "A1"]
        forget()
    say("h3b")
    say("h3", head_b)
    say("fork of a fork", head_c)
    forget()
    assert contents(graph) == ["h1", "A1", "h2b", "A3", "fork of a fork", "A5"]
    assert contents(graph, head_c) == ["h1", "A1", "h2b", "A3"]
    lengths = {len(each.values.get("messages", [])) for each in graph.get_state_history(CONFIG)}
    assert max(lengths) == 6


@pytest.mark.parametrize("frequency", [1, 3, 50])
def test_updates_on_old_checkpoints_keep_both_branches_apart(
    saver: DeltaSaver, frequency: int, forget: Callable[[], None]
):
    graph = graph_of(saver, delta(frequency), steps=2)
    graph.invoke({"log": ["first"]}, CONFIG)
    old = graph.get_state(CONFIG).config
    graph.invoke({"log": ["second"]}, CONFIG)
    new = graph.get_state(CONFIG).config
    branch = graph.update_state(old, {"log": ["updated"]}, as_node="n1")
    forget()
    assert log(graph, old) == ["first", "n0 saw 1", "n1 saw 2"]
    assert log(graph, branch) == [*log(graph, old), "updated"] == log(graph)
    assert log(graph, new) == [*log(graph, old), "second", "n0 saw 4", "n1 saw 5"]
    bulk = graph.bulk_update_state(
        old,
        [
            [StateUpdate({"log": ["b1"]}, "n0")],
            [StateUpdate({"log": ["b2"]}, "n1"), StateUpdate({"log": ["b3"]}, "n0")],
        ],
    )
    forget()
    assert log(graph, bulk) == [*log(graph, old), "b1", "b2", "b3"]
    again = graph.update_state(branch, {"log": ["fork of a fork"]}, as_node="n1")
    assert log(graph, again) == [*log(graph, old), "updated", "fork of a fork"]
    assert log(graph, branch) == [*log(graph, old), "updated"]
    assert log(graph, new) == [*log(graph, old), "second", "n0 saw 4", "n1 saw 5"]


@pytest.mark.parametrize("frequency", [1, 3, 50])
def test_a_fork_in_a_subgraph_keeps_both_branches_apart(saver: DeltaSaver, frequency: int, forget: Callable[[], None]):
    inner = graph_of(
        None,
        delta(frequency),
        ask=lambda state: {"log": [f"asked at {len(state['log'])}"]},
        answer=lambda state: {"log": [interrupt("?")]},
    )
    graph = graph_of(saver, delta(frequency), before=_noting(0), inner=inner, after=_noting(1))
    graph.invoke({"log": ["in"]}, CONFIG)
    paused = graph.get_state(CONFIG).config
    first = graph.invoke(Command(resume="one"), CONFIG)
    second = graph.invoke(Command(resume="two"), paused)
    third = graph.invoke(Command(resume="three"), paused)
    forget()
    stock = InMemorySaver()
    twin = graph.copy(update={"checkpointer": stock})
    twin.invoke({"log": ["in"]}, CONFIG)
    twin_paused = twin.get_state(CONFIG).config
    assert first == twin.invoke(Command(resume="one"), CONFIG)
    assert second == twin.invoke(Command(resume="two"), twin_paused)
    assert third == twin.invoke(Command(resume="three"), twin_paused)
    assert log(graph) == third["log"]
    assert logs(graph) == logs(twin)


@Durabilities
@pytest.mark.parametrize("frequency", [1, 2, 5, 50])
def test_what_is_read_equals_what_was_live_after_every_run(
    saver: DeltaSaver, frequency: int, durability: Any, forget: Callable[[], None]
):
    """F23: six runs of three super-steps, one of which is interrupted."""

    def middle(state: Any) -> Any:
        return {"log": [interrupt("value?")]} if "stop" in state["log"][-3:] else {"log": ["middle"], "quiet": ["q"]}

    graph = graph_of(saver, delta(frequency), start=_noting(0), middle=middle, end=_noting(1))
    for turn in range(6):
        live = graph.invoke({"log": ["stop" if turn == 3 else f"turn {turn}"]}, CONFIG, durability=durability)
        if "__interrupt__" in live:
            forget()
            live = graph.invoke(Command(resume="given", update={"log": ["added"]}), CONFIG, durability=durability)
        assert log(graph) == live["log"]
        forget()
        assert log(graph) == live["log"]
    assert len(log(graph)) == 6 * 4 + 1
    assert log(graph).count("given") == 1


@Durabilities
def test_a_plain_channel_becomes_a_delta_channel_and_a_plain_one_again(
    saver: DeltaSaver, durability: Any, forget: Callable[[], None]
):
    kinds = [ordinary, delta(3), delta(50), ordinary, delta(1), ordinary]
    expected: list[Any] = []
    for number, channel in enumerate(kinds):
        graph = graph_of(saver, channel, steps=2)
        for turn in range(2):
            graph.invoke({"log": [f"{number}.{turn}"]}, CONFIG, durability=durability)
            expected += [f"{number}.{turn}", f"n0 saw {len(expected) + 1}", f"n1 saw {len(expected) + 2}"]
            assert log(graph) == expected
            forget()
        if channel is not ordinary:
            assert log(graph_of(saver, delta(7), steps=2)) == expected
    graph = graph_of(saver, delta(7), steps=2)
    for each in graph.get_state_history(CONFIG):
        found = each.values.get("log", [])
        assert found == expected[: len(found)]


def test_messages_survive_the_change_to_a_delta_channel_and_back(saver: DeltaSaver, forget: Callable[[], None]):
    said: list[str] = []
    for number, kind in enumerate(["add_messages", "delta 3", "add_messages", "delta 50", "delta 1", "add_messages"]):
        graph = chat(saver, CHANNELS[kind])
        graph.invoke({"messages": [HumanMessage(f"h{number}", id=f"h{number}")]}, CONFIG)
        said += [f"h{number}", f"A{len(said) + 1}"]
        forget()
        assert contents(graph) == said


@pytest.mark.parametrize("frequency", [1, 10])
def test_counters_advance_with_updates_and_snapshots_are_stored(saver: DeltaSaver, frequency: int):
    """F08: the first update of a fresh thread stays, and the cadence of snapshots goes on."""
    graph = graph_of(saver, delta(frequency))
    for number in range(60):
        graph.update_state(CONFIG, {"log": [number]}, as_node="n0")
    assert log(graph) == list(range(60))
    found = list(saver.list(CONFIG))
    snapshots = [each for each in found if isinstance(each.checkpoint["channel_values"].get("log"), _DeltaSnapshot)]
    assert len(snapshots) >= 60 // frequency - 1
    for each in found:
        counters: dict[str, Any] = {**each.metadata.get("counters_since_delta_snapshot", {})}
        assert all(type(pair) is list and len(pair) == 2 for pair in counters.values())
        history = saver.get_delta_channel_history(config=each.config, channels=["log"])["log"]
        assert len(history["writes"]) <= max(frequency, 1) + 1
    roots = [each for each in found if each.parent_config is None]
    assert len(roots) == 1


def test_a_quiet_delta_channel_survives_three_hundred_steps(saver: DeltaSaver, forget: Callable[[], None]):
    graph = graph_of(saver, delta(50))
    graph.update_state(CONFIG, {"log": [0], "quiet": ["a"]}, as_node="n0")
    graph.update_state(CONFIG, {"quiet": ["b"]}, as_node="n0")
    for number in range(1, 150):
        graph.invoke({"log": [number]}, CONFIG)
    forget()
    assert graph.get_state(CONFIG).values["quiet"] == ["a", "b"]
    graph.update_state(CONFIG, {"quiet": ["c"]}, as_node="n0")
    assert graph.get_state(CONFIG).values["quiet"] == ["a", "b", "c"]
    assert len(list(saver.list(CONFIG))) > 300


def long_thread(saver: DeltaSaver, thread_id: str) -> tuple[Any, Any]:
    """Two DeltaChannels of different cadence, a subgraph with its own state, an interrupted task in the end."""
    inner = graph_of(True, delta(4), think=_noting(9))

    def think(state: Any) -> Any:
        thoughts = inner.invoke({"log": ["thought"]})["log"]
        return {"log": [thoughts[-1]]}

    graph = graph_of(
        saver,
        delta(10),
        first=lambda state: {"log": [f"first {len(state['log'])}"], "quiet": [len(state["log"])]},
        think=think,
        last=lambda state: {"log": [interrupt("?")]} if "stop" in state["log"] else {"log": ["last"]},
    )
    config: Any = {"configurable": {"thread_id": thread_id}}
    for turn in range(9):
        graph.invoke({"log": [f"turn {turn}"]}, config)
    graph.invoke({"log": ["stop"]}, config)
    return graph, config


def answer(graph: Any, given: Any, config: Any) -> Any:
    """What a run ends with; the ids of interrupts are random."""
    result = graph.invoke(given, config)
    return result["log"], result["quiet"], [each.value for each in result.get("__interrupt__", [])]


def test_pruning_to_the_latest_changes_nothing_that_is_left(saver: DeltaSaver, forget: Callable[[], None]):
    """F07: the head, the resume of its interrupt and further runs equal those of a thread that was not pruned."""
    graph, pruned = long_thread(saver, "pruned")
    _, whole = long_thread(saver, "whole")
    before = len(list(saver.list(pruned)))
    saver.prune(["pruned"], strategy="keep_latest")
    after = list(saver.list(pruned))
    assert len(after) == len({each.config["configurable"]["checkpoint_ns"] for each in after})
    assert len(after) <= before * 0.1
    assert all(each.parent_config is None for each in after)
    forget()
    for _ in range(2):
        assert graph.get_state(pruned).values == graph.get_state(whole).values
        assert graph.get_state(pruned).next == graph.get_state(whole).next
    assert answer(graph, Command(resume="go"), pruned) == answer(graph, Command(resume="go"), whole)
    for turn in range(3):
        given = {"log": [f"more {turn}"], "quiet": [turn]}
        assert answer(graph, given, pruned) == answer(graph, given, whole)
        forget()
        assert graph.get_state(pruned).values == graph.get_state(whole).values
        saver.prune(["pruned"])


def test_a_copy_is_the_same_thread_and_independent_of_the_first(saver: DeltaSaver, forget: Callable[[], None]):
    """F29: every checkpoint, the pending interrupt and the forks are there; later runs and deletions don't leak."""
    graph, source = long_thread(saver, "source")
    old = list(graph.get_state_history(source))[20].config
    graph.update_state(old, {"log": ["fork"]}, as_node="first")
    saver.copy_thread("source", "copy")
    copy: Any = {"configurable": {"thread_id": "copy"}}
    places = [each.config["configurable"] for each in saver.list({"configurable": {"thread_id": "source"}})]
    assert len(places) > 40
    forget()
    for place in places:
        if place["checkpoint_ns"] == "":
            same = {"configurable": {**place, "thread_id": "copy"}}
            assert graph.get_state({"configurable": place}).values == graph.get_state(same).values
    assert answer(graph, Command(resume="go"), copy) == answer(graph, Command(resume="go"), source)
    assert answer(graph, {"log": ["turn"]}, copy) == answer(graph, {"log": ["turn"]}, source)
    expected = log(graph, copy)
    graph.invoke({"log": ["only in the source"]}, source)
    saver.delete_thread("source")
    forget()
    assert log(graph, copy) == expected
    assert graph.get_state(source).values == {}


@pytest.mark.parametrize("frequency", [1, 3, 50])
def test_a_copied_checkpoint_has_the_state_of_its_original(
    saver: DeltaSaver, frequency: int, forget: Callable[[], None]
):
    """LangGraph puts a copy under the original's parent, names no channel as new and keeps all versions."""
    graph = graph_of(saver, delta(frequency), steps=2)
    for turn in range(3):
        graph.invoke({"log": [f"turn {turn}"], "quiet": [turn]}, CONFIG)
    for each in list(graph.get_state_history(CONFIG)):
        copied = graph.update_state(each.config, None, as_node="__copy__")
        forget()
        assert graph.get_state(copied).values == graph.get_state(each.config).values


@pytest.mark.parametrize("frequency", [1, 3, 50])
def test_a_checkpoint_whose_parent_is_gone_can_be_copied(saver: DeltaSaver, frequency: int, forget: Callable[[], None]):
    """Its copy has no parent either: the state of a DeltaChannel comes from the original, found by its version."""
    graph = graph_of(saver, delta(frequency), steps=2)
    for turn in range(3):
        graph.invoke({"log": [f"turn {turn}"], "quiet": [turn]}, CONFIG)
    expected = graph.get_state(CONFIG).values
    saver.prune(["t"])
    copied = graph.update_state(CONFIG, None, as_node="__copy__")
    forget()
    assert graph.get_state(copied).values == expected
    graph.invoke({"log": ["on"]}, CONFIG)
    assert log(graph) == [*expected["log"], "on", "n0 saw 10", "n1 saw 11"]


@pytest.mark.parametrize("frequency", [1, 3, 50])
@pytest.mark.parametrize("deleted", [0, 1, 2, 3, 4])
def test_deleting_a_run_changes_no_state_of_the_others(
    saver: DeltaSaver, frequency: int, deleted: int, forget: Callable[[], None]
):
    """F30: whichever run it is, also the one that wrote the only anchor."""
    graph = graph_of(saver, delta(frequency), steps=2)
    for turn in range(5):
        config: Any = {**CONFIG, "metadata": {"run_id": f"run {turn}"}}
        graph.invoke({"log": [f"turn {turn}"], "quiet": [turn]}, config)
    before = {
        each.config["configurable"]["checkpoint_id"]: each
        for each in graph.get_state_history(CONFIG)
        if each.metadata["run_id"] != f"run {deleted}"
    }
    saver.delete_for_runs([f"run {deleted}"])
    forget()
    after = {each.config["configurable"]["checkpoint_id"]: each for each in graph.get_state_history(CONFIG)}
    assert after.keys() == before.keys()
    for checkpoint_id, each in after.items():
        assert each.values == before[checkpoint_id].values
    graph.invoke({"log": ["next"]}, CONFIG)
    assert log(graph)[-3] == "next"
