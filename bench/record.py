"""The record of a run: what is written as JSON, and what reports are made from."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pydantic

from bench.errors import UsageError
from bench.files import write_whole
from bench.measure import Latency
from bench.targets.base import TableBytes
from bench.wire import Traffic

FORMAT = 1
Status = Literal["verified", "not verified", "failed"]


@dataclass(frozen=True)
class GrowthPoint:
    """Where a run stood after a number of turns.

    Args:
        stored_bytes: By then, with all indexes.
        wall_s: Time of the turns since the point before.
        p50_ms: Median latencies by operation, of the calls since the point before.
        p95_ms: The same, 95th percentile.
    """

    turns: int
    stored_bytes: int
    wall_s: float
    p50_ms: dict[str, float]
    p95_ms: dict[str, float]


@dataclass(frozen=True)
class Memory:
    """Memory of the client process, in bytes.

    Args:
        start_bytes: Resident before the first turn, with everything imported and open.
        peak_bytes: Highest resident during the turns.
        state_bytes: Final state as objects in memory.
    """

    start_bytes: int
    peak_bytes: int
    state_bytes: int

    @property
    def above_state_bytes(self) -> int:
        """What the run took beyond the start and one copy of its state; 0 if memory from before held part of that."""
        return max(0, self.peak_bytes - self.start_bytes - self.state_bytes)


@dataclass(frozen=True)
class Load:
    """Loads of one checkpoint, each by a new saver, medians in milliseconds.

    Args:
        connect_ms: Opening the saver up to its first answer.
        state_ms: The graph's state from there (`aget_state`).
        decode_ms: Decoding the same values from one piece with the serializer alone, in the same process.
        samples_ms: All samples of `state_ms`.
        traffic: What went over the wire for it; None without a server.
        updates_since_snapshot: Of the DeltaChannel that had most of them; None without DeltaChannels.
    """

    connect_ms: float
    state_ms: float
    decode_ms: float
    samples_ms: list[float]
    traffic: Traffic | None = None
    updates_since_snapshot: int | None = None


@dataclass(frozen=True)
class SweepPoint:
    """Throughput at one number of threads of work at the same time."""

    threads: int
    turns: int
    turns_per_s: float
    turn: Latency


@dataclass(frozen=True)
class Figures:
    """What one repeat of one target in one graph measured.

    Args:
        server_cpu_s: None if there is no server or it is on another machine.
        latencies: By operation: put, put_writes, get_tuple, delta_history and turn.
        loads: `head`, `between snapshots` (half a snapshot frequency before it), `middle` (the checkpoint half way) and
            `middle as head` (the same, when it was the head).
        turn_traffic: One turn of a short conversation over the wire.
        history_s: Reading `history_checkpoints` states by `aget_state_history`.
    """

    wall_s: float
    client_cpu_s: float
    server_cpu_s: float | None
    wal_bytes: int | None
    tables: list[TableBytes]
    latencies: dict[str, Latency]
    growth: list[GrowthPoint]
    memory: Memory
    loads: dict[str, Load] = field(default_factory=dict)
    turn_traffic: Traffic | None = None
    history_checkpoints: int = 0
    history_s: float | None = None
    sweep: list[SweepPoint] = field(default_factory=list)

    @property
    def stored_bytes(self) -> int:
        """All tables with all indexes."""
        return sum(table.total_bytes for table in self.tables)


@dataclass(frozen=True)
class CellResult:
    """One target in one graph. Without verification there are no figures."""

    target: str
    graph: str
    status: Status
    problem: str
    figures: list[Figures]


@dataclass(frozen=True)
class Limits:
    """What no saver can beat on the same data.

    Args:
        state_bytes: The final state in one piece, as the serializer writes it.
        zstd3_bytes: The same compressed once, level 3.
        decode_ms: Time to decode it with the serializer alone.
        row_ms: Time to read the compressed piece from PostgreSQL as one row and decompress it; None without a server.
    """

    state_bytes: int
    zstd3_bytes: int
    decode_ms: float
    row_ms: float | None


@dataclass(frozen=True)
class WorkloadResult:
    """One workload on all targets.

    Args:
        turns: Turns played; fewer than asked for if the run was interrupted.
    """

    name: str
    summary: str
    turns: int
    checkpoints: int
    limits: Limits
    cells: list[CellResult]


@dataclass(frozen=True)
class Record:
    """A run.

    Args:
        digests: SHA-256 of the `text` and the `trace` that were played; empty in records from before there were any.
    """

    started_at: str
    seconds: float
    interrupted: bool
    options: dict[str, Any]
    machine: dict[str, str]
    versions: dict[str, str]
    server: dict[str, str]
    commit: str
    workloads: list[WorkloadResult]
    digests: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def has_figures(self) -> bool:
        """Whether anything was measured."""
        return any(cell.figures for workload in self.workloads for cell in workload.cells)


def write_record(record: Record, path: Path) -> None:
    """Writes a record as JSON.

    Raises:
        UsageError: It cannot be written.
    """
    write_whole(path, json.dumps(dataclasses.asdict(record), indent=1) + "\n")


def read_record(path: Path) -> Record:
    """Reads a record.

    Raises:
        UsageError: It cannot be read, or is no record of this format.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"record {path} cannot be read: {error}") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise UsageError(f"{path} is no record of format {FORMAT}: run `python -m bench run` again")
    try:
        return pydantic.TypeAdapter(Record).validate_python(raw)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"record {path} is damaged at {where}: {first['msg']}") from error
