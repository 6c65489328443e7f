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

SEGMENT_BYTES = "SELECT pg_total_relation_size('deltastore.delta_segments')"
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
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        connection.execute("VACUUM FULL deltastore.delta_segments")
        [before] = connection.execute(SEGMENT_BYTES).fetchone() or [0]
        async with DeltaSaver.from_conn_string(database_dsn) as saver:
            await saver.acompact_thread("agent")
        connection.execute("VACUUM FULL deltastore.delta_segments")
        [after] = connection.execute(SEGMENT_BYTES).fetchone() or [0]
    assert after < before / 2, f"{before:,} bytes, {after:,} compacted"
