"""One target in one graph, from empty tables to the last measure. Runs in a process of its own (`bench.worker`)."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import loads
from bench.measure import PeakMemory, deep_size_bytes
from bench.record import Load, SweepPoint
from bench.recorder import Evidence, Recorder
from bench.stage import Stage, ThreadPlayer
from bench.sweep import sweep
from bench.targets import TargetSpec
from bench.targets.base import Place, TableBytes
from bench.verify import verify_thread
from bench.wire import Traffic
from bench.workloads import make_workload
from bench.workloads.base import GraphKind

THREAD_ID = "main"
WARM_UP_TURNS = 3
WARM_UP_CONVERSATION = 900_000
TRAFFIC_CONVERSATION = 900_001
SWEEP_CONVERSATIONS = 1_000  # numbers of a level's conversations start at this, times the level


@dataclass(frozen=True)
class CellSpec:
    """All that a worker process has to know.

    Args:
        place: Where the run's own data goes.
        side_place: Where warm-up and sweep go, so that they add no bytes to the run's.
    """

    workload: str
    seed: int
    trace: Path | None
    target: TargetSpec
    kind: GraphKind
    snapshot_frequency: int
    durability: str
    place: Place
    side_place: Place


@dataclass(frozen=True)
class Chunk:
    """Some turns in a row.

    Args:
        samples_ms: Latencies by operation.
        checkpoints: Saved in these turns.
    """

    wall_s: float
    cpu_s: float
    start_bytes: int
    peak_bytes: int
    checkpoints: int
    samples_ms: dict[str, list[float]]


class Cell:
    """The measures of one cell, in the order in which the runner asks for them."""

    def __init__(self, spec: CellSpec) -> None:
        workload = make_workload(spec.workload, seed=spec.seed, trace=spec.trace)
        make_target = spec.target.maker()
        common = (spec.kind, spec.snapshot_frequency, spec.durability)
        self._stage = Stage(workload, make_target(spec.place), *common)
        self._side_stage = Stage(workload, make_target(spec.side_place), *common)
        self._conversation = workload.conversation(0)
        self._recorder = Recorder()
        self._evidence: list[Evidence] = []
        self._head_ids: dict[int, str] = {}
        self._memory = PeakMemory()
        self._open = AsyncExitStack()

    async def open(self) -> None:
        """Makes the tables, warms up elsewhere and opens the saver."""
        await self._stage.target.setup()
        await self._side_stage.target.setup()
        await self._warm_up()
        graph = await self._open.enter_async_context(self._stage.opened(self._recorder))
        self._player = ThreadPlayer(graph, self._recorder, thread_id=THREAD_ID, durability=self._stage.durability)
        self._recorder.take_latencies()

    async def _warm_up(self) -> None:
        conversation, recorder = self._stage.workload.conversation(WARM_UP_CONVERSATION), Recorder()
        async with self._side_stage.opened(recorder) as graph:
            player = ThreadPlayer(graph, recorder, thread_id="warm-up", durability=self._stage.durability)
            for turn in range(WARM_UP_TURNS):
                conversation.prepare(turn)
                await conversation.play(player, turn)

    async def play(self, first: int, last: int, watched: Collection[int]) -> Chunk:
        """Plays turns `first` to `last`, both included; looks closely at the watched ones."""
        for turn in range(first, last + 1):
            self._conversation.prepare(turn)
        self._memory.reset()
        start_bytes, wall_s, cpu_s = self._memory.now_bytes(), 0.0, 0.0
        turns_ms: list[float] = []
        for turn in range(first, last + 1):
            with self._recorder.watch(turn in watched) as evidence:
                cpu_before, started = time.process_time(), time.perf_counter()
                await self._conversation.play(self._player, turn)
                elapsed_s = time.perf_counter() - started
                cpu_s += time.process_time() - cpu_before
            wall_s += elapsed_s
            turns_ms.append(elapsed_s * 1000)
            self._evidence += evidence
            self._head_ids[turn] = self._player.head_id()
        samples_ms = {**self._recorder.take_latencies(), "turn": turns_ms}
        puts = len(samples_ms["put"])
        return Chunk(wall_s, cpu_s, start_bytes, self._memory.peak_bytes(), puts, samples_ms)

    async def stored(self) -> list[TableBytes]:
        """Stored bytes of the run so far, by table."""
        return await self._stage.target.stored()

    async def verify(self, turns: Collection[int]) -> None:
        """Proves that the ends of these turns, the watched checkpoints and the head are as they should be."""
        head_ids = {turn: self._head_ids[turn] for turn in turns}
        await verify_thread(
            self._stage,
            self._conversation,
            THREAD_ID,
            head_ids=head_ids,
            saved_ids=self._recorder.saved_ids[THREAD_ID],
            evidence=self._evidence,
        )

    async def state_bytes(self, turns: int) -> int:
        """The final state as objects in memory."""
        states = self._stage.workload.conversation(0).expected_states()
        final = next(state for turn, state in enumerate(states, start=1) if turn == turns)
        return deep_size_bytes(final)

    async def load(self, turns: Mapping[str, int | None], times: int) -> dict[str, Load]:
        """Cold loads of the ends of turns by their ids, or of the head (None), by name."""
        ids = {name: None if turn is None else self._head_ids[turn] for name, turn in turns.items()}
        return await loads.cold_loads(self._stage, THREAD_ID, ids, times=times)

    async def history(self, checkpoints: int) -> float:
        """Time to read the last checkpoints of the thread."""
        return await loads.history_s(self._stage, THREAD_ID, checkpoints)

    async def turn_traffic(self) -> Traffic:
        """One turn of a short conversation over the wire."""
        return await loads.turn_traffic(self._side_stage, self._stage.workload.conversation(TRAFFIC_CONVERSATION))

    async def sweep(self, threads: int, turns: int) -> SweepPoint:
        """Throughput at one number of threads of work."""
        return await sweep(self._side_stage, threads, turns=turns, first_number=threads * SWEEP_CONVERSATIONS)

    async def close(self) -> None:
        """Closes the saver."""
        await self._open.aclose()
