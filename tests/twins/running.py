"""Runs one script of graph calls synchronously or asynchronously, and masks what is random in its results."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import StateSnapshot

from tests.support.exact import address, exact

Durability = Literal["sync", "async", "exit"]


@dataclass
class Run:
    """What a script works with. In synchronous mode none of its coroutines ever waits.

    Attributes:
        saver: The checkpointer.
        is_async: Whether graphs are called by their asynchronous methods.
        durability: Passed to every run of a graph.
        delta: Whether the script's graphs use DeltaChannels.
        thread_id: The thread.
        results: What the calls returned, in order.
    """

    saver: BaseCheckpointSaver[Any]
    is_async: bool
    durability: Durability
    delta: bool
    thread_id: str = "thread"
    results: list[Any] = field(default_factory=list)

    @property
    def config(self) -> RunnableConfig:
        return {
            "configurable": {"thread_id": self.thread_id, "user": "ann"},
            "metadata": {"tenant": "acme", "trial": True},
        }

    async def invoke(self, graph: Any, given: Any, config: RunnableConfig | None = None, **more: Any) -> Any:
        config = config or self.config
        if self.is_async:
            result = await graph.ainvoke(given, config, durability=self.durability, **more)
        else:
            result = graph.invoke(given, config, durability=self.durability, **more)
        if isinstance(result, dict) and "__interrupt__" in result:  # live, in the order in which the tasks ended
            result = {**result, "__interrupt__": sorted(result["__interrupt__"], key=lambda each: repr(each.value))}
        self.results.append(exact(result))
        return result

    async def update(self, graph: Any, values: Any, config: RunnableConfig | None = None, **more: Any) -> Any:
        config = config or self.config
        if self.is_async:
            return await graph.aupdate_state(config, values, **more)
        return graph.update_state(config, values, **more)

    async def bulk_update(self, graph: Any, supersteps: Any, config: RunnableConfig | None = None) -> Any:
        config = config or self.config
        if self.is_async:
            return await graph.abulk_update_state(config, supersteps)
        return graph.bulk_update_state(config, supersteps)

    async def state(self, graph: Any, config: RunnableConfig | None = None, **more: Any) -> StateSnapshot:
        config = config or self.config
        found: StateSnapshot = (
            await graph.aget_state(config, **more) if self.is_async else graph.get_state(config, **more)
        )
        self.results.append(described(found))
        return found

    async def history(self, graph: Any, config: RunnableConfig | None = None, **more: Any) -> list[StateSnapshot]:
        config = config or self.config
        if self.is_async:
            return [each async for each in graph.aget_state_history(config, **more)]
        return list(graph.get_state_history(config, **more))


Script = Callable[[Run], Coroutine[Any, Any, Any]]
"""Returns the graph whose states and histories are compared in the end."""


def perform(script: Script, run: Run) -> Any:
    """Runs a script to its end."""
    if run.is_async:
        return asyncio.run(script(run))
    coroutine = script(run)
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a synchronous script waited for something")


MESSAGE_ID = r"\('str', 'id'\), \('(str|NoneType)', [^()]*\)"


def described(snapshot: StateSnapshot) -> Any:
    """All that a state snapshot says, without times.

    A message without an id may be given one before or after the write that holds it is saved; so not in `result`.
    """
    return {
        "values": exact(snapshot.values),
        "next": snapshot.next,
        "config": address(snapshot.config),
        "parent": address(snapshot.parent_config) if snapshot.parent_config else None,
        "metadata": sorted((key, exact(value)) for key, value in (snapshot.metadata or {}).items()),
        "interrupts": exact(snapshot.interrupts),
        "tasks": [
            {
                "id": task.id,
                "name": task.name,
                "path": task.path,
                "error": repr(task.error),
                "interrupts": exact(task.interrupts),
                "result": re.sub(MESSAGE_ID, "(an id)", repr(exact(task.result))),
                "state": described(task.state) if isinstance(task.state, StateSnapshot) else exact(task.state),
            }
            for task in snapshot.tasks
        ],
    }


RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")


def masked(value: Any) -> str:
    """A value as text in which random ids are numbered in the order of their appearance."""
    numbers: dict[str, str] = {}
    return RANDOM.sub(lambda found: numbers.setdefault(found.group(), f"#{len(numbers)}"), repr(value))


def described_history(graph: Any, saver: BaseCheckpointSaver[Any], thread_id: str) -> list[Any]:
    """All that a thread's history says, read by a graph through a saver."""
    graph = graph.copy(update={"checkpointer": saver})
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    return [described(each) for each in graph.get_state_history(config)]
