"""Sweepers of other processes while writers work: small in the quick suite, in full among the slow tests."""

from __future__ import annotations

import pytest

from tests.retention.storm import Storm

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
