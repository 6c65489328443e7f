"""Throughput with many threads of work at the same time, in one event loop on one saver."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

from bench.measure import latency
from bench.options import CONVERSATIONS_MIN
from bench.record import SweepPoint
from bench.recorder import Recorder
from bench.stage import Graph, Stage, ThreadPlayer
from bench.verify import verify_thread
from bench.workloads.base import Conversation

VERIFIED_CONVERSATIONS = 4


async def sweep(stage: Stage, threads: int, *, turns: int, first_number: int) -> SweepPoint:
    """Plays conversations of `turns` turns, `threads` of them at any moment, and verifies some of them.

    Args:
        first_number: Number of the first conversation; they must be new to the target.

    Raises:
        NotVerifiedError: A conversation is not as it should be.
    """
    count = max(threads, CONVERSATIONS_MIN)
    conversations = [stage.workload.conversation(first_number + number) for number in range(count)]
    for conversation in conversations:
        for turn in range(turns):
            conversation.prepare(turn)
    recorder = Recorder()
    async with stage.opened(recorder) as graph:
        gc.collect()
        started = time.perf_counter()
        waiting, samples_ms = iter(conversations), list[float]()
        async with asyncio.TaskGroup() as group:
            for _ in range(threads):
                group.create_task(_work(stage, graph, recorder, waiting=waiting, turns=turns, samples_ms=samples_ms))
        elapsed_s = time.perf_counter() - started
    for conversation in conversations[:: max(1, count // VERIFIED_CONVERSATIONS)]:
        thread_id = _thread_id(conversation)
        saved_ids = recorder.saved_ids[thread_id]
        head_ids = {turns - 1: saved_ids[-1]}
        await verify_thread(stage, conversation, thread_id, head_ids=head_ids, saved_ids=saved_ids, evidence=())
    played = latency(samples_ms)
    assert played is not None
    return SweepPoint(threads, played.count, round(played.count / elapsed_s, 2), played)


async def _work(
    stage: Stage,
    graph: Graph,
    recorder: Recorder,
    *,
    waiting: Iterator[Conversation],
    turns: int,
    samples_ms: list[float],
) -> None:
    """One thread of work: takes the next conversation and plays it, until there is none."""
    for conversation in waiting:
        player = ThreadPlayer(graph, recorder, thread_id=_thread_id(conversation), durability=stage.durability)
        for turn in range(turns):
            started = time.perf_counter()
            await conversation.play(player, turn)
            samples_ms.append((time.perf_counter() - started) * 1000)


def _thread_id(conversation: Conversation) -> str:
    return f"sweep-{conversation.number}"
