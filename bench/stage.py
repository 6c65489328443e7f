"""A workload's graph on a target's saver: what every measure starts from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from bench.recorder import Recorder, timed
from bench.targets.base import Saver, Target
from bench.workloads.base import GraphKind, Workload

Graph = CompiledStateGraph[Any, Any, Any, Any]


@dataclass(frozen=True)
class Stage:
    """One workload in one kind of graph on one target.

    Args:
        snapshot_frequency: Of the DeltaChannels, in updates.
        durability: LangGraph's: sync, async or exit.
    """

    workload: Workload
    target: Target
    kind: GraphKind
    snapshot_frequency: int
    durability: str

    def compile(self, saver: Saver) -> Graph:
        """The graph with this saver."""
        graph = self.workload.graph(self.kind, self.snapshot_frequency)
        compiled: Graph = graph.compile(checkpointer=saver)
        return compiled

    @asynccontextmanager
    async def opened(self, recorder: Recorder | None = None, *, dsn: str | None = None) -> AsyncIterator[Graph]:
        """The graph on a new saver that has its connection up, so that this is not timed by what follows."""
        async with self.target.open(dsn=dsn) as saver:
            await saver.aget_tuple(thread_config("no such thread"))
            yield self.compile(timed(saver, recorder) if recorder else saver)


def thread_config(thread_id: str, checkpoint_id: str | None = None) -> Any:
    """The config of a thread's head, or of one of its checkpoints."""
    configurable = {"thread_id": thread_id, "checkpoint_ns": ""}
    return {"configurable": {**configurable, "checkpoint_id": checkpoint_id} if checkpoint_id else configurable}


class ThreadPlayer:
    """Plays a conversation on one thread (`bench.workloads.base.Player`)."""

    def __init__(self, graph: Graph, recorder: Recorder, *, thread_id: str, durability: str) -> None:
        self._graph = graph
        self._recorder = recorder
        self._thread_id = thread_id
        self._durability: Any = durability

    async def invoke(self, values: Mapping[str, Any], *, checkpoint_id: str | None = None) -> None:
        """Runs a turn, from the head or as a new branch from an older checkpoint."""
        config = thread_config(self._thread_id, checkpoint_id)
        await self._graph.ainvoke(values, config, durability=self._durability)

    async def update(self, values: Mapping[str, Any], *, checkpoint_id: str, as_node: str) -> str:
        """Edits the state at an older checkpoint; returns the id of the branch's first checkpoint."""
        config = thread_config(self._thread_id, checkpoint_id)
        updated = await self._graph.aupdate_state(config, dict(values), as_node=as_node)
        return str(updated["configurable"]["checkpoint_id"])

    def head_id(self) -> str:
        """The id of the checkpoint saved last on this thread."""
        return self._recorder.head_id(self._thread_id)
