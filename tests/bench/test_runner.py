from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from bench.interrupt import Interrupt
from bench.options import RunOptions
from bench.runner import _WorkloadRun
from bench.running import loaded_turns

CELLS = ("deltastore plain", "postgres plain", "memory plain")


class Silent:
    """Progress that nobody looks at."""

    def say(self, text: str) -> None:
        pass

    def advance(self, turns: int) -> None:
        pass

    def note(self, text: str) -> None:
        pass


class Noted:
    """A cell that does nothing and notes when it was asked to."""

    checkpoints = 2_500

    def __init__(self, name: str, asked: list[tuple[str, str]]) -> None:
        self.name = name
        self._asked = asked

    def __getattr__(self, method: str) -> Any:
        return lambda *_: self._asked.append((method, self.name))


def orders(seed: int) -> list[tuple[str, tuple[str, ...]]]:
    """The order of the cells in each phase of a run of 500 turns."""
    options = RunOptions(
        workloads=("agent",),
        targets=(),
        graphs=("plain",),
        turns=500,
        seed=seed,
        repeats=1,
        snapshot_frequency=50,
        durability="async",
        trace=None,
        dsn="embedded",
        concurrency=(1, 8, 64, 256),
        sweep_turns=20,
        history_checkpoints=500,
        load_times=7,
    )
    run = _WorkloadRun(options, "agent", None, progress=Silent(), interrupt=Interrupt(print))
    asked: list[tuple[str, str]] = []
    cells: Any = [Noted(name, asked) for name in CELLS]
    run._play(cells)
    played = [(method, name) for method, name in asked if method == "play"]
    asked.clear()
    run._measure(cells)
    run._sweep(cells)
    calls = [*played, *asked]
    batches = [calls[start : start + len(CELLS)] for start in range(0, len(calls), len(CELLS))]
    return [(batch[0][0], tuple(name for _, name in batch)) for batch in batches]


def test_every_chunk_and_phase_has_an_order_of_its_own():
    found = orders(1)
    assert Counter(method for method, _ in found) == {
        "play": 28,
        "load": 1,
        "read_history": 1,
        "count_turn": 1,
        "sweep": 4,
    }
    assert all(sorted(order) == sorted(CELLS) for _, order in found)
    played = [order for method, order in found if method == "play"]
    assert len(set(played)) == 6  # all orders there are of three
    followers = {pair for order in played for pair in itertools.pairwise(order)}
    assert len(followers) == 6


def test_the_order_follows_from_the_seed():
    assert orders(1) == orders(1)
    assert orders(1) != orders(2)


@pytest.mark.parametrize(
    ("turns", "checkpoints", "loaded"),
    [
        (500, 2_500, {"head": None, "between snapshots": 493, "middle": 249}),
        (500, 1_500, {"head": None, "between snapshots": 487, "middle": 249}),
        (6, 30, {"head": None, "middle": 2}),
        (10, 10, {"head": None, "middle": 4}),
    ],
)
def test_a_checkpoint_off_the_snapshots_is_loaded_too(turns: int, checkpoints: int, loaded: dict[str, int | None]):
    assert loaded_turns(turns, 50, checkpoints) == loaded
