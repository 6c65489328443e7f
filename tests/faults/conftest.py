"""The thread that is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from deltastore.core import packing, pieces
from tests.faults.threads import Thread, written
from tests.support.servers import database


@pytest.fixture(scope="module", params=[False, True], ids=["fresh", "packed"])
def stored(request: pytest.FixtureRequest, server_dsn: str, _template: str) -> Iterator[Thread]:
    """A thread with anchors, deltas, pages, large and small items, forks, pending writes and two runs.

    In packs, all but the last run.
    """
    with (
        database(server_dsn, _template) as dsn,
        ThreadPoolExecutor(1) as executor,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(pieces, "PAGE_PIECES", 4)
        patch.setattr(packing, "PACK_BYTES", 6000)
        patch.setattr(packing, "PACK_BYTES_MAX", 9000)
        yield executor.submit(asyncio.run, written(dsn, packed=request.param)).result()
