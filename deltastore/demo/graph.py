"""The agent graph that replays a conversation: five checkpoints for a turn with one tool call."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer
from langgraph.graph.state import CompiledStateGraph

from deltastore.demo.conversation import Conversation

GraphKind = Literal["ordinary", "DeltaChannel"]
Graph = CompiledStateGraph[Any, Any, Any, Any]
SNAPSHOT_FREQUENCY = 50


class OrdinaryState(TypedDict):
    """The state of most agents."""

    messages: Annotated[list[AnyMessage], add_messages]


class DeltaState(TypedDict):
    """The same state, whose channel hands its writes to the saver instead of its value."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=SNAPSHOT_FREQUENCY)]


def build(kind: GraphKind, conversation: Conversation, saver: BaseCheckpointSaver[Any]) -> Graph:
    """The compiled graph. Its nodes say what the conversation says next, at the position where the state stands."""
    script = conversation.messages

    def agent(state: Any) -> dict[str, Any]:
        return {"messages": [script[len(state["messages"])]]}

    def tools(state: Any) -> dict[str, Any]:
        first = end = len(state["messages"])
        while end < len(script) and isinstance(script[end], ToolMessage):
            end += 1
        return {"messages": list(script[first:end])}

    def route(state: Any) -> str:
        following = script[len(state["messages"]) :][:1]
        if following and isinstance(following[0], ToolMessage):
            return "tools"
        return "agent" if following and isinstance(following[0], AIMessage) else END

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(OrdinaryState if kind == "ordinary" else DeltaState)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route)
    builder.add_conditional_edges("tools", route)
    return builder.compile(checkpointer=saver)
