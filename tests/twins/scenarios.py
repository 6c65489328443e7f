"""Scripts that use everything LangGraph has in ways that a checkpointer can get wrong."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer, add_messages
from langgraph.types import Command, Overwrite, Send, StateUpdate, interrupt
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from tests.twins.running import Run, Script


def append_all(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    """A DeltaChannel's reducer for lists."""
    return [*state, *(item for write in writes for item in write)]


def merge(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return {**left, **right}


def merge_all(state: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A DeltaChannel's reducer for dicts."""
    merged = dict(state)
    for write in writes:
        merged.update(write)
    return merged


class Ordinary(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[Any], operator.add]
    facts: Annotated[dict[str, Any], merge]
    count: NotRequired[int]


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]
    log: Annotated[list[Any], DeltaChannel(append_all, snapshot_frequency=7)]
    facts: Annotated[dict[str, Any], DeltaChannel(merge_all, snapshot_frequency=3)]
    count: NotRequired[int]


Node = Callable[..., Any]


def graph_of(run: Run, nodes: dict[str, Node], edges: Sequence[tuple[str, str]], **compile_options: Any) -> Any:
    """A graph over the ordinary or the delta schema."""
    builder: Any = StateGraph(Delta if run.delta else Ordinary)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for start, end in edges:
        builder.add_edge(start, end)
    return builder.compile(checkpointer=run.saver, **compile_options)


def call(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "args": {"number": number}, "id": f"call-{number}"}


# --- scripts


async def tool_agent(run: Run) -> Any:
    """Three turns of an agent that calls tools."""

    def agent(state: Any) -> Any:
        last = state["messages"][-1]
        number = len(state["messages"])
        if isinstance(last, ToolMessage):
            return {"messages": [AIMessage(f"answer {number} " * 40, id=f"a{number}")], "count": number}
        calls = [call("look", number), call("count", number + 1)]
        return {"messages": [AIMessage("", tool_calls=calls, id=f"c{number}")]}

    def tools(state: Any) -> Any:
        calls = state["messages"][-1].tool_calls
        results = [
            ToolMessage(f"result of {each['name']} " * 90, tool_call_id=each["id"], id=f"t{each['id']}")
            for each in calls
        ]
        return {"messages": results, "log": [each["id"] for each in calls], "facts": {calls[0]["id"]: calls[0]}}

    def route(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    builder: Any = StateGraph(Delta if run.delta else Ordinary)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", END])
    builder.add_edge("tools", "agent")
    graph = builder.compile(checkpointer=run.saver)
    for turn in range(3):
        await run.invoke(graph, {"messages": [HumanMessage(f"question {turn}", id=f"h{turn}")]})
    return graph


async def interrupts(run: Run) -> Any:
    """Interrupts in one node twice and in two nodes at once, resumed by value and by id; a static interrupt."""

    def ask(state: Any) -> Any:
        first = interrupt({"question": "name?", "known": len(state["log"])})
        second = interrupt("age?")
        return {"log": [first, second], "facts": {"name": first}}

    def left(state: Any) -> Any:
        return {"log": [f"left {interrupt('left?')}"]}

    def right(state: Any) -> Any:
        return {"log": [f"right {interrupt('right?')}"]}

    def quiet(state: Any) -> Any:
        return {"log": ["quiet"]}

    def close(state: Any) -> Any:
        return {"messages": [("ai", f"{len(state['log'])} answers")]}

    graph = graph_of(
        run,
        {"ask": ask, "left": left, "right": right, "quiet": quiet, "close": close},
        [(START, "ask"), ("ask", "left"), ("ask", "right"), ("ask", "quiet"), ("left", "close"), ("right", "close"),
         ("quiet", "close"), ("close", END)],
        interrupt_before=["close"],
    )  # fmt: skip
    await run.invoke(graph, {"log": ["start"], "messages": [("human", "hello")]})
    await run.state(graph)
    await run.invoke(graph, Command(resume="ann"))
    await run.invoke(graph, Command(resume=41))
    state = await run.state(graph)
    first, second = [each.id for each in state.interrupts]
    await run.invoke(graph, Command(resume={first: "L"}))
    await run.state(graph)
    await run.invoke(graph, Command(resume={second: "R"}, update={"facts": {"resumed": True}}))
    await run.state(graph)
    await run.invoke(graph, None)
    await run.invoke(graph, {"log": ["again"]})
    return graph


async def updates(run: Run) -> Any:
    """`update_state` on a fresh thread, as nodes, in bulk, on old checkpoints, as a copy, and to clear tasks."""
    graph = graph_of(
        run,
        {"one": lambda state: {"log": ["one"], "count": 1}, "two": lambda state: {"log": [len(state["log"])]}},
        [(START, "one"), ("one", "two"), ("two", END)],
        interrupt_after=["one"],
    )
    await run.update(graph, {"messages": [("human", "fresh")], "log": ["fresh"]}, as_node="one")
    await run.state(graph)
    await run.invoke(graph, {"log": ["in"]})
    await run.update(graph, {"log": ["edited"], "facts": {"a": 1}})
    await run.invoke(graph, None)
    await run.bulk_update(
        graph,
        [
            [StateUpdate({"log": ["bulk 1"], "facts": {"b": [1, 2]}}, as_node="one")],
            [StateUpdate({"log": ["bulk 2"]}, "one"), StateUpdate({"log": ["bulk 3"]}, "two")],
            [StateUpdate({"messages": [("ai", "bulk")]}, as_node="two")],
        ],
    )
    old = await run.history(graph)
    await run.update(graph, {"log": ["on an old one"]}, old[len(old) // 2].config, as_node="one")
    await run.state(graph)
    await run.update(graph, None, old[2].config, as_node="__copy__")
    await run.state(graph)
    await run.invoke(graph, None)
    await run.invoke(graph, {"log": ["more"], "facts": {"c": {"d": None}}})
    await run.update(graph, None, as_node=END)
    await run.state(graph)
    await run.invoke(graph, {"log": ["last"]})
    await run.invoke(graph, None)
    return graph


async def time_travel(run: Run) -> Any:
    """Replays and new runs from old checkpoints, forks of forks, and the head again."""
    graph = graph_of(
        run,
        {
            "agent": lambda state: {"messages": [("ai", f"reply {len(state['messages'])}")], "log": ["agent"]},
            "note": lambda state: {"log": [f"note {len(state['log'])}"], "facts": {str(len(state["log"])): "x" * 60}},
        },
        [(START, "agent"), ("agent", "note"), ("note", END)],
    )
    for turn in range(3):
        await run.invoke(graph, {"messages": [HumanMessage(f"h{turn}", id=f"h{turn}")]})
    trunk = await run.history(graph)
    middle, old = trunk[len(trunk) // 2], trunk[-2]
    await run.invoke(graph, None, middle.config)
    await run.state(graph)
    await run.invoke(graph, {"messages": [HumanMessage("fork", id="f")]}, middle.config)
    fork = await run.history(graph)
    await run.invoke(graph, {"messages": [HumanMessage("fork of fork", id="ff")]}, fork[1].config)
    await run.update(graph, {"log": ["fork by update"]}, old.config, as_node="agent")
    await run.invoke(graph, None)
    deep = await run.history(graph)
    await run.invoke(graph, {"messages": [HumanMessage("deep", id="d")]}, deep[2].config)
    await run.invoke(graph, {"messages": [HumanMessage("on", id="on")]}, trunk[0].config)
    for each in (trunk[0], middle, old, fork[0], deep[1]):
        await run.state(graph, each.config)
    return graph


class Inner(TypedDict):
    log: Annotated[list[Any], operator.add]
    inner: Annotated[list[Any], operator.add]


class InnerDelta(TypedDict):
    log: Annotated[list[Any], DeltaChannel(append_all, snapshot_frequency=3)]
    inner: Annotated[list[Any], DeltaChannel(append_all, snapshot_frequency=4)]


def nested(run: Run, *, own: bool | None) -> Any:
    """Three graphs inside each other; the innermost interrupts. `own` is the checkpointer of the two inner ones."""

    def level(number: int, child: Any = None) -> Any:
        builder: Any = StateGraph(InnerDelta if run.delta else Inner)
        builder.add_node("before", lambda state: {"inner": [f"before {number} {len(state['inner'])}"]})
        builder.add_node("body", child or (lambda state: {"inner": [f"answer {interrupt('deep?')}"]}))
        builder.add_edge(START, "before")
        builder.add_edge("before", "body")
        return builder

    innermost = level(2).compile(checkpointer=own)
    middle = level(1, innermost).compile(checkpointer=own)
    return level(0, middle).compile(checkpointer=run.saver)


async def _nested_calls(run: Run, graph: Any) -> None:
    await run.invoke(graph, {"log": ["first"], "inner": ["i"]})
    paused = await run.state(graph, subgraphs=True)
    inner: Any = paused.tasks[0].state
    deepest: Any = inner.tasks[0].state
    await run.update(graph, {"inner": ["edited"]}, deepest.config)
    await run.state(graph, subgraphs=True)
    await run.invoke(graph, Command(resume="yes"))
    await run.invoke(graph, {"log": ["second"], "inner": []})
    await run.invoke(graph, Command(resume="again"))
    for each in (await run.history(graph))[::2]:
        await run.state(graph, each.config, subgraphs=True)


async def subgraphs(run: Run) -> Any:
    """Subgraphs that share their parent's checkpointer, two levels deep, edited while they are interrupted."""
    graph = nested(run, own=None)
    await _nested_calls(run, graph)
    return graph


async def stateful_subgraphs(run: Run) -> Any:
    """Subgraphs that keep a state of their own between calls."""
    graph = nested(run, own=True)
    await _nested_calls(run, graph)
    return graph


async def forks_in_subgraphs(run: Run) -> Any:
    """Time travel to where a subgraph was interrupted, twice from the same place."""
    graph = nested(run, own=None)
    await run.invoke(graph, {"log": ["first"], "inner": ["i"]})
    paused = await run.state(graph, subgraphs=True)
    await run.invoke(graph, Command(resume="one"))
    await run.invoke(graph, Command(resume="two"), paused.config)
    await run.state(graph)
    await run.invoke(graph, None, paused.config)
    await run.invoke(graph, Command(resume="three"))
    for each in await run.history(graph):
        await run.state(graph, each.config, subgraphs=True)
    return graph


async def map_reduce(run: Run) -> Any:
    """Fifty `Send`s in one super-step, twice."""

    def work(state: Any) -> Any:
        return {"log": [state["item"] * 2], "facts": {str(state["item"]): "done"}}

    builder: Any = StateGraph(Delta if run.delta else Ordinary)
    builder.add_node("plan", lambda state: {"log": ["planned"]})
    builder.add_node("work", work)
    builder.add_node("sum", lambda state: {"count": sum(each for each in state["log"] if isinstance(each, int))})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda state: [Send("work", {"item": n}) for n in range(50)], ["work"])
    builder.add_edge("work", "sum")
    graph = builder.compile(checkpointer=run.saver)
    await run.invoke(graph, {"log": []})
    await run.invoke(graph, {"log": ["more"]})
    return graph


async def failures(run: Run) -> Any:
    """A node that fails twice, and is run again from where it stopped."""
    failed: list[int] = []

    def flaky(state: Any) -> Any:
        if len(failed) < 2:
            failed.append(1)
            raise ValueError(f"failure {len(failed)}")
        return {"log": ["worked"]}

    graph = graph_of(
        run,
        {"fine": lambda state: {"log": ["fine"], "facts": {"fine": 1}}, "flaky": flaky},
        [(START, "fine"), ("fine", "flaky")],
    )
    for given in ({"log": ["in"]}, None):
        try:
            await run.invoke(graph, given)
        except ValueError as error:
            run.results.append(str(error))
        await run.state(graph)
    assert len(failed) == 2
    await run.update(graph, {"log": ["repaired"]}, as_node="fine")
    await run.invoke(graph, None)
    return graph


async def parallel_writers(run: Run) -> Any:
    """Twelve nodes write to one channel in the same super-step, four rounds."""
    names = [f"writer{number}" for number in range(12)]

    def writer(name: str) -> Node:
        return lambda state: {"log": [name, len(state["log"])], "facts": {name: len(state["log"])}}

    graph = graph_of(
        run,
        {**{name: writer(name) for name in names}, "end": lambda state: {"count": len(state["log"])}},
        [*((START, name) for name in names), *((name, "end") for name in names), ("end", END)],
    )
    for turn in range(4):
        await run.invoke(graph, {"log": [f"turn {turn}"]})
    return graph


async def overwrites(run: Run) -> Any:
    """`Overwrite` from a node, from an update and from the input."""

    def reset(state: Any) -> Any:
        if len(state["log"]) > 5:
            return {"log": Overwrite([f"reset at {len(state['log'])}"]), "facts": Overwrite({"only": 1})}
        return {"log": ["kept"]}

    graph = graph_of(
        run,
        {
            "fill": lambda state: {"log": [f"fill {len(state['log'])}"], "facts": {"f": len(state["log"])}},
            "reset": reset,
        },
        [(START, "fill"), ("fill", "reset")],
    )
    for turn in range(4):
        await run.invoke(graph, {"log": [turn]})
    await run.update(graph, {"log": Overwrite(["by update"])}, as_node="fill")
    await run.invoke(graph, None)
    await run.invoke(graph, {"log": Overwrite([]), "facts": {"g": 1}})
    await run.invoke(graph, {"log": ["after"]})
    return graph


async def removals(run: Run) -> Any:
    """Messages replaced by id, removed by id and all removed."""

    def trim(state: Any) -> Any:
        messages = state["messages"]
        if len(messages) > 8:
            return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), ("system", "summary"), messages[-1]]}
        if len(messages) > 5:
            return {"messages": [RemoveMessage(id=messages[1].id), HumanMessage("edited", id=messages[0].id)]}
        return {"messages": [("ai", "fine")]}

    graph = graph_of(
        run,
        {"talk": lambda state: {"messages": [("ai", f"talk {len(state['messages'])} " * 30)]}, "trim": trim},
        [(START, "talk"), ("talk", "trim")],
    )
    for turn in range(6):
        await run.invoke(graph, {"messages": [("human", f"turn {turn}")]})
    return graph


async def messages_without_ids(run: Run) -> Any:
    """Messages as objects, dicts, tuples and texts without ids; ids must stay what they are when first seen."""
    graph = graph_of(
        run,
        {
            "objects": lambda state: {"messages": [AIMessage("object"), HumanMessage("other")]},
            "dicts": lambda state: {"messages": [{"role": "assistant", "content": "dict"}]},
            "tuples": lambda state: {"messages": [("ai", "tuple")]},
        },
        [(START, "objects"), ("objects", "dicts"), ("dicts", "tuples")],
    )
    first = await run.invoke(graph, {"messages": [{"role": "user", "content": "hi"}, ("human", "there")]})
    second = await run.invoke(graph, {"messages": "text alone"})
    ids = [message.id for message in second["messages"]]
    assert ids[: len(first["messages"])] == [message.id for message in first["messages"]]
    assert None not in ids
    for _ in range(3):
        again = await run.state(graph)
        assert [message.id for message in again.values["messages"]] == ids
    await run.update(graph, {"messages": [RemoveMessage(id=ids[3])]}, as_node="tuples")
    left = await run.state(graph)
    assert [message.id for message in left.values["messages"]] == [*ids[:3], *ids[4:]]
    return graph


class Profile(BaseModel):
    name: str
    tags: set[str] = Field(default_factory=set)
    nested: dict[str, list[int]] = Field(default_factory=dict)


class PydanticState(BaseModel):
    profile: Profile
    visits: Annotated[list[Profile], operator.add] = Field(default_factory=list)
    total: float = 0.0


async def pydantic_state(run: Run) -> Any:
    """A state that is a pydantic model and holds others."""

    def visit(state: PydanticState) -> Any:
        number = len(state.visits)
        profile = state.profile.model_copy(update={"nested": {"seen": list(range(number))}})
        return {
            "profile": profile,
            "visits": [Profile(name=f"visitor {number}", tags={"a"})],
            "total": state.total + 0.1,
        }

    builder: Any = StateGraph(PydanticState)
    builder.add_node("visit", visit)
    builder.add_node("again", visit)
    builder.add_edge(START, "visit")
    builder.add_edge("visit", "again")
    graph = builder.compile(checkpointer=run.saver)
    await run.invoke(graph, {"profile": Profile(name="ann")})
    await run.invoke(graph, {"total": 5.0})
    await run.update(graph, {"profile": Profile(name="bob", tags={"x"})}, as_node="again")
    await run.invoke(graph, {"total": 0.5})
    return graph


@dataclass
class Card:
    title: str
    points: tuple[int, ...] = ()


@dataclass
class DataclassState:
    cards: Annotated[list[Card], operator.add] = field(default_factory=list)
    best: Card | None = None
    index: Annotated[dict[str, Card], merge] = field(default_factory=dict)


async def dataclass_state(run: Run) -> Any:
    """A state that is a dataclass and holds others."""

    def deal(state: DataclassState) -> Any:
        card = Card(f"card {len(state.cards)}", (1, 2, len(state.cards)))
        return {"cards": [card], "best": card, "index": {card.title: card}}

    builder: Any = StateGraph(DataclassState)
    builder.add_node("deal", deal)
    builder.add_node("again", deal)
    builder.add_edge(START, "deal")
    builder.add_edge("deal", "again")
    graph = builder.compile(checkpointer=run.saver)
    for _ in range(3):
        await run.invoke(graph, {"cards": []})
    await run.update(graph, {"best": None}, as_node="again")
    await run.invoke(graph, {"cards": [Card("given")]})
    return graph


class ScriptedModel(BaseChatModel):
    """Calls a tool after each human message, then answers."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        number = len(messages)
        if isinstance(messages[-1], ToolMessage):
            reply = AIMessage(f"the weather is {messages[-1].content}")
        else:
            reply = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": f"c{number}"}, "id": f"w{number}"}])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def prebuilt_agent(run: Run) -> Any:
    """`langchain.agents.create_agent` with a tool."""
    graph = create_agent(ScriptedModel(), [weather], checkpointer=run.saver, system_prompt="be brief")
    for turn in range(3):
        await run.invoke(graph, {"messages": [{"role": "user", "content": f"weather {turn}?"}]})
    return graph


BOTH_KINDS: list[Script] = [
    tool_agent,
    interrupts,
    updates,
    time_travel,
    subgraphs,
    stateful_subgraphs,
    forks_in_subgraphs,
    map_reduce,
    failures,
    parallel_writers,
    overwrites,
    removals,
    messages_without_ids,
]
ORDINARY_ONLY: list[Script] = [pydantic_state, dataclass_state, prebuilt_agent]
CASES = [(script, delta) for script in BOTH_KINDS for delta in (False, True)] + [
    (script, False) for script in ORDINARY_ONLY
]
