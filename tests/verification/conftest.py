"""Savers whose threads are verified."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from deltastore import DeltaSaver

FREQUENCY = 5


@pytest.fixture(params=["memory", "postgres"])
async def saver(request: pytest.FixtureRequest) -> AsyncIterator[DeltaSaver]:
    """A saver on each storage."""
    if request.param == "memory":
        yield DeltaSaver.in_memory(snapshot_frequency=FREQUENCY)
        return
    dsn = request.getfixturevalue("database_dsn")
    async with DeltaSaver.from_conn_string(dsn, snapshot_frequency=FREQUENCY, max_size=2) as opened:
        yield opened
