"""Runs workloads on targets. It knows neither: cells do the work, and this decides who works when.

All targets play a few turns each (a chunk), so that a machine that gets slower or faster meanwhile does so for all of
them, and only one of them works at any moment. The order is drawn anew for each chunk and each later phase, from the
seed, so that none of them always follows the same one. Every target has a process and a database of its own. One
repeat:

    open all - chunks of turns (half way: loads of the head) - verify - loads - history - traffic - sweep

The first Ctrl-C cuts all targets at the same turn; what was played is verified and reported. The second one drops the
workload.
"""

from __future__ import annotations

import itertools
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from bench import machine
from bench.cell import CellSpec
from bench.errors import TargetError
from bench.interrupt import Interrupt
from bench.limits import measure_limits
from bench.options import CONVERSATIONS_MIN, RunOptions
from bench.record import Record, WorkloadResult
from bench.running import MIDDLE_AS_HEAD, RunningCell, cell_result, loaded_turns
from bench.server import EMBEDDED, Server, open_server
from bench.targets import TargetSpec
from bench.targets.base import Place
from bench.verify import sampled_turns
from bench.workloads import digests, make_workload
from bench.workloads.base import GraphKind

DATABASE_NAME = "deltastore_bench_{process}_{number}"


class Progress(Protocol):
    """Where the runner says how far it is."""

    def say(self, text: str) -> None:
        """What is being done."""

    def advance(self, turns: int) -> None:
        """Some turns, or work that counts as much, are done."""

    def note(self, text: str) -> None:
        """A line that stays."""


def run(options: RunOptions, progress: Progress, keep: Callable[[Record], None]) -> Record:
    """Runs everything.

    Args:
        keep: Called with the record so far, after each workload.

    Raises:
        BenchError: The run cannot start. Problems of single targets stand in the record instead.
    """
    started, started_at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    interrupt, results = Interrupt(progress.note), list[WorkloadResult]()
    for name in options.workloads:
        make_workload(name, seed=options.seed, trace=options.trace)
    played = digests(options.workloads, options.trace)

    def record(settings: dict[str, str]) -> Record:
        return Record(
            started_at=started_at,
            seconds=round(time.monotonic() - started, 1),
            interrupted=interrupt.requested,
            options=options.as_json(),
            machine=machine.machine(),
            versions=machine.versions(),
            server=settings,
            commit=machine.commit(),
            workloads=results,
            digests=played,
        )

    with ExitStack() as stack:
        server = _server_for(options, stack, progress)
        settings = server.settings() if server else {}
        with interrupt.handled(), suppress(KeyboardInterrupt):
            for name in options.workloads:
                results.append(_WorkloadRun(options, name, server, progress=progress, interrupt=interrupt).run())
                keep(record(settings))
                if interrupt.requested:
                    break
    return record(settings)


def _server_for(options: RunOptions, stack: ExitStack, progress: Progress) -> Server | None:
    if not any(spec.needs_server for spec in options.targets):
        return None
    server = stack.enter_context(open_server(options.dsn))
    if options.dsn != EMBEDDED:  # that one's folder goes away with all databases
        stack.callback(_name_databases, server, progress)
    return server


def _name_databases(server: Server, progress: Progress) -> None:
    """Says which databases are left, because the server failed before they could be dropped."""
    if server.databases:
        names = ", ".join(sorted(server.databases))
        progress.note(f"These databases are left; drop them when the server is up: {names}")


