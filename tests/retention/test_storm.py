"""Sweepers of other processes while writers work: small in the quick suite, in full among the slow tests."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from deltastore import DeltaSaver, RetentionPolicy
from tests.retention.storm import POLICY, Storm

SIZES = [
    pytest.param(40, 4, 2, 1, id="quick"),
    pytest.param(5000, 20, 2, 120, id="full", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("threads", "writers", "sweepers", "seconds"), SIZES)
async def test_retention_while_runs_write(
    database_dsn: str, threads: int, writers: int, sweepers: int, seconds: float
) -> None:
    figures = await Storm(database_dsn, threads, writers, sweepers, seconds).run()
    assert figures.is_good, figures
    assert figures.saves > writers
    assert figures.sweeps > sweepers
    assert figures.swept_checkpoints > threads
    assert figures.swept_threads >= threads // 10 - 1
    assert figures.refused_late_saves
    assert figures.compared_checkpoints > 2 * threads
    assert figures.lock_ms_max < 5000


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
async def test_the_next_pass_goes_on_where_one_was_killed(database_dsn: str, tmp_path: Path, seed: int) -> None:
    storm = Storm(database_dsn, 100, 1, 1, 0, seed)
    chance = random.Random(seed)
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(grace="0s"))
    async with AsyncExitStack() as stack:
        saver = await stack.enter_async_context(DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5))
        await storm.populate(saver)
        expected = await saver.aretain(RetentionPolicy.from_toml(policy.read_text()), dry_run=True)
        left = expected.checkpoints
        for _ in range(3):
            sweeper = await storm.sweeper(stack, policy, "--once")
            until = left - chance.randint(1, 100)
            while left > max(until, 0) and sweeper.returncode is None:
                report = await saver.aretain(RetentionPolicy.from_toml(policy.read_text()), dry_run=True)
                left = report.checkpoints
                await asyncio.sleep(0)
            if sweeper.returncode is None:
                sweeper.kill()
            await sweeper.wait()
        await storm.listen(await storm.sweeper(stack, policy, "--once"))
        await storm.compare([saver])
        await storm.look_for_orphans(saver)
    assert storm.figures.is_good, storm.figures
    assert left < expected.checkpoints
