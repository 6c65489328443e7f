"""The graph and the scripts that the message workloads share: a model that calls tools, and its tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, RemoveMessage, ToolMessage
from langgraph.graph import START, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer

from bench.messages import Envelopes, characters_about
from bench.text import standard_library
from bench.workloads.base import ChannelSpec, Conversation, Cue, Cues, Fold, GraphKind, TurnScript, state_schema

HUMAN_CHARACTERS = 300
TOOL_CHARACTERS = 5_500
ANSWER_CHARACTERS = 1_200

MESSAGES_CHANNEL = ChannelSpec(list[AnyMessage], add_messages, _messages_delta_reducer)


def message_graph(
    cues: Cues,
    kind: GraphKind,
    snapshot_frequency: int,
    *,
    channels: Mapping[str, ChannelSpec] = MappingProxyType({}),
    echo: bool = False,
) -> StateGraph[Any, Any, Any, Any]:
    """An agent graph: `agent` and `tools` (and `summarise`) take turns as the cues say.

    With `echo` its nodes return the whole list of messages, with the new ones at its end.
    """

    async def step(state: Any) -> Any:
        update = cues.take(state["messages"][-1].id)
        return {"messages": [*state["messages"], *update["messages"]]} if echo else update

    def route(state: dict[str, Any]) -> str:
        return cues.next_node(state["messages"][-1].id)

    schema = state_schema(kind, snapshot_frequency, {"messages": MESSAGES_CHANNEL, **channels})
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(schema)
    for node in ("agent", "tools", "summarise"):
        builder.add_node(node, step)
        builder.add_conditional_edges(node, route)
    builder.add_edge(START, "agent")
    return builder


def message_cues(messages: Sequence[BaseMessage]) -> dict[str, Cue]:
    """Cues that make the graph answer each message of a turn with the next; tool results come together."""
    cues: dict[str, Cue] = {}
    position = 1
    while position < len(messages):
        end = position + 1
        if isinstance(messages[position], ToolMessage):
            while end < len(messages) and isinstance(messages[end], ToolMessage):
                end += 1
        node = "agent" if isinstance(messages[position], AIMessage) else "tools"
        cues[str(messages[position - 1].id)] = Cue(node, {"messages": list(messages[position:end])})
        position = end
    return cues


def fold_messages(messages: list[BaseMessage] | None, update: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Our own reading of the rules of `add_messages`: append, replace by id, remove by id."""
    result = list(messages or ())
    positions = {message.id: position for position, message in enumerate(result)}
    removed: set[str | None] = set()
    for message in update:
        if isinstance(message, RemoveMessage):
            removed.add(message.id)
        elif message.id in positions:
            result[positions[message.id]] = message
        else:
            positions[message.id] = len(result)
            result.append(message)
    return [message for message in result if message.id not in removed]


class AgentConversation(Conversation):
    """A user asks about code, the model reads a file with a tool and answers."""

    folds: ClassVar[Mapping[str, Fold]] = {"messages": fold_messages}

    def turn_messages(self, turn: int) -> list[BaseMessage]:
        """Question, tool call, tool result and answer of a turn."""
        rng, corpus, start = self.rng(turn), standard_library(), self.text_start
        envelopes = Envelopes(rng)
        prose = corpus.prose.page(start, turn, HUMAN_CHARACTERS, ANSWER_CHARACTERS)
        human = envelopes.human(prose.take(characters_about(rng, HUMAN_CHARACTERS)))
        result = corpus.code.page(start, turn, TOOL_CHARACTERS).take(characters_about(rng, TOOL_CHARACTERS))
        answer = prose.take(characters_about(rng, ANSWER_CHARACTERS))
        first_line = rng.randrange(1, 900)
        arguments = {
            "path": corpus.module(self.text_index(turn)),
            "start_line": first_line,
            "end_line": first_line + result.count("\n"),
        }
        call = envelopes.tool_call("read_file", arguments)
        history_characters = min(turn, 60) * (HUMAN_CHARACTERS + TOOL_CHARACTERS + ANSWER_CHARACTERS)
        return [
            human,
            envelopes.ai("", prompt_characters=history_characters, tool_calls=[call]),
            envelopes.tool_result(call, result),
            envelopes.ai(answer, prompt_characters=history_characters + len(result)),
        ]

    def script(self, turn: int) -> TurnScript:
        messages = self.turn_messages(turn)
        return TurnScript({"messages": messages[:1]}, message_cues(messages))
