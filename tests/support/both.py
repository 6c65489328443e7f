"""A saver on each storage, for tests that must hold on both."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from deltastore import DeltaSaver


@pytest.fixture(params=["memory", "postgres"])
async def saver(request: pytest.FixtureRequest) -> AsyncIterator[DeltaSaver]:
    """A saver with nothing in it; anchors often."""
    if request.param == "memory":
        yield DeltaSaver.in_memory(snapshot_frequency=5)
        return
    dsn = request.getfixturevalue("database_dsn")
    async with DeltaSaver.from_conn_string(dsn, snapshot_frequency=5) as saver:
        yield saver
