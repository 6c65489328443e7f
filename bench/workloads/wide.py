"""`wide` and `fanout`: state that is not a conversation.

The large constant of `wide` is a dict, not a string, in favour of the stock PostgreSQL saver: that keeps strings inside
the checkpoint's own row, which repeats them at each step and made its loads of DeltaChannels take seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from langgraph.graph import START, StateGraph
from langgraph.types import Send

from bench.messages import characters_about
from bench.text import standard_library
from bench.workloads.base import (
    LIST_CHANNEL,
    ChannelSpec,
    Conversation,
    Cue,
    Fold,
    GraphKind,
    TurnScript,
    Workload,
    extend,
    state_schema,
)

FIELDS = 40
LOGS = 10
NODES = ("read", "think", "write")
MANUAL_CHARACTERS = 200_000
FIELD_CHARACTERS = 500
FIELDS_CHANGED_MAX = 2
EVENT_CHARACTERS = 160
FANOUT_TASKS = 12
FINDING_CHARACTERS = 600
REPORT_CHARACTERS = 2_000


class WideConversation(Conversation):
    """Each of three nodes changes one or two of 40 fields and adds an event to one of 10 logs."""

    folds: ClassVar[Mapping[str, Fold]] = {f"log_{number:02}": extend for number in range(LOGS)}

    def script(self, turn: int) -> TurnScript:
        request = f"{self.number}-{turn}"
        values: dict[str, Any] = {"request": request}
        if turn == 0:
            page = standard_library().code_aside.page(self.text_start, 0, MANUAL_CHARACTERS)
            text = page.take(MANUAL_CHARACTERS)
            values["manual"] = {"path": standard_library().module(self.number), "text": text}
        cues = {f"{node}/{request}": Cue(node, self._update(turn, number)) for number, node in enumerate(NODES)}
        return TurnScript(values, cues)

    def _update(self, turn: int, number: int) -> dict[str, Any]:
        place = turn * len(NODES) + number
        rng, means = self.rng(place), (*[FIELD_CHARACTERS] * FIELDS_CHANGED_MAX, EVENT_CHARACTERS)
        page = standard_library().prose.page(self.text_start, place, *means)
        update: dict[str, Any] = {}
        for field in rng.sample(range(FIELDS), k=rng.randint(1, FIELDS_CHANGED_MAX)):
            text = page.take(characters_about(rng, FIELD_CHARACTERS))
            update[f"field_{field:02}"] = {"value": text, "score": round(rng.random(), 4), "tags": text.split()[:4]}
        event = {
            "turn": turn,
            "level": rng.choice(["info", "debug", "warning"]),
            "text": page.take(EVENT_CHARACTERS),
        }
        update[f"log_{rng.randrange(LOGS):02}"] = [event]
        return update


class WideWorkload(Workload):
    """Many channels of which few change, among them one large constant."""

    name = "wide"
    summary = f"{FIELDS} fields, {LOGS} logs and a constant of {MANUAL_CHARACTERS:,} characters; few of them change"

    def graph(self, kind: GraphKind, snapshot_frequency: int) -> StateGraph[Any, Any, Any, Any]:
        channels = {"request": ChannelSpec(str), "manual": ChannelSpec(dict)}
        channels |= {f"field_{number:02}": ChannelSpec(dict) for number in range(FIELDS)}
        channels |= {f"log_{number:02}": LIST_CHANNEL for number in range(LOGS)}
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(state_schema(kind, snapshot_frequency, channels))
        for name in NODES:
            builder.add_node(name, self._node(name))
        for before, after in zip((START, *NODES), NODES, strict=False):
            builder.add_edge(before, after)
        return builder

    def _node(self, name: str) -> Any:
        async def step(state: dict[str, Any]) -> Any:
            return self.cues.take(f"{name}/{state['request']}")

        return step

    def conversation(self, number: int) -> Conversation:
        return WideConversation(self.cues, self.seed, number)


class FanoutConversation(Conversation):
    """Each turn maps a request over 12 tasks and writes a report of what they found."""

    folds: ClassVar[Mapping[str, Fold]] = {"findings": extend}

    def script(self, turn: int) -> TurnScript:
        corpus, rng, index = standard_library(), self.rng(turn), self.text_index(turn)
        request = f"{self.number}-{turn}"
        tasks = [f"{request}-{number}" for number in range(FANOUT_TASKS)]
        cues: dict[str, Cue] = {}
        code = corpus.code.page(self.text_start, turn, *[FINDING_CHARACTERS] * FANOUT_TASKS)
        for number, task in enumerate(tasks):
            text = code.take(characters_about(rng, FINDING_CHARACTERS))
            finding = {"task": task, "path": corpus.module(index + number), "text": text, "confidence": rng.random()}
            cues[task] = Cue("search", {"findings": [finding]})
        report = corpus.prose.page(self.text_start, turn, REPORT_CHARACTERS).take(
            characters_about(rng, REPORT_CHARACTERS)
        )
        cues[f"report/{request}"] = Cue("report", {"report": report})
        return TurnScript({"request": request, "tasks": tasks}, cues)


class FanoutWorkload(Workload):
    """`Send` map-reduce."""

    name = "fanout"
    summary = f"map-reduce: {FANOUT_TASKS} parallel tasks by Send into one list, then a report"

    def graph(self, kind: GraphKind, snapshot_frequency: int) -> StateGraph[Any, Any, Any, Any]:
        async def plan(_state: Any) -> Any:
            return {}

        async def search(task: Any) -> Any:
            return self.cues.take(task)

        async def report(state: Any) -> Any:
            return self.cues.take(f"report/{state['request']}")

        def fan_out(state: dict[str, Any]) -> list[Send]:
            return [Send("search", task) for task in state["tasks"]]

        text, tasks = ChannelSpec(str), ChannelSpec(list[str])
        channels = {"request": text, "tasks": tasks, "findings": LIST_CHANNEL, "report": text}
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(state_schema(kind, snapshot_frequency, channels))
        for name, node in (("plan", plan), ("search", search), ("report", report)):
            builder.add_node(name, node)
        builder.add_edge(START, "plan")
        builder.add_conditional_edges("plan", fan_out, ["search"])
        builder.add_edge("search", "report")
        return builder

    def conversation(self, number: int) -> Conversation:
        return FanoutConversation(self.cues, self.seed, number)
