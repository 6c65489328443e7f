"""Killed at any moment, a compaction leaves the thread as it was, or compacted."""

from __future__ import annotations

import pytest

from deltastore import DeltaSaver
from deltastore.core.compacted import Compaction
from tests.compaction.test_compact import assert_all_read, stored
from tests.faults.stories import Story
from tests.support.processes import running

COMPACT = """
import asyncio, sys
from deltastore import DeltaSaver
from deltastore.postgres.edit import PostgresEdit
from deltastore.postgres.queries import Queries

dsn, moment = sys.argv[1:]

def wait():
    print("there")
    sys.stdin.readline()

owner, name = {
    "before anything is changed": (PostgresEdit, "apply"),
    "before the segments go": (Queries, "delete_segments"),
    "before the packs come": (Queries, "insert_segment"),
    "before the epoch moves on": (Queries, "renew_epoch"),
}[moment]
function = getattr(owner, name)

async def stopping(*given):
    await asyncio.to_thread(wait)
    return await function(*given)

setattr(owner, name, stopping)

async def main():
    async with DeltaSaver.from_conn_string(dsn) as saver:
        await saver.acompact_thread("story")

asyncio.run(main())
"""
MOMENTS = (
    "before anything is changed",
    "before the segments go",
    "before the packs come",
    "before the epoch moves on",
)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_nothing_is_half_done(database_dsn: str, moment: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
        story = Story(saver, words_max=1500)
        await story.grow(12)
        before = await stored(saver)
        with running(COMPACT, database_dsn, moment) as script:
            assert script.line() == "there"
            script.kill()
        assert await stored(saver) == before
        await assert_all_read(saver, story)
        assert (await saver.acompact_thread("story")).status is Compaction.COMPACTED
        await assert_all_read(saver, story)
