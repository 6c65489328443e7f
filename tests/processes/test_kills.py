"""`kill -9` of a client and of the server, again and again on one thread.

Each acknowledged save is there, each checkpoint reads exactly the state of its step, and the next run goes on to the
right end. What each durability mode may lose is no more than LangGraph promises of it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from langgraph.types import StateSnapshot

from deltastore import DeltaSaver
from tests.processes.child import CONFIG, NODES, PER_TURN, Durability, Job, Kind, build, command, message, text
from tests.support.processes import ROOT, eventually
from tests.support.servers import DurableServer

ENDLESS = 10_000
STEPS_PER_TURN = 2 + len(NODES)
"""Checkpoints of one turn: its input, the input taken in, and one after each node."""
KILLED = -signal.SIGKILL


@dataclass
class Seen:
    """What workers told.

    Attributes:
        acknowledged: Steps of the saves that were acknowledged, by checkpoint id.
        begun: Ids of the saves that were begun.
        length: Messages that the last node found, which is how many the checkpoint before it has.
    """

    acknowledged: dict[str, int] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    length: int = 0

    def note(self, event: str, *rest: str) -> None:
        if event == "saved":
            self.acknowledged[rest[0]] = int(rest[1])
        elif event == "saving":
            self.begun.add(rest[0])
        elif event == "node":
            self.length = int(rest[0])

    @property
    def acknowledged_length(self) -> int:
        """Messages in the newest state that was acknowledged."""
        return max(map(length_at, self.acknowledged.values()), default=0)


class Nursery:
    """Starts workers one after the other and reads what they tell."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    def start(self, job: Job) -> int:
        """A worker begins; returns its process id."""
        self._input.write(command(job))
        self._input.flush()
        event, worker = self._output.readline().split()
        assert event == "started"
        return int(worker)

    def events(self) -> Iterator[list[str]]:
        """What the worker tells, up to and with `ended`."""
        while True:
            words = self._output.readline().split()
            yield words
            if words[0] == "ended":
                return

    def finish(self, job: Job, seen: Seen) -> None:
        """Does a job undisturbed."""
        self.start(job)
        for words in self.events():
            seen.note(*words)
        assert words == ["ended", "0"]

    def kill(self, job: Job, seen: Seen, *, after_events: int, after_seconds: float) -> None:
        """Begins a job and kills its worker so long after its n-th event; what it had told by then counts."""
        worker = self.start(job)
        for number, words in enumerate(self.events(), 1):
            seen.note(*words)
            if number == after_events:
                time.sleep(after_seconds)
                os.kill(worker, signal.SIGKILL)
        assert words == ["ended", str(KILLED)]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.processes.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        yield Nursery(process)


def length_at(step: int) -> int:
    """How many messages there are after a step; the stub that exit durability begins a thread with has none."""
    turn, done = divmod(max(step, -1) + 1, STEPS_PER_TURN)
    return turn * PER_TURN + done


def check_state(state: StateSnapshot, *, repeats: bool) -> None:
    """The state is that of its step, whole; with `repeats` a text may be in the log more than once."""
    assert state.metadata is not None
    length = length_at(state.metadata["step"])
    assert state.values.get("messages", []) == [message(index) for index in range(length)]
    log = state.values.get("log", [])
    assert (list(dict.fromkeys(log)) if repeats else log) == [text(index) for index in range(length)]


