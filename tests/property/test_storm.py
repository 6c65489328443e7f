"""Many calls at once on one thread by two savers with caches of their own: what was acknowledged reads exactly.

Each writer grows a branch of its own and checks each checkpoint when it was put, and all of them in the end; others
meanwhile delete older checkpoints, put the newest again, compact and copy the thread and forget what they know.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.conversion.convert import IGNORED_CHANNELS
from deltastore.engine import Engine
from deltastore.errors import ThreadBusyError
from deltastore.langgraph.saver import EngineSaver
from deltastore.memory import MemoryStorage
from deltastore.options import EngineOptions
from deltastore.postgres.pool import PoolOptions
from deltastore.postgres.storage import PostgresStorage
from deltastore.storage import Storage

STEPS = 40
WRITERS = 4


def at(checkpoint_id: str | None, thread_id: str = "t") -> Any:
    settings = {"thread_id": thread_id, "checkpoint_ns": ""}
    return {"configurable": settings if checkpoint_id is None else {**settings, "checkpoint_id": checkpoint_id}}


def saver_over(storage: Storage, cache_bytes: int) -> EngineSaver:
    async def never() -> Any:
        raise AssertionError

    saver = EngineSaver(never)
    options = EngineOptions(3, 64, cache_bytes, IGNORED_CHANNELS)
    saver._bridge.adopt(Engine(storage, options), asyncio.get_running_loop())
    return saver


@dataclass
class Branch:
    """One writer's line of checkpoints and what each of them must be."""

    name: str
    random: random.Random
    head: str = ""
    versions: dict[str, Any] = field(default_factory=lambda: {"log": 0})
    log: list[Any] = field(default_factory=lambda: ["root " * 20])
    seed: Any = None
    since: list[Any] = field(default_factory=list)
    expected: dict[str, tuple[list[Any], Any, list[Any]]] = field(default_factory=dict)
    puts: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

    async def begin(self, saver: EngineSaver) -> None:
        """A root of its own."""
        self.head = f"0000-{self.name}"
        root: Any = {
            "v": 4,
            "id": self.head,
            "ts": None,
            "channel_values": {"log": self.log},
            "channel_versions": self.versions,
            "versions_seen": {},
        }
        await saver.aput(at(None), root, {"source": "input"}, self.versions)

    async def step(self, saver: EngineSaver, number: int) -> None:
        """Writes to the head, and a child that appends to an ordinary channel and goes on with a DeltaChannel."""
        checkpoint_id = f"{number:04}-{self.name}"
        writes = [("delta", f"{checkpoint_id} {part} " * self.random.choice([1, 30])) for part in range(2)]
        self.log = [*self.log, f"{checkpoint_id} " * self.random.choice([1, 20])]
        if self.random.random() < 0.2:
            self.log = self.log[::-1][: self.random.randint(1, 9)]
        version = f"{number} {self.name}"
        values: dict[str, Any] = {"log": self.log}
        self.since = [*self.since, *(value for _, value in writes)]
        if self.random.random() < 0.2:
            values["delta"] = _DeltaSnapshot([*self.since, f"of {checkpoint_id}"])
        self.versions = {**self.versions, "log": version, "delta": version}
        checkpoint = {
            "v": 4,
            "id": checkpoint_id,
            "ts": None,
            "channel_values": values,
            "channel_versions": self.versions,
            "versions_seen": {},
        }
        metadata = {"source": "loop", "step": number, "run_id": checkpoint_id}
        put: tuple[Any, ...] = at(self.head), checkpoint, metadata, {"log": version, "delta": version}
        task = saver.aput_writes(at(self.head), writes, f"task {self.name}")
        await asyncio.gather(task, saver.aput(*put))
        self.head = checkpoint_id
        self.expected[checkpoint_id] = self.log, self.seed, self.since
        self.puts[checkpoint_id] = put
        if "delta" in values:
            self.seed, self.since = values["delta"], []
        await self.check(saver, checkpoint_id)

    async def check(self, saver: EngineSaver, checkpoint_id: str, thread_id: str = "t") -> None:
        """The checkpoint is what it must be, or was deleted."""
        found = await saver.aget_tuple(at(checkpoint_id, thread_id))
        if found is None:
            assert checkpoint_id in self.deleted
            return
        log, seed, since = self.expected[checkpoint_id]
        assert found.checkpoint["channel_values"]["log"] == log
        history = await saver.aget_delta_channel_history(config=at(checkpoint_id, thread_id), channels=["delta"])
        if "delta" not in found.checkpoint["channel_values"] and checkpoint_id not in self.deleted:
            assert history["delta"].get("seed") == seed
            assert [value for _, _, value in history["delta"]["writes"]] == since