class _WorkloadRun:
    """All repeats of one workload."""

    def __init__(
        self, options: RunOptions, workload: str, server: Server | None, *, progress: Progress, interrupt: Interrupt
    ) -> None:
        self._options = options
        self._workload = workload
        self._server = server
        self._progress = progress
        self._interrupt = interrupt
        self._turns = options.turns
        self._order = random.Random(f"{options.seed}/{workload}")
        self._databases = 0

    def run(self) -> WorkloadResult:
        """Plays, verifies and measures."""
        keys = [(spec, kind) for spec in self._options.targets for kind in self._options.graphs]
        repeats = [self._repeat(keys)]
        for _ in range(1, self._options.repeats):
            repeat = self._repeat(keys)
            if self._interrupt.requested:  # not all of it was played: what counts are the repeats before
                self._turns = self._options.turns
                break
            repeats.append(repeat)
        workload = make_workload(self._workload, seed=self._options.seed, trace=self._options.trace)
        with ExitStack() as stack:
            limits = measure_limits(workload, self._turns, self._limits_dsn(stack))
        cells = [cell_result(list(cell)) for cell in zip(*repeats, strict=True)]
        checkpoints = max(cell.checkpoints for cell in repeats[0])
        return WorkloadResult(self._workload, workload.summary, self._turns, checkpoints, limits, cells)

    def _limits_dsn(self, stack: ExitStack) -> str | None:
        """An empty database, if there is a server and it still works."""
        try:
            return self._database(stack) if self._server else None
        except TargetError:
            return None

    def _repeat(self, keys: list[tuple[TargetSpec, GraphKind]]) -> list[RunningCell]:
        with ExitStack() as stack:
            cells: list[RunningCell] = []
            for spec, kind in keys:
                cell = RunningCell(self._cell_spec(spec, kind, stack), self._server if spec.needs_server else None)
                stack.callback(cell.kill)
                cells.append(cell)
            for cell in cells:
                self._progress.say(f"{self._workload}: opening {cell.name}")
                cell.open()
            self._play(cells)
            for cell in cells:
                self._progress.say(f"{self._workload}: verifying {cell.name}")
                cell.verify(sampled_turns(self._turns))
            if not self._interrupt.requested:
                self._measure(cells)
                self._sweep(cells)
            for cell in cells:
                cell.close()
            return cells

    def _play(self, cells: list[RunningCell]) -> None:
        options, middle = self._options, self._options.turns // 2
        watched = sampled_turns(options.turns)
        tenth = options.turns // 10
        cuts = sorted(
            {*range(0, options.turns, options.chunk_turns), tenth, middle, options.turns - tenth, options.turns}
        )
        for first, end in itertools.pairwise(cuts):
            for cell in self._drawn(cells):
                self._progress.say(f"{self._workload}: {cell.name}, turn {end} of {options.turns}")
                cell.play(first, end - 1, watched)
                if end == middle:
                    cell.load({MIDDLE_AS_HEAD: None}, options.load_times)
                self._progress.advance(end - first)
            if self._interrupt.requested:
                self._turns = end
                return

    def _measure(self, cells: list[RunningCell]) -> None:
        options = self._options
        for cell in self._drawn(cells):
            self._progress.say(f"{self._workload}: loads of {cell.name}")
            cell.load(loaded_turns(self._turns, options.snapshot_frequency, cell.checkpoints), options.load_times)
        for cell in self._drawn(cells):
            self._progress.say(f"{self._workload}: history of {cell.name}")
            cell.read_history(options.history_checkpoints)
        for cell in self._drawn(cells):
            self._progress.say(f"{self._workload}: one turn of {cell.name}")
            cell.count_turn()

    def _sweep(self, cells: list[RunningCell]) -> None:
        for threads in self._options.concurrency:
            turns = self._options.sweep_turns_of(threads)
            for cell in self._drawn(cells):
                self._progress.say(f"{self._workload}: {threads} threads of work on {cell.name}")
                cell.sweep(threads, turns)
                self._progress.advance(max(threads, CONVERSATIONS_MIN) * turns)
                if self._interrupt.requested:
                    return

    def _drawn(self, cells: list[RunningCell]) -> list[RunningCell]:
        """The cells in an order of their own each time."""
        return self._order.sample(cells, len(cells))

    def _cell_spec(self, spec: TargetSpec, kind: GraphKind, stack: ExitStack) -> CellSpec:
        options = self._options
        return CellSpec(
            workload=self._workload,
            seed=options.seed,
            trace=options.trace,
            target=spec,
            kind=kind,
            snapshot_frequency=options.snapshot_frequency,
            durability=options.durability,
            place=self._place(spec, stack),
            side_place=self._place(spec, stack),
        )

    def _place(self, spec: TargetSpec, stack: ExitStack) -> Place:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deltastore-bench-")))
        return Place(self._database(stack) if spec.needs_server else "", folder)

    def _database(self, stack: ExitStack) -> str:
        assert self._server is not None
        self._databases += 1
        database = DATABASE_NAME.format(process=os.getpid(), number=self._databases)
        dsn = self._server.create_database(database)
        stack.callback(self._drop, database)
        return dsn

    def _drop(self, database: str) -> None:
        assert self._server is not None
        with suppress(TargetError):
            self._server.drop_database(database)
