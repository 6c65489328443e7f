"""A process that runs a graph and says what it does, to be killed: `python -m tests.processes.child`.

It imports everything once and then forks a worker for each job that it reads, so that a kill costs no new start of
Python. Events are lines on the standard output, each written at once: a save is acknowledged when `saved` is there.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer
from langgraph.graph.state import CompiledStateGraph

from deltastore import DeltaSaver

Kind = Literal["ordinary", "DeltaChannel"]
Durability = Literal["sync", "async", "exit"]
CONFIG: RunnableConfig = {"configurable": {"thread_id": "killed again and again"}}
NODES = ("think", "act", "answer")
PER_TURN = 1 + len(NODES)
"""Messages of one turn: the user's and one of each node."""
SECONDS_MAX = 120


@dataclass(frozen=True)
class Job:
    """Go on with the thread until it has so many turns."""

    dsn: str
    kind: Kind
    durability: Durability
    turns: int


def text(index: int) -> str:
    """What the message with this index says; some are longer than what a checkpoint's row takes in."""
    return f"turn {index // PER_TURN} step {index % PER_TURN}: " + " ".join(
        map(str, range(index, index + index % 9 * 60))
    )


def message(index: int) -> AnyMessage:
    kind = AIMessage if index % PER_TURN else HumanMessage
    return kind(text(index), id=f"message {index}")


def extended(value: list[str], writes: Sequence[list[str]]) -> list[str]:
    """The reducer of a DeltaChannel that appends."""
    return [*value, *(each for write in writes for each in write)]


class OrdinaryState(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], operator.add]


class DeltaState(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=7)]
    log: Annotated[list[str], DeltaChannel(extended, snapshot_frequency=10)]


def build(kind: Kind, saver: BaseCheckpointSaver[Any]) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A line of nodes; each adds the next message and the same text to the log."""

    def node(state: Any) -> dict[str, Any]:
        index = len(state["messages"])
        tell("node", index)
        return {"messages": [message(index)], "log": [text(index)]}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(OrdinaryState if kind == "ordinary" else DeltaState)
    for name, before in zip(NODES, (START, *NODES), strict=False):
        builder.add_node(name, node)
        builder.add_edge(before, name)
    builder.add_edge(NODES[-1], END)
    return builder.compile(checkpointer=saver)


def tell(*words: object) -> None:
    """One event, written with one call."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class TellingSaver(DeltaSaver):
    """Says before and after each save what it does."""

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        tell("saving", checkpoint["id"])
        stored = await super().aput(config, checkpoint, metadata, new_versions)
        tell("saved", checkpoint["id"], metadata["step"])
        return stored

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        tell("writing", task_id)
        await super().aput_writes(config, writes, task_id, task_path)
        tell("written", task_id)


async def play(job: Job) -> None:
    """Finishes the turn that was cut off, if one was, and plays the rest."""
    async with TellingSaver.from_conn_string(job.dsn, snapshot_frequency=5, timeout_seconds=30) as saver:
        graph = build(job.kind, saver)
        state = await graph.aget_state(CONFIG)
        if state.tasks:  # also those that are done, but whose writes no checkpoint has taken in yet
            await graph.ainvoke(None, CONFIG, durability=job.durability)
            state = await graph.aget_state(CONFIG)
        for index in range(len(state.values.get("messages", ())), job.turns * PER_TURN, PER_TURN):
            given = {"messages": [message(index)], "log": [text(index)]}
            await graph.ainvoke(given, CONFIG, durability=job.durability)


def work(job: Job) -> int:
    """The whole life of a worker; returns its exit code."""
    signal.alarm(SECONDS_MAX)
    tell("started", os.getpid())
    try:
        asyncio.run(play(job))
    except BaseException:  # noqa: BLE001 - nothing may get back into the loop that forks
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Forks one worker for each line of input, and tells how it ended."""
    while line := sys.stdin.readline():
        worker = os.fork()
        if worker == 0:
            os._exit(work(Job(**json.loads(line))))
        tell("ended", os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))


def command(job: Job) -> str:
    """The line of input that starts a job."""
    return json.dumps(asdict(job)) + "\n"


if __name__ == "__main__":
    main()
