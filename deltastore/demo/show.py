"""Runs the workers, kills one with `kill -9`, checks every state against the conversation, and measures."""

from __future__ import annotations

import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from deltastore.demo.conversation import Conversation, load
from deltastore.demo.graph import GraphKind, build
from deltastore.demo.savers import Place, SaverKind
from deltastore.demo.screen import Result, Screen
from deltastore.demo.worker import CONFIG, Job
from deltastore.embedded import DSN_PREFIX, EmbeddedServer, embedded_folder
from deltastore.errors import DeltastoreError, StoredDataError

LOADS = 5


class WorkerError(DeltastoreError):
    """A worker process ended with an error of its own, which it has printed."""


@dataclass(frozen=True)
class Look:
    """What a new saver finds on the thread."""

    messages: int
    checkpoints: int
    tasks: tuple[str, ...]
    load_ms: float


def run(screen: Screen, *, turns: int, trace: Path | None, dsn: str | None) -> list[Result]:
    """Shows all of it and returns what was measured.

    Args:
        screen: Where to show it.
        turns: Length of the conversation.
        trace: Recorded conversations, or None for text from the standard library.
        dsn: The database to use, or None for an embedded server in a folder that is removed afterwards.

    Raises:
        StoredDataError: A state differs from the conversation.
        DeltastoreError: Something else went wrong.
    """
    conversation = load(trace, turns)
    screen.begin(conversation, turns)
    began = time.monotonic()
    with _database(dsn) as address:
        screen.say(f"PostgreSQL is ready after {time.monotonic() - began:.1f} s.")
        results = []
        for graph in get_args(GraphKind):
            for saver in get_args(SaverKind):
                with _place(saver, address) as place:
                    results.append(_play(Job(graph, place, turns, trace), conversation, screen))
    screen.end(results)
    return results


@contextmanager
def _database(dsn: str | None) -> Iterator[str]:
    if dsn is None:
        temporary = tempfile.TemporaryDirectory(prefix="deltastore-demo-")
        with temporary as folder, EmbeddedServer(Path(folder) / "server") as server:
            yield server.dsn
    elif dsn.partition(":")[0] == DSN_PREFIX:
        with EmbeddedServer(embedded_folder(dsn)) as server:
            yield server.dsn
    else:
        yield dsn


@contextmanager
def _place(saver: SaverKind, dsn: str) -> Iterator[Place]:
    place = Place(saver, dsn, f"deltastore_demo_{uuid.uuid4().hex[:12]}")
    try:
        asyncio.run(place.prepare())
        yield place
    finally:
        place.remove()


def _play(job: Job, conversation: Conversation, screen: Screen) -> Result:
    """One row of the table. The run on deltastore is killed in the middle and resumed by a new process."""
    with screen.progress(f"{job.graph}, {job.place.kind}", job.turns) as advance:
        if job.place.kind == "deltastore":
            _play_until_killed(job, conversation, screen, advance)
        with _worker(job) as worker:
            _follow(worker, advance, job.turns)
            if worker.wait() != 0:
                raise WorkerError(f"process {worker.pid} ended with code {worker.returncode}")
    found = asyncio.run(_look(job, conversation, len(conversation.messages)))
    return Result(job.graph, job.place.kind, found.checkpoints, job.place.stored_bytes(), found.load_ms)


def _play_until_killed(job: Job, conversation: Conversation, screen: Screen, advance: Callable[[int], None]) -> None:
    with _worker(job) as victim:
        seconds_per_turn = _follow(victim, advance, job.turns // 2)
        time.sleep(random.uniform(0.2, 0.8) * seconds_per_turn)  # noqa: S311 - some moment within the next turn
        victim.kill()
        victim.wait()
    found = asyncio.run(_look(job, conversation, conversation.starts[job.turns // 2]))
    node = f"in its node {found.tasks[0]!r}" if found.tasks else "between two turns"
    screen.say(
        f"  kill -9 of process {victim.pid} in turn {job.turns // 2 + 1}: {found.messages:,} messages are there,\n"
        f"  it stood {node}; a new process goes on from there"
    )


@contextmanager
def _worker(job: Job) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "deltastore.demo.worker", job.to_json()]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _follow(worker: subprocess.Popen[str], advance: Callable[[int], None], turns: int) -> float:
    """Returns when the worker has finished so many turns: seconds that a turn took, about."""
    assert worker.stdout is not None
    began = time.monotonic()
    for line in worker.stdout:
        advance(int(line))
        if int(line) == turns:
            return (time.monotonic() - began) / turns
    raise WorkerError(f"process {worker.pid} ended with code {worker.wait()}", detail=f"expected {turns} turns")


async def _look(job: Job, conversation: Conversation, messages_min: int) -> Look:
    """Loads the last state with new savers; it has to be a beginning of the conversation, of this length or longer."""
    elapsed_ms = []
    for _ in range(LOADS):
        async with job.place.open() as saver:
            graph = build(job.graph, conversation, saver)
            began = time.perf_counter()
            state = await graph.aget_state(CONFIG)
            elapsed_ms.append(1000 * (time.perf_counter() - began))
    messages = state.values["messages"]
    if len(messages) < messages_min or messages != list(conversation.messages[: len(messages)]):
        raise StoredDataError(
            f"the {job.graph} graph on {job.place.kind} has other messages than were said",
            detail=f"found {len(messages)}, expected at least {messages_min}, the same as in the conversation",
        )
    step = (state.metadata or {}).get("step", -2)
    tasks = tuple(task.name for task in state.tasks)  # not `next`: a task whose writes are saved is not done yet
    return Look(len(messages), step + 2, tasks, statistics.median(elapsed_ms))
