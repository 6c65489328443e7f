"""Measures of reading: cold loads, history, and what one load or turn sends over the wire."""

from __future__ import annotations

import gc
import time

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from bench.errors import TargetError
from bench.measure import median
from bench.record import Load
from bench.recorder import Recorder
from bench.stage import Stage, ThreadPlayer, thread_config
from bench.wire import Traffic, counting_proxy
from bench.workloads.base import Conversation

TRAFFIC_TURNS_BEFORE = 3
Encoded = tuple[str, bytes]


async def cold_load(stage: Stage, thread_id: str, checkpoint_id: str | None, *, times: int) -> Load:
    """Loads a checkpoint (None: the head) by a new saver each time, and after each load decodes the values alone."""
    connects_ms, samples_ms, decodes_ms = [], [], []
    encoded: Encoded | None = None
    for _ in range(times):
        gc.collect()
        started = time.perf_counter()
        async with stage.opened() as graph:
            connected = time.perf_counter()
            state = await graph.aget_state(thread_config(thread_id, checkpoint_id))
            loaded = time.perf_counter()
        connects_ms.append((connected - started) * 1000)
        samples_ms.append((loaded - connected) * 1000)
        encoded = encoded or JsonPlusSerializer().dumps_typed(state.values)
        del state
        decodes_ms.append(decode_ms(encoded))
    return Load(
        connect_ms=round(median(connects_ms), 3),
        state_ms=round(median(samples_ms), 3),
        decode_ms=round(median(decodes_ms), 3),
        samples_ms=[round(sample, 3) for sample in samples_ms],
        traffic=await load_traffic(stage, thread_id, checkpoint_id) if stage.target.needs_server else None,
    )


def decode_ms(encoded: Encoded) -> float:
    """Time to decode values from one piece with LangGraph's serializer."""
    gc.collect()
    started = time.perf_counter()
    decoded = JsonPlusSerializer().loads_typed(encoded)
    elapsed_ms = (time.perf_counter() - started) * 1000
    del decoded
    return elapsed_ms


async def load_traffic(stage: Stage, thread_id: str, checkpoint_id: str | None) -> Traffic:
    """What one load by a new saver says to the server and hears from it."""
    async with counting_proxy(stage.target.place.dsn) as (dsn, counter), stage.opened(dsn=dsn) as graph:
        before = counter.traffic
        await graph.aget_state(thread_config(thread_id, checkpoint_id))
        return counter.traffic - before


async def turn_traffic(stage: Stage, conversation: Conversation) -> Traffic:
    """The same for the fourth turn of a new thread."""
    recorder = Recorder()
    async with counting_proxy(stage.target.place.dsn) as (dsn, counter), stage.opened(recorder, dsn=dsn) as graph:
        player = ThreadPlayer(graph, recorder, thread_id="traffic", durability=stage.durability)
        before = counter.traffic
        for turn in range(TRAFFIC_TURNS_BEFORE + 1):
            before = counter.traffic
            conversation.prepare(turn)
            await conversation.play(player, turn)
        return counter.traffic - before


async def history_s(stage: Stage, thread_id: str, checkpoints: int) -> float:
    """Time to read the last states of a thread, newest first, by a new saver; each is dropped before the next.

    Raises:
        TargetError: There are fewer states than there should be.
    """
    async with stage.opened() as graph:
        gc.collect()
        found = 0
        started = time.perf_counter()
        async for _ in graph.aget_state_history(thread_config(thread_id), limit=checkpoints):
            found += 1
        elapsed_s = time.perf_counter() - started
    if found != checkpoints:
        raise TargetError(f"history has {found} checkpoints, expected {checkpoints}")
    return elapsed_s
