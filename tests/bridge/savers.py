"""A small graph, and savers whose storage is in memory but which have to be opened and closed like real ones."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.graph import END, START, StateGraph

from deltastore.engine import Engine
from deltastore.langgraph.saver import EngineSaver
from deltastore.memory import MemoryStorage
from deltastore.options import EngineOptions


class Talk(TypedDict):
    words: Annotated[list[str], operator.add]


def echo_graph(saver: Any) -> Any:
    """One node that repeats the last word louder."""
    builder = StateGraph(Talk)
    builder.add_node("echo", lambda state: {"words": [state["words"][-1].upper()]})
    builder.add_edge(START, "echo")
    builder.add_edge("echo", END)
    return builder.compile(checkpointer=saver)


def config(thread_id: str = "t", **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **more}}


def head(saver: BaseCheckpointSaver[Any], thread_id: str = "t") -> CheckpointTuple:
    found = saver.get_tuple(config(thread_id))
    assert found is not None
    return found


class Opened:
    """Counts how often a saver's storage was opened and closed."""

    def __init__(self) -> None:
        self.openings = 0
        self.closings = 0

    def saver(self, fail_with: BaseException | None = None) -> EngineSaver:
        """A saver that is opened and closed like one with a pool; `fail_with` is raised by the first opening."""
        storage = MemoryStorage()

        async def close() -> None:
            self.closings += 1

        async def open_engine() -> tuple[Engine, Callable[[], Awaitable[None]]]:
            self.openings += 1
            await asyncio.sleep(0)
            if fail_with is not None and self.openings == 1:
                raise fail_with
            return Engine(storage, EngineOptions()), close

        return EngineSaver(open_engine)


def memory_saver() -> EngineSaver:
    return Opened().saver()
