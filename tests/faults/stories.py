"""Threads made of direct saver calls, with what each checkpoint must read as for ever after.

Channels: `words` grows, `facts` is a dict that changes in places, `text` is one value, `quiet` is written by the first
two steps only, and `log` is a DeltaChannel without snapshots: it has writes and never a value.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6

Write = tuple[str, str, Any]


def config_of(thread_id: str, checkpoint_id: str | None = None, namespace: str = "") -> RunnableConfig:
    settings = {"thread_id": thread_id, "checkpoint_ns": namespace}
    return {"configurable": settings if checkpoint_id is None else {**settings, "checkpoint_id": checkpoint_id}}


@dataclass(frozen=True)
class Step:
    """One stored checkpoint: its config, and what it must read as."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: dict[str, Any]
    parent: Step | None
    log: tuple[Write, ...]
    pending: list[Write] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.checkpoint["id"]

    @property
    def number(self) -> int:
        return int(self.metadata["step"])

    def is_read_as(self, found: CheckpointTuple | None) -> bool:
        return found is not None and (
            found.config,
            found.checkpoint,
            found.metadata,
            found.parent_config,
            sorted(found.pending_writes or [], key=repr),
        ) == (
            self.config,
            self.checkpoint,
            self.metadata,
            None if self.parent is None else self.parent.config,
            sorted(self.pending, key=repr),
        )


class Story:
    """Makes one thread step by step.

    Args:
        saver: Where it is stored; may be exchanged at any time.
        thread_id: The thread.
        seed: Of what is random in it.
        words_max: How many characters a new word has at most.
    """

    def __init__(
        self,
        saver: BaseCheckpointSaver[Any],
        thread_id: str = "story",
        *,
        seed: int = 0,
        words_max: int = 60,
    ) -> None:
        self.saver = saver
        self.thread_id = thread_id
        self.steps: list[Step] = []
        self._random = random.Random(seed)
        self._words_max = words_max

    async def grow(self, count: int, parent: Step | None = None, **metadata: Any) -> Step:
        """Adds a chain of steps behind `parent`, by default behind the newest one."""
        step = parent or (self.steps[-1] if self.steps else None)
        for _ in range(count):
            step = await self.step(step, **metadata)
        assert step is not None
        return step

    async def step(self, parent: Step | None, **metadata: Any) -> Step:
        """Stores one super-step: the writes of a task to the parent, then the checkpoint."""
        number = 0 if parent is None else parent.number + 1
        changed = self._changes(parent, number)
        log = () if parent is None else parent.log
        if parent is not None:
            writes = [("words", changed["words"][-1:]), ("log", f"entry {number} {self._word()}")]
            task = f"task-{number}-{len(self.steps)}"
            parent.pending.extend((task, channel, value) for channel, value in writes)
            await self.saver.aput_writes(parent.config, writes, task, f"~{number}")
            log = (*parent.log, *sorted(write for write in parent.pending if write[1] == "log"))
        return await self._put(parent, number, changed, log, metadata)

    def _changes(self, parent: Step | None, number: int) -> dict[str, Any]:
        before = {} if parent is None else parent.checkpoint["channel_values"]
        changed: dict[str, Any] = {"words": [*before.get("words", []), self._word()]}
        if number < 2:
            changed["quiet"] = {"since": number}
        if number % 3 == 0:
            changed["facts"] = {**before.get("facts", {}), f"key {self._random.randrange(9)}": self._word()}
        if number % 4 == 1:
            changed["text"] = self._word() * 3
        return changed

    async def _put(
        self, parent: Step | None, number: int, changed: dict[str, Any], log: Sequence[Write], more: dict[str, Any]
    ) -> Step:
        before: Any = {} if parent is None else parent.checkpoint
        versions = dict(before.get("channel_versions", {}))
        new = {channel: self.saver.get_next_version(versions.get(channel), None) for channel in (*changed, "log")}
        checkpoint: Any = {
            "v": 4,
            "id": str(uuid6(clock_seq=len(self.steps))),
            "ts": f"2026-01-01T00:00:{number % 60:02}+00:00",
            "channel_values": {**before.get("channel_values", {}), **changed},
            "channel_versions": {**versions, **new},
            "versions_seen": {"node": versions},
            "updated_channels": sorted(new),
        }
        counters = {"log": [number, number]} if number else {}
        metadata = {"source": "loop", "step": number, "parents": {}, "counters_since_delta_snapshot": counters, **more}
        at = config_of(self.thread_id) if parent is None else parent.config
        stored = await self.saver.aput(at, checkpoint, metadata, new)  # type: ignore[arg-type]
        step = Step(stored, checkpoint, metadata, parent, tuple(log))
        self.steps.append(step)
        return step

    def _word(self) -> str:
        return "".join(self._random.choices("abcdefghij klmnop ", k=self._random.randint(1, self._words_max)))


async def until(condition: Callable[[], object]) -> None:
    """Lets the other tasks of the loop run until the condition holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the condition is about objects that know no events
            await asyncio.sleep(0)


async def assert_reads_as(saver: BaseCheckpointSaver[Any], step: Step) -> None:
    """The checkpoint by its id, and the history of its DeltaChannel."""
    found = await saver.aget_tuple(step.config)
    assert step.is_read_as(found), f"step {step.number} reads as {found}\nbut must be {step}"
    history = (await saver.aget_delta_channel_history(config=step.config, channels=["log"]))["log"]
    assert history["writes"] == list(step.log)
    assert "seed" not in history
