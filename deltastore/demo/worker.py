"""The process that runs the graph: `python -m deltastore.demo.worker JOB`, with the job as JSON.

It goes on from wherever the thread stands, and prints a line with the number of finished turns after each one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from langchain_core.runnables import RunnableConfig

from deltastore.demo.conversation import load
from deltastore.demo.graph import GraphKind, build
from deltastore.demo.savers import Place

CONFIG: RunnableConfig = {"configurable": {"thread_id": "long conversation"}}


@dataclass(frozen=True)
class Job:
    """Replay so many turns on a graph of this kind with the saver of this place."""

    graph: GraphKind
    place: Place
    turns: int
    trace: Path | None

    def to_json(self) -> str:
        """The job as one argument."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that `to_json` wrote."""
        fields = json.loads(text)
        trace = Path(fields["trace"]) if fields["trace"] else None
        return cls(fields["graph"], Place(**fields["place"]), fields["turns"], trace)


async def replay(job: Job) -> None:
    """Finishes the turn that was cut off, if one was, and plays the rest."""
    conversation = load(job.trace, job.turns)
    async with job.place.open() as saver:
        graph = build(job.graph, conversation, saver)
        if (await graph.aget_state(CONFIG)).tasks:
            await graph.ainvoke(None, CONFIG)
        state = await graph.aget_state(CONFIG)
        position = len(state.values.get("messages", ()))
        for turn, start in enumerate(conversation.starts):
            if start >= position:
                await graph.ainvoke({"messages": conversation.inputs(start)}, CONFIG)
            print(turn + 1, flush=True)


if __name__ == "__main__":
    asyncio.run(replay(Job.from_json(sys.argv[1])))
