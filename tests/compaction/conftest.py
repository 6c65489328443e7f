"""Savers on each storage, and packs so small that a short thread has several."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from deltastore import DeltaSaver
from deltastore.core import packing


@pytest.fixture(params=["memory", "postgres"])
async def saver(request: pytest.FixtureRequest) -> AsyncIterator[DeltaSaver]:
    """A saver with nothing in it; anchors often."""
    if request.param == "memory":
        yield DeltaSaver.in_memory(snapshot_frequency=5)
        return
    dsn = request.getfixturevalue("database_dsn")
    async with DeltaSaver.from_conn_string(dsn, snapshot_frequency=5) as saver:
        yield saver


@pytest.fixture
def _small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PACK_BYTES", 3000)
    monkeypatch.setattr(packing, "PACK_BYTES_MAX", 4500)
