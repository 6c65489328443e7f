"""Threads as random trees of checkpoints, put through the saver, and all that readers see of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore import DeltaSaver
from deltastore.conversion import validate
from deltastore.core.edits import ThreadRows
from tests.support.exact import exact_history, exact_tuple
from tests.support.puts import NOTHING, Puts

DAY = 86_400.0
CHANNELS = ["plain", "dict", "delta", "log"]


def id_at(seconds: float, number: int) -> str:
    """A UUID of version 6 with this time."""
    ticks = int((seconds + 12_219_292_800) * 10_000_000)
    return str(UUID(int=(ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 2 << 62 | number))


@dataclass
class Tree:
    """One thread: namespaces with forks, plain channels and DeltaChannels.

    Attributes:
        saver: The saver.
        thread_id: The thread.
        now: The time after the last checkpoint, in seconds since 1970.
        chance: Where all choices come from.
        times: The time of each checkpoint.
    """

    saver: DeltaSaver
    thread_id: str
    now: float
    chance: random.Random
    times: dict[tuple[str, str], float] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    puts: dict[str, Puts] = field(default_factory=dict)
    values: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def grow(self, steps: int, days: float = 30.0) -> None:
        """More checkpoints, spread over so many days until now."""
        moments = sorted(self.now - self.chance.random() * days * DAY for _ in range(steps))
        for moment in moments:
            self.step(self.chance.choice(["", "", "", "sub:1", "sub:1|inner"]), moment)

    def step(self, namespace: str, moment: float) -> str:
        """A checkpoint behind the newest of a namespace, or now and then behind another, or behind none."""
        puts = self.puts.setdefault(namespace, Puts(self.saver, self.thread_id, namespace))
        known = sorted(each for space, each in self.times if space == namespace)
        parent = self.chance.choice([*known[-1:] * 6, *known]) if known and self.chance.random() > 0.05 else None
        checkpoint_id = id_at(moment, len(self.times))
        before = self.values.get((namespace, parent or ""), {})
        given = self._given(before)
        if parent is not None:
            for task in range(self.chance.randint(0, 2)):
                text = self._text()
                puts.write(parent, [("delta", [text]), ("log", text)], f"task {task} of {checkpoint_id}", f"~{task}")
        puts.put(parent, given, checkpoint_id=checkpoint_id, metadata=self.metadata)
        self.times[namespace, checkpoint_id] = moment
        self.values[namespace, checkpoint_id] = {**before, **given}
        return checkpoint_id

    def _given(self, before: dict[str, Any]) -> dict[str, Any]:
        plain = [*before.get("plain", []), self._text()]
        if self.chance.random() < 0.1:
            plain = plain[1:]
        given: dict[str, Any] = {"plain": plain, "delta": NOTHING}
        if self.chance.random() < 0.3:
            given["dict"] = {**before.get("dict", {}), self.chance.choice("abc"): self._text()}
        if self.chance.random() < 0.15:
            given["delta"] = _DeltaSnapshot([self._text() for _ in range(3)])
        if self.chance.random() < 0.5:
            given["log"] = NOTHING
        return given

    def _text(self) -> str:
        return f"{self.chance.random()} " + "x" * self.chance.choice([0, 5, 100, 1500])

    def seen(self) -> dict[tuple[str, str], Any]:
        """All that readers see, by namespace and checkpoint; without parents, which may go."""
        return seen(self.saver, self.thread_id)


def seen(saver: DeltaSaver, thread_id: str) -> dict[tuple[str, str], Any]:
    """All that readers see of a thread, by namespace and checkpoint; without parents, which may go."""
    found = {}
    for each in saver.list({"configurable": {"thread_id": thread_id}}):
        settings = each.config["configurable"]
        built = [channel for channel in CHANNELS if channel not in each.checkpoint["channel_values"]]
        history = saver.get_delta_channel_history(config=each.config, channels=built)
        shown = exact_tuple(each)
        del shown["parent"]
        found[settings["checkpoint_ns"], settings["checkpoint_id"]] = shown, exact_history(history)
    return found


def parents(saver: DeltaSaver, thread_id: str) -> dict[tuple[str, str], str | None]:
    """The parent of each visible checkpoint."""
    return {
        (each.config["configurable"]["checkpoint_ns"], each.config["configurable"]["checkpoint_id"]): (
            None if each.parent_config is None else each.parent_config["configurable"]["checkpoint_id"]
        )
        for each in saver.list({"configurable": {"thread_id": thread_id}})
    }


def rows_of(saver: DeltaSaver, thread_id: str) -> ThreadRows | None:
    """What is stored."""

    async def rows(engine: Any) -> ThreadRows | None:
        async with engine.storage.view(validate.thread(thread_id).key) as view:
            found: ThreadRows | None = await view.rows()
            return found

    return saver._bridge.run(rows)


def stored_bytes(saver: DeltaSaver, thread_id: str) -> int:
    """Payloads of a thread, all together."""

    async def size(engine: Any) -> int:
        async with engine.storage.view(validate.thread(thread_id).key) as view:
            rows = await view.rows()
            if rows is None:
                return 0
            ids = [each.segment_id for each in rows.segments], [number for number, _ in rows.metadata]
            total: int = sum(len(each.payload) for each in rows.checkpoints) + await view.payload_bytes(*ids)
            return total

    return saver._bridge.run(size)
