"""Killed at any moment, an archiver leaves the thread in the database, in a file that is whole, or in both."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltastore import DeltaSaver
from deltastore.archive import Status, archive_threads, restore_archives
from tests.archive.rows import files_in, rows_of
from tests.faults.stories import Story, assert_reads_as
from tests.support.processes import running

ARCHIVE = """
import asyncio, sys
from deltastore import DeltaSaver
from deltastore.archive import archive_threads, archiver, places
from deltastore.core.archive import ArchiveWriter
from deltastore.postgres.edit import PostgresEdit

dsn, folder, moment = sys.argv[1:]

def wait():
    print("there")
    sys.stdin.readline()

def before(owner, name):
    function = getattr(owner, name)
    def stopping(*given):
        wait()
        return function(*given)
    setattr(owner, name, stopping)

def after(owner, name):
    function = getattr(owner, name)
    async def stopping(*given):
        await function(*given)
        await asyncio.to_thread(wait)
    setattr(owner, name, stopping)

if moment == "before the last block":
    before(ArchiveWriter, "end")
elif moment == "before the file is read back":
    before(archiver, "prove")
elif moment == "before the file has its name":
    before(places.Draft, "name")
elif moment == "before the thread is removed":
    before(PostgresEdit, "remove")
elif moment == "before the removal is committed":
    after(PostgresEdit, "remove")

async def main():
    async with DeltaSaver.from_conn_string(dsn) as saver:
        await archive_threads(saver, ["story"], folder)

asyncio.run(main())
"""
MOMENTS = {
    "before the last block": (0, 1),
    "before the file is read back": (0, 1),
    "before the file has its name": (0, 1),
    "before the thread is removed": (1, 0),
    "before the removal is committed": (1, 0),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_nothing_is_lost_and_a_second_run_goes_on(database_dsn: str, folder: Path, moment: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
        told = Story(saver, words_max=1500)
        await told.grow(12)
        before = await rows_of(saver, "story")
        with running(ARCHIVE, database_dsn, folder.as_uri(), moment) as script:
            assert script.line() == "there"
            script.kill()
        assert await rows_of(saver, "story") == before
        named = [file for file in files_in(folder) if not file.name.startswith(".partial-")]
        assert (len(named), len(files_in(folder)) - len(named)) == MOMENTS[moment]
        for file in named:
            await restore_archives(saver, [str(file)], thread_id="from the file")
            assert await rows_of(saver, "from the file") == before
        report = await archive_threads(saver, ["story"], folder.as_uri())
        assert report.counts == {Status.ARCHIVED: 1}
        assert await rows_of(saver, "story") is None
        [file] = [file for file in files_in(folder) if not file.name.startswith(".partial-")]
        assert named in ([], [file])
        await restore_archives(saver, [str(file)])
        assert await rows_of(saver, "story") == before
        for step in told.steps:
            await assert_reads_as(saver, step)
