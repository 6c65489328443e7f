from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.cell import Cell, CellSpec
from bench.errors import NotVerifiedError
from bench.server import Server
from bench.targets import target_spec
from bench.targets.base import Place
from bench.verify import sampled_turns
from bench.workloads.base import GraphKind

TURNS = 12
LOST = [("drops_writes", "delta"), ("drops_writes", "plain"), ("drops_checkpoints", "plain")]

MISTOLD = [
    ("swaps_metadata", r"checkpoint .*: metadata s.* is .*, expected"),
    ("swaps_parents", r"checkpoint .*: parent is .*, expected"),
    ("loses_versions", r"checkpoint .*: versions_seen is \{\}, expected"),
    ("lists_less", r"history: \d+ checkpoints are listed up to .*, expected 50; number \d+ of them, newest first, is"),
    ("lists_backwards", r"history: 50 checkpoints are listed up to .*; number 1 of them, newest first, is"),
]


@pytest.fixture
def make_cell(server_dsn: str, tmp_path: Path) -> Iterator[Any]:
    server, names = Server(server_dsn), list[str]()

    def place() -> Place:
        names.append(f"bench_test_{uuid.uuid4().hex[:12]}")
        folder = tmp_path / names[-1]
        folder.mkdir()
        return Place(server.create_database(names[-1]), folder)

    def make(target: str, kind: GraphKind, *, workload: str = "agent", durability: str = "async") -> Cell:
        return Cell(CellSpec(workload, 1, None, target_spec(target), kind, 10, durability, place(), place()))

    yield make
    for name in names:
        server.drop_database(name)
    server.close()


@pytest.mark.parametrize("kind", ["plain", "delta"])
@pytest.mark.parametrize("target", ["deltastore", "postgres", "sqlite", "memory"])
async def test_every_target_is_measured_and_verified(target: str, kind: GraphKind, make_cell: Any):
    cell, has_server = make_cell(target, kind), target in {"deltastore", "postgres"}
    await cell.open()
    chunks = [await cell.play(0, 5, sampled_turns(TURNS)), await cell.play(6, TURNS - 1, sampled_turns(TURNS))]
    assert sum(chunk.checkpoints for chunk in chunks) == 5 * TURNS
    assert all(len(chunk.samples_ms["turn"]) == 6 for chunk in chunks)
    await cell.verify(sampled_turns(TURNS))
    assert sum(table.total_bytes for table in await cell.stored()) > 10_000
    loads = await cell.load({"head": None, "on a snapshot": 4, "middle": 5}, 2)
    head, middle = loads["head"], loads["middle"]
    assert len(head.samples_ms) == 2
    assert head.decode_ms > middle.decode_ms > 0
    assert (head.traffic is not None) == has_server
    updates = [load.updates_since_snapshot for load in loads.values()]  # four a turn, a snapshot each ten
    assert updates == ([8, 0, 4] if kind == "delta" else [None] * 3)
    assert await cell.history(30) > 0
    if has_server:
        assert head.traffic.statements >= 1
        assert (await cell.turn_traffic()).statements >= 5
    point = await cell.sweep(3, 2)
    assert (point.threads, point.turn.count) == (3, 16)
    assert point.turns_per_s > 0
    assert await cell.state_bytes(TURNS) > 100_000
    await cell.close()


@pytest.mark.parametrize("kind", ["plain", "delta"])
@pytest.mark.parametrize(("workload", "durability"), [("fork", "async"), ("agent", "exit"), ("fork", "sync")])
async def test_histories_of_all_forms_are_verified(workload: str, durability: str, kind: GraphKind, make_cell: Any):
    cell = make_cell("memory", kind, workload=workload, durability=durability)
    await cell.open()
    await cell.play(0, 21, sampled_turns(22))
    await cell.verify(sampled_turns(22))
    await cell.close()


@pytest.mark.parametrize(("double", "kind"), LOST)
async def test_a_saver_that_loses_data_is_found_out(double: str, kind: GraphKind, make_cell: Any):
    cell = make_cell(f"lossy=tests.bench.doubles:{double}", kind)
    await cell.open()
    await cell.play(0, TURNS - 1, sampled_turns(TURNS))
    with pytest.raises(NotVerifiedError):
        await cell.verify(sampled_turns(TURNS))
    await cell.close()


@pytest.mark.parametrize(("double", "said"), MISTOLD)
async def test_a_saver_that_tells_wrong_things_about_checkpoints_is_found_out(double: str, said: str, make_cell: Any):
    cell = make_cell(f"lossy=tests.bench.doubles:{double}", "plain")
    await cell.open()
    await cell.play(0, TURNS - 1, sampled_turns(TURNS))
    with pytest.raises(NotVerifiedError, match=said):
        await cell.verify(sampled_turns(TURNS))
    await cell.close()


async def test_a_row_lost_in_the_database_is_found_out(make_cell: Any):
    cell = make_cell("postgres", "plain")
    await cell.open()
    await cell.play(0, TURNS - 1, sampled_turns(TURNS))
    dsn = cell._stage.target.place.dsn
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM checkpoint_blobs WHERE version LIKE '%015.%' AND channel = 'messages'")
    with pytest.raises(NotVerifiedError):
        await cell.verify(sampled_turns(TURNS))
    await cell.close()
