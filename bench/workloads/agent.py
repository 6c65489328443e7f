"""The workloads that are agents with a message list: `agent` (the reference), `echo`, `summarise` and `fork`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.graph import StateGraph

from bench.text import standard_library
from bench.workloads.base import ChannelSpec, Conversation, Cue, Cues, GraphKind, Player, State, TurnScript, Workload
from bench.workloads.conversations import AgentConversation, message_graph

SUMMARISE_EVERY_TURNS = 40
SUMMARY_CHARACTERS = 2_000
KEPT_MESSAGES = 8
FORK_EVERY_TURNS = 10
FORK_BACK_TURNS = 5


class AgentWorkload(Workload):
    """The reference: five checkpoints and four messages a turn."""

    name = "agent"
    summary = "tool-calling agent: question, tool call, 5,500-character tool result, answer; 5 checkpoints a turn"

    def graph(self, kind: GraphKind, snapshot_frequency: int) -> StateGraph[Any, Any, Any, Any]:
        return message_graph(self.cues, kind, snapshot_frequency)

    def conversation(self, number: int) -> Conversation:
        return AgentConversation(self.cues, self.seed, number)


class EchoWorkload(AgentWorkload):
    """The same conversation by nodes that return their whole state instead of an update."""

    name = "echo"
    summary = "the agent conversation by nodes that return their whole state each time"

    def graph(self, kind: GraphKind, snapshot_frequency: int) -> StateGraph[Any, Any, Any, Any]:
        return message_graph(self.cues, kind, snapshot_frequency, echo=True)


class SummariseConversation(AgentConversation):
    """An agent conversation that is cut back to its last messages every so many turns."""

    def __init__(self, cues: Cues, seed: int, number: int) -> None:
        super().__init__(cues, seed, number)
        self._turn_messages: list[BaseMessage] = []

    def script(self, turn: int) -> TurnScript:
        script = super().script(turn)
        if (turn + 1) % SUMMARISE_EVERY_TURNS:
            return script
        answer = list(script.cues.values())[-1].update["messages"][-1]
        return TurnScript(script.values, {**script.cues, str(answer.id): Cue("summarise", self._summary(turn))})

    def _summary(self, turn: int) -> dict[str, Any]:
        first = max(0, turn + 1 - SUMMARISE_EVERY_TURNS - KEPT_MESSAGES // 4)
        recent = itertools.chain.from_iterable(self.turn_messages(number) for number in range(first, turn + 1))
        removed = [RemoveMessage(id=str(message.id)) for message in list(recent)[:-KEPT_MESSAGES]]
        number = turn // SUMMARISE_EVERY_TURNS
        page = standard_library().prose_aside.page(self.text_start, number, SUMMARY_CHARACTERS)
        return {"messages": removed, "summary": page.take(SUMMARY_CHARACTERS)}


class SummariseWorkload(AgentWorkload):
    """A long conversation that stays short."""

    name = "summarise"
    summary = (
        f"agent conversation cut back to {KEPT_MESSAGES} messages by RemoveMessage every {SUMMARISE_EVERY_TURNS} turns"
    )

    def graph(self, kind: GraphKind, snapshot_frequency: int) -> StateGraph[Any, Any, Any, Any]:
        return message_graph(self.cues, kind, snapshot_frequency, channels={"summary": ChannelSpec(str)})

    def conversation(self, number: int) -> Conversation:
        return SummariseConversation(self.cues, self.seed, number)


class ForkConversation(AgentConversation):
    """An agent conversation whose user goes back and asks something else, again and again.

    Every `FORK_EVERY_TURNS` turns it branches off the end of the turn `FORK_BACK_TURNS` before: every other time by
    editing the last answer there (`update_state`), else by a new question from there. The branch is the conversation
    from then on.
    """

    is_linear = False

    def __init__(self, cues: Cues, seed: int, number: int) -> None:
        super().__init__(cues, seed, number)
        self._head_ids: dict[int, str] = {}

    async def play(self, player: Player, turn: int) -> None:
        values = self._prepared.pop(turn).values
        base = fork_base(turn)
        if base is None:
            await player.invoke(values)
        else:
            branch_id = self._head_ids[base]
            if edit := self._edit(turn):
                branch_id = await player.update(edit, checkpoint_id=branch_id, as_node="agent")
            await player.invoke(values, checkpoint_id=branch_id)
        self._head_ids[turn] = player.head_id()
        self._head_ids.pop(turn - 2 * FORK_BACK_TURNS, None)

    def expected_states(self) -> Iterator[State]:
        states: dict[int, State] = {}
        state: State = {}
        for turn in itertools.count():
            base = fork_base(turn)
            if base is not None:
                state = dict(states[base])
                edit = self._edit(turn)
                if edit:
                    self.fold(state, TurnScript(edit, {}))
            self.fold(state, self.script(turn))
            states[turn] = dict(state)
            states.pop(turn - 2 * FORK_BACK_TURNS, None)
            yield state

    def _edit(self, turn: int) -> dict[str, Any] | None:
        """The last answer before the fork, reworded, if this fork is one that edits."""
        if turn // FORK_EVERY_TURNS % 2:
            return None
        answer = self.turn_messages(turn - FORK_BACK_TURNS)[-1]
        return {"messages": [answer.model_copy(update={"content": f"{answer.content}\n(edited)"})]}


def fork_base(turn: int) -> int | None:
    """The turn that this one branches off, or None if it goes on from the head."""
    return turn - FORK_BACK_TURNS if turn % FORK_EVERY_TURNS == FORK_EVERY_TURNS - 1 else None


class ForkWorkload(AgentWorkload):
    """Time travel and branches."""

    name = "fork"
    summary = f"agent conversation that branches off {FORK_BACK_TURNS} turns back every {FORK_EVERY_TURNS} turns"

    def conversation(self, number: int) -> Conversation:
        return ForkConversation(self.cues, self.seed, number)
