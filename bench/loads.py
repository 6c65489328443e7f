"""Measures of reading: cold loads, history, and what one load or turn sends over the wire."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Mapping
from typing import Any

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


class _Loading:
    """Loads of one checkpoint, one at a time."""

    def __init__(self, stage: Stage, thread_id: str, checkpoint_id: str | None) -> None:
        self._stage = stage
        self._place = (thread_id, checkpoint_id)
        self._connects_ms: list[float] = []
        self._samples_ms: list[float] = []
        self._decodes_ms: list[float] = []
        self._encoded: Encoded | None = None
        self._updates: int | None = None

    async def once(self) -> None:
        """Loads it by a new saver, and then decodes the values alone."""
        gc.collect()
        started = time.perf_counter()
        async with self._stage.opened() as graph:
            connected = time.perf_counter()
            state = await graph.aget_state(thread_config(*self._place))
            loaded = time.perf_counter()
        self._connects_ms.append((connected - started) * 1000)
        self._samples_ms.append((loaded - connected) * 1000)
        self._encoded = self._encoded or JsonPlusSerializer().dumps_typed(state.values)
        self._updates = _updates_since_snapshot(state.metadata) if self._stage.kind == "delta" else None
        del state
        self._decodes_ms.append(decode_ms(self._encoded))

    async def load(self) -> Load:
        """The medians, and what one more load sends over the wire."""
        needs_server = self._stage.target.needs_server
        return Load(
            connect_ms=round(median(self._connects_ms), 3),
            state_ms=round(median(self._samples_ms), 3),
            decode_ms=round(median(self._decodes_ms), 3),
            samples_ms=[round(sample, 3) for sample in self._samples_ms],
            traffic=await load_traffic(self._stage, *self._place) if needs_server else None,
            updates_since_snapshot=self._updates,
        )


def _updates_since_snapshot(metadata: Mapping[str, Any] | None) -> int:
    counters = (metadata or {}).get("counters_since_delta_snapshot") or {}
    return max((updates for updates, _steps in counters.values()), default=0)


async def cold_loads(
    stage: Stage, thread_id: str, checkpoint_ids: Mapping[str, str | None], *, times: int
) -> dict[str, Load]:
    """Loads checkpoints (None: the head), each so many times; the result has the same names.

    They take turns, in an order drawn for each round, so that whatever the machine does meanwhile happens to all alike.
    """
    order = random.Random(stage.workload.seed)
    loadings = {name: _Loading(stage, thread_id, checkpoint_id) for name, checkpoint_id in checkpoint_ids.items()}
    for _ in range(times):
        for loading in order.sample(list(loadings.values()), len(loadings)):
            await loading.once()
    return {name: await loading.load() for name, loading in loadings.items()}


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
