"""Packs keep what is deleted out of their middle; nothing may be misled by it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base.id import uuid6

from deltastore import DeltaSaver
from deltastore.archive import archive_threads, restore_archives
from deltastore.core.compacted import Compaction
from deltastore.importer import Options, Status
from deltastore.importer.stock import move_back
from deltastore.statistics import thread_statistics
from deltastore.verification import verify_threads
from tests.faults.stories import config_of

pytestmark = pytest.mark.usefixtures("_small_packs")


def word(seed: int) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnop", k=1900))


async def put_root(saver: DeltaSaver, run_id: str, seed: int) -> Any:
    """A checkpoint without a parent, with a value of its own."""
    checkpoint: Any = {
        "v": 4,
        "id": str(uuid6(clock_seq=seed)),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"words": [word(seed)]},
        "channel_versions": {"words": seed},
        "versions_seen": {},
    }
    return await saver.aput(config_of("story"), checkpoint, {"source": "input", "run_id": run_id}, {"words": seed})


async def assert_archived_and_restored(saver: DeltaSaver, config: Any, folder: Path) -> None:
    """The thread is sound before and after, and the checkpoint reads the same."""
    expected = await saver.aget_tuple(config)
    assert expected is not None
    report = await archive_threads(saver, ["story"], folder.as_uri())
    assert report.exit_code == 0, report.outcomes
    await restore_archives(saver, [str(each) for each in folder.iterdir()])  # noqa: ASYNC240 - a folder of the test
    found = await verify_threads(saver, ["story"])
    assert found.is_sound, [outcome.found.findings for outcome in found.damaged]
    assert await saver.aget_tuple(config) == expected


async def test_archives_leave_out_values_that_only_packs_have_kept(saver: DeltaSaver, tmp_path: Path) -> None:
    await put_root(saver, "deleted", 1)
    kept = await put_root(saver, "kept", 2)
    await saver.aput_writes(kept, [("words", ["of what is kept"])], "task")
    assert (await saver.acompact_thread("story")).status is Compaction.COMPACTED
    await saver.adelete_for_runs(["deleted"])
    await assert_archived_and_restored(saver, kept, tmp_path)


async def put_and_delete(saver: DeltaSaver) -> Any:
    """A thread with writes of which nothing is left but themselves: what they repeat was in a pack that is gone."""
    deleted = await put_root(saver, "deleted", 1)
    await saver.aput_writes(deleted, [("words", [word(2)])], "task 1")
    assert (await saver.acompact_thread("story")).status is Compaction.COMPACTED
    await saver.aget_tuple(deleted)
    await saver.aput_writes(deleted, [("words", [word(1)])], "task 2")
    kept = await put_root(saver, "kept", 3)
    assert (await saver.acompact_thread("story")).status is Compaction.COMPACTED
    await saver.adelete_for_runs(["deleted"])
    return kept


async def test_archives_leave_out_writes_that_only_packs_have_kept(saver: DeltaSaver, tmp_path: Path) -> None:
    await assert_archived_and_restored(saver, await put_and_delete(saver), tmp_path)


async def test_statistics_leave_them_out_too(saver: DeltaSaver) -> None:
    await put_and_delete(saver)
    weight = await thread_statistics(saver, "story")
    assert weight is not None
    assert weight.checkpoints == 1


async def test_the_way_back_leaves_them_out_too(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        await put_and_delete(saver)
        report = await move_back(database_dsn, f"stock-{database_dsn}", Options(verify="full"))
        assert (report.counts, report.unsettled) == ({Status.IMPORTED: 1}, [])