@dataclass(frozen=True)
class Observer:
    """Reads the thread with a saver of its own, as the next process would."""

    job: Job

    @property
    def repeats(self) -> bool:
        """Whether a run that was cut off may show in the log.

        At the exit of a run LangGraph hangs its writes to DeltaChannels on the checkpoint before it, and saves then the
        new one. Nothing tells the writes of a run killed in between from those of the next: on every saver both count.
        """
        return self.job.kind == "DeltaChannel" and self.job.durability == "exit"

    async def check(self, seen: Seen, newest: int | None = None) -> int:
        """Checks the given acknowledged saves, and the newest checkpoints or all; returns the head's length."""
        async with DeltaSaver.from_conn_string(self.job.dsn, snapshot_frequency=5) as saver:
            graph = build(self.job.kind, saver)
            for each, step in seen.acknowledged.items():
                config: Any = {"configurable": {**CONFIG["configurable"], "checkpoint_id": each, "checkpoint_ns": ""}}
                found = await saver.aget_tuple(config)
                assert found is not None, f"the acknowledged checkpoint {each} of step {step} is lost"
                assert found.metadata["step"] == step
                check_state(await graph.aget_state(config), repeats=self.repeats)
            states = [state async for state in graph.aget_state_history(CONFIG, limit=newest)]
            for state in states:
                check_state(state, repeats=self.repeats)
            return len(states[0].values.get("messages", [])) if states else 0

    async def stored(self) -> set[str]:
        """The ids of all checkpoints."""
        async with DeltaSaver.from_conn_string(self.job.dsn) as saver:
            return {each.checkpoint["id"] async for each in saver.alist(CONFIG)}

    def is_alone(self) -> bool:
        """Whether the server has noticed that the killed client is gone: until then its last statement may commit."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        with psycopg.connect(self.job.dsn) as connection:
            return connection.execute(query + " AND backend_type = 'client backend'").fetchone() == (0,)


def check_loss(durability: Durability, before: int, seen: Seen, head: int) -> None:
    """Nothing acknowledged is lost, nor more than the mode allows; `before` is the length that the run began with."""
    known = max(before, seen.acknowledged_length)
    assert head >= known
    if durability == "sync":
        assert head >= seen.length, "more than the current super-step is lost"
    if durability == "exit":
        assert head in (known, known + PER_TURN), "the state is neither that before the run nor that after it"
        assert head % PER_TURN == 0


@pytest.mark.parametrize(
    ("kind", "durability", "kills"),
    [
        ("ordinary", "sync", 4),
        ("DeltaChannel", "async", 8),
        ("ordinary", "exit", 3),
        ("DeltaChannel", "exit", 3),
        *(
            pytest.param(kind, durability, 50, marks=pytest.mark.slow)
            for kind in ("ordinary", "DeltaChannel")
            for durability in ("sync", "async", "exit")
        ),
    ],
)
def test_a_client_killed_at_random_moments(
    nursery: Nursery, database_dsn: str, kind: Kind, durability: Durability, kills: int
) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)
    moments = random.Random(seed)
    job = Job(database_dsn, kind, durability, ENDLESS)
    observer = Observer(job)
    everything = Seen()
    head = 0
    for _ in range(kills):
        seen = Seen(length=head)
        after_seconds = moments.choice((0, moments.uniform(0, 0.005)))
        nursery.kill(job, seen, after_events=moments.randint(1, 40), after_seconds=after_seconds)
        assert eventually(observer.is_alone)
        before, head = head, asyncio.run(observer.check(seen, newest=len(seen.begun) + 1))
        check_loss(durability, before, seen, head)
        everything.acknowledged |= seen.acknowledged
        everything.begun |= seen.begun
    turns = head // PER_TURN + 2
    nursery.finish(Job(database_dsn, kind, durability, turns), everything)
    assert asyncio.run(observer.check(everything)) == turns * PER_TURN
    stored = asyncio.run(observer.stored())
    assert everything.acknowledged.keys() <= stored <= everything.begun
    untold = len(stored - everything.acknowledged.keys())
    print(
        f"{kills} kills, {len(everything.begun)} saves begun, {len(stored)} stored, {untold} of them not acknowledged"
    )


@pytest.mark.parametrize(
    ("kind", "durability", "kills"),
    [
        ("DeltaChannel", "async", 2),
        *(
            pytest.param(kind, durability, 10, marks=pytest.mark.slow)
            for kind, durability in (("ordinary", "sync"), ("ordinary", "async"), ("DeltaChannel", "sync"))
        ),
    ],
)
def test_a_server_killed_at_random_moments_under_a_client_that_goes_on(
    nursery: Nursery, durable_server: DurableServer, kind: Kind, durability: Durability, kills: int
) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)
    moments = random.Random(seed)
    job = Job(durable_server.dsn, kind, durability, turns=3 * kills)
    asyncio.run(set_up(job.dsn))
    seen = Seen()
    nursery.start(job)
    events = nursery.events()
    for _ in range(kills):
        for _, words in zip(range(moments.randint(3, 50)), events, strict=False):
            seen.note(*words)
        assert words[0] != "ended", "the client did not live to see the kill"
        time.sleep(moments.uniform(0, 0.005))
        durable_server.kill()
        durable_server.start()
    for words in events:
        seen.note(*words)
    assert words == ["ended", "0"], "the client did not get over it"
    assert seen.acknowledged.keys() == seen.begun
    assert asyncio.run(Observer(job).check(seen)) == job.turns * PER_TURN
    print(f"{kills} kills, {len(seen.acknowledged)} acknowledged saves, all there")


async def set_up(dsn: str) -> None:
    async with DeltaSaver.from_conn_string(dsn) as saver:
        await saver.setup()
