"""The bytes of compacted threads, on the `agent` workload of the benchmarks."""

from __future__ import annotations

import psycopg
import pytest

from bench.recorder import Recorder
from bench.stage import Stage, ThreadPlayer
from bench.targets import target_spec
from bench.targets.base import Place
from bench.workloads import make_workload
from deltastore import DeltaSaver

COPY = """
    CREATE TABLE deltastore.{0} (LIKE deltastore.delta_segments INCLUDING ALL) WITH (toast_tuple_target = 4080);
    INSERT INTO deltastore.{0} SELECT * FROM deltastore.delta_segments ORDER BY thread_key, segment_id
"""
"""The table as VACUUM FULL would leave it."""

TURNS = 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "delta"])
async def test_segments_of_an_agent_take_less_than_half(database_dsn: str, tmp_path, kind) -> None:
    workload = make_workload("agent", seed=1, trace=None)
    stage = Stage(
        workload, target_spec("deltastore").maker()(Place(folder=tmp_path, dsn=database_dsn)), kind, 50, "sync"
    )
    recorder = Recorder()
    async with stage.opened(recorder) as graph:
        player = ThreadPlayer(graph, recorder, thread_id="agent", durability="sync")
        conversation = workload.conversation(0)
        for turn in range(TURNS):
            conversation.prepare(turn)
            await conversation.play(player, turn)
    before = stored_bytes(database_dsn, "before")
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        await saver.acompact_thread("agent")
    after = stored_bytes(database_dsn, "after")
    assert after < before / 2, f"{before:,} bytes, {after:,} compacted"


def stored_bytes(dsn: str, name: str) -> int:
    """All bytes of the segments with indexes and out-of-line storage, without dead rows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(COPY.format(name))
        [size] = connection.execute("SELECT pg_total_relation_size(%s::regclass)", [f"deltastore.{name}"]).fetchone()  # type: ignore[misc]
        return int(size)