@dataclass
class Storm:
    """What disturbs the writers."""

    savers: list[EngineSaver]
    branches: list[Branch]
    chance: random.Random
    runs: bool = True
    copies: int = 0

    async def disturb(self) -> None:
        """Random calls until the writers are done."""
        while self.runs:
            await asyncio.sleep(0)
            branch = self.chance.choice(self.branches)
            known = list(branch.expected)
            call = self.chance.choice([self.retry, self.copy, self.look_back, self.delete, self.forget, self.compact])
            if len(known) > 5:
                await call(self.chance.choice(self.savers), branch, known)

    async def retry(self, saver: EngineSaver, branch: Branch, known: list[str]) -> None:
        """The newest checkpoint again, by a caller that did not get the answer."""
        if branch.head == known[-1]:
            await saver.aput(*branch.puts[known[-1]])

    async def copy(self, saver: EngineSaver, branch: Branch, known: list[str]) -> None:
        if self.copies < 3:
            self.copies += 1
            copied = f"copy {self.copies}"
            await saver.acopy_thread("t", copied)
            for each in known:
                await branch.check(saver, each, copied)

    async def look_back(self, saver: EngineSaver, branch: Branch, known: list[str]) -> None:
        await branch.check(saver, self.chance.choice(known))

    async def delete(self, saver: EngineSaver, branch: Branch, known: list[str]) -> None:
        """Some older checkpoints, whose children stay."""
        gone = self.chance.sample(known[:-4], 1)
        branch.deleted |= {*gone}
        await saver.adelete_for_runs(gone)

    async def compact(self, saver: EngineSaver, branch: Branch, known: list[str]) -> None:
        """In the midst of writers, who may always come between."""
        with contextlib.suppress(ThreadBusyError):
            await saver.acompact_thread("t")

    async def forget(self, saver: EngineSaver, branch: Branch, known: list[str]) -> None:
        saver._bridge.engine.cache._threads.clear()


async def storm(storages: list[Storage], seed: int) -> None:
    chance = random.Random(seed)
    savers = [saver_over(storage, chance.choice([0, 20_000, 10**8])) for storage in storages]
    branches = [Branch(f"{number}", random.Random(seed * 10 + number)) for number in range(WRITERS)]
    for branch in branches:
        await branch.begin(savers[0])

    async def write(branch: Branch) -> None:
        for number in range(1, STEPS + 1):
            await branch.step(branch.random.choice(savers), number)

    disturbance = Storm(savers, branches, chance)
    disturbers = [asyncio.ensure_future(disturbance.disturb()) for _ in range(2)]
    try:
        await asyncio.gather(*(write(branch) for branch in branches))
    finally:
        disturbance.runs = False
        await asyncio.gather(*disturbers)
    for branch in branches:
        for checkpoint_id in branch.expected:
            for saver in savers:
                await branch.check(saver, checkpoint_id)
        left = [each async for each in savers[0].alist(at(None)) if each.checkpoint["id"].endswith(f"-{branch.name}")]
        assert len(left) == 1 + len(branch.expected.keys() - branch.deleted)


@pytest.mark.parametrize("seed", range(6))
async def test_branches_written_at_once_are_exact_in_memory(seed: int):
    await storm([MemoryStorage()] * 2, seed)


@pytest.mark.parametrize("seed", range(2))
async def test_branches_written_at_once_are_exact_on_postgresql(database_dsn: str, seed: int):
    storages = [await PostgresStorage.open(database_dsn, options=PoolOptions(min_size=1, max_size=4)) for _ in range(2)]
    try:
        await storm(list(storages), seed)
    finally:
        for storage in storages:
            await storage.close()
