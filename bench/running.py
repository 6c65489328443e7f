"""One repeat of one target in one graph while it runs, seen from the runner: what it measured, or what went wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.cell import CellSpec, Chunk
from bench.errors import BenchError, NotVerifiedError
from bench.measure import Latency, latency
from bench.record import CellResult, Figures, GrowthPoint, Load, Memory, Status, SweepPoint
from bench.server import Server, ServerUse
from bench.targets.base import TableBytes
from bench.wire import Traffic
from bench.worker import CellProcess

HEAD, BETWEEN, MIDDLE, MIDDLE_AS_HEAD = "head", "between snapshots", "middle", "middle as head"


@dataclass
class RunningCell:
    """Commands to a cell's process and what came back. After the first problem nothing is asked any more."""

    spec: CellSpec
    server: Server | None
    problem: BenchError | None = None
    chunks: list[Chunk] = field(default_factory=list)
    growth: list[GrowthPoint] = field(default_factory=list)
    tables: list[TableBytes] = field(default_factory=list)
    server_cpu_s: float | None = 0.0
    wal_bytes: int = 0
    state_bytes: int = 0
    loads: dict[str, Load] = field(default_factory=dict)
    turn_traffic: Traffic | None = None
    history: tuple[int, float] | None = None
    points: list[SweepPoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._process = CellProcess(self.spec)

    @property
    def name(self) -> str:
        """Target and graph."""
        return f"{self.spec.target.name} {self.spec.kind}"

    @property
    def checkpoints(self) -> int:
        """Saved so far."""
        return sum(chunk.checkpoints for chunk in self.chunks)

    def open(self) -> None:
        """Makes the tables and opens the saver; the growth curve starts at what empty tables take."""
        self._ask("open")
        self._note_growth(0, None)

    def play(self, first: int, last: int, watched: Collection[int]) -> None:
        """Plays a chunk of turns, and reads the server's counters around it and the stored bytes after it."""
        before = self._server_use()
        chunk: Chunk | None = self._ask("play", first, last, watched)
        after = self._server_use()
        if chunk is None or self.problem:
            return
        if before and after:
            self.wal_bytes += after.wal_bytes - before.wal_bytes
            if self.server_cpu_s is not None and after.cpu_s is not None and before.cpu_s is not None:
                self.server_cpu_s += after.cpu_s - before.cpu_s
            else:
                self.server_cpu_s = None
        self.chunks.append(chunk)
        self._note_growth(last + 1, chunk)

    def verify(self, turns: Collection[int]) -> None:
        """Proves what is stored; a difference becomes the cell's problem."""
        self._ask("verify", turns)
        self.state_bytes = self._ask("state_bytes", max(turns) + 1) or 0

    def load(self, turns: Mapping[str, int | None], times: int) -> None:
        """Cold loads of the ends of turns (None: of the head), by the names that the loads get in the record."""
        self.loads |= self._ask("load", turns, times) or {}

    def read_history(self, checkpoints: int) -> None:
        """Reads the last checkpoints, as many as there are."""
        count = min(checkpoints, self.checkpoints)
        if count and (elapsed_s := self._ask("history", count)):
            self.history = (count, round(elapsed_s, 4))

    def count_turn(self) -> None:
        """Counts one turn on the wire."""
        if self.server:
            self.turn_traffic = self._ask("turn_traffic")

    def sweep(self, threads: int, turns: int) -> None:
        """Throughput at one number of threads."""
        if point := self._ask("sweep", threads, turns):
            self.points.append(point)

    def close(self) -> None:
        """Closes the saver and ends the process."""
        self._ask("close")
        self._process.stop()

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()

    def figures(self) -> Figures:
        """Everything measured."""
        samples: dict[str, list[float]] = defaultdict(list)
        for chunk in self.chunks:
            for operation, values in chunk.samples_ms.items():
                samples[operation] += values
        start_bytes = self.chunks[0].start_bytes
        count, elapsed_s = self.history or (0, None)
        return Figures(
            wall_s=round(sum(chunk.wall_s for chunk in self.chunks), 4),
            client_cpu_s=round(sum(chunk.cpu_s for chunk in self.chunks), 4),
            server_cpu_s=round(self.server_cpu_s, 2) if self.server and self.server_cpu_s is not None else None,
            wal_bytes=self.wal_bytes if self.server else None,
            tables=self.tables,
            latencies=_latencies(samples),
            growth=self.growth,
            memory=Memory(start_bytes, max(chunk.peak_bytes for chunk in self.chunks), self.state_bytes),
            loads=self.loads,
            turn_traffic=self.turn_traffic,
            history_checkpoints=count,
            history_s=elapsed_s,
            sweep=self.points,
        )

    def _server_use(self) -> ServerUse | None:
        if self.problem or not self.server:
            return None
        try:
            return self.server.use()
        except BenchError as problem:
            self.problem = problem
            self._process.kill()
            return None

    def _note_growth(self, turns: int, chunk: Chunk | None) -> None:
        self.tables = self._ask("stored") or []
        stored_bytes = sum(table.total_bytes for table in self.tables)
        latencies = _latencies(chunk.samples_ms) if chunk else {}
        p50_ms = {operation: calls.p50_ms for operation, calls in latencies.items()}
        p95_ms = {operation: calls.p95_ms for operation, calls in latencies.items()}
        self.growth.append(GrowthPoint(turns, stored_bytes, round(chunk.wall_s, 4) if chunk else 0.0, p50_ms, p95_ms))

    def _ask(self, method: str, *args: Any) -> Any:
        if self.problem:
            return None
        try:
            return self._process.call(method, *args)
        except BenchError as problem:
            self.problem = problem
            self._process.kill()
            return None


def _latencies(samples_ms: Mapping[str, list[float]]) -> dict[str, Latency]:
    return {name: summary for name, values in samples_ms.items() if (summary := latency(values))}


def loaded_turns(turns: int, snapshot_frequency: int, checkpoints: int) -> dict[str, int | None]:
    """What is loaded after a run, each by the turn that it is the end of; None for the head.

    With DeltaChannels the head of a run of a round length is a snapshot, the cheapest checkpoint there is to load; the
    one half a frequency of updates before it is an ordinary one. Each checkpoint of a turn but the first is an update.

    Args:
        snapshot_frequency: Of the DeltaChannels, in updates.
        checkpoints: Saved in all turns.
    """
    updates_per_turn = max(1, checkpoints // turns - 1)
    before = turns - 1 - max(1, round(snapshot_frequency / 2 / updates_per_turn))
    return {HEAD: None, **({BETWEEN: before} if before >= 0 else {}), MIDDLE: turns // 2 - 1}


def cell_result(repeats: list[RunningCell]) -> CellResult:
    """The result of all repeats of a cell: figures only if every one of them is verified."""
    spec = repeats[0].spec
    problem = next((cell.problem for cell in repeats if cell.problem), None)
    status: Status = "verified"
    if problem:
        status = "not verified" if isinstance(problem, NotVerifiedError) else "failed"
    figures = [] if problem else [cell.figures() for cell in repeats]
    return CellResult(spec.target.name, spec.kind, status, str(problem or ""), figures)
