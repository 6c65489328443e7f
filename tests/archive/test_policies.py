"""A retention policy chooses which threads are archived: those that it would delete as a whole, and no others."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deltastore import DeltaSaver, InvalidConfigError, RetentionPolicy, RetentionRule
from deltastore.archive import Outcome, Status, archive_by_policy, restore_archives
from tests.archive.rows import files_in, rows_of
from tests.retention.trees import DAY, id_at
from tests.support.puts import Puts

NOW = datetime(2026, 6, 1, tzinfo=UTC)
POLICY = RetentionPolicy(
    (
        RetentionRule("held", filter={"hold": True}, keep_all=True),
        RetentionRule("all others", idle_seconds=90 * DAY, keep_last=1),
    )
)


def thread(saver: DeltaSaver, thread_id: str, *ages_days: float, **metadata: object) -> Puts:
    """A thread with a checkpoint of each age."""
    puts, parent = Puts(saver, thread_id), None
    for number, age in enumerate(ages_days):
        checkpoint_id = id_at(NOW.timestamp() - age * DAY, number)
        parent = puts.put(parent, {"log": [number]}, checkpoint_id=checkpoint_id, metadata=metadata)
    return puts


async def fill(saver: DeltaSaver) -> None:
    await asyncio.to_thread(_fill, saver)


def _fill(saver: DeltaSaver) -> None:
    thread(saver, "old", 200, 150)
    thread(saver, "older", 400)
    thread(saver, "in use", 200, 10)
    thread(saver, "held", 200, hold=True)
    thread(saver, "pinned", 200)
    saver.pin("pinned")
    Puts(saver, "only writes").write(id_at(0, 1), [("log", [1])])


async def test_what_the_policy_would_delete_is_archived(saver: DeltaSaver, folder: Path) -> None:
    await fill(saver)
    before = {name: await rows_of(saver, name) for name in ("old", "older", "in use", "held", "pinned", "only writes")}
    foretold = await archive_by_policy(saver, POLICY, folder.as_uri(), now=NOW, dry_run=True)
    assert sorted(outcome.thread_id for outcome in foretold.outcomes) == ["old", "older"]
    assert foretold.counts == {Status.COUNTED: 2}
    assert not await asyncio.to_thread(folder.exists)
    report = await archive_by_policy(saver, POLICY, folder.as_uri(), now=NOW)
    assert sorted(outcome.thread_id for outcome in report.outcomes) == ["old", "older"]
    assert report.counts == {Status.ARCHIVED: 2}
    assert len(files_in(folder)) == 2
    for name, rows in before.items():
        assert await rows_of(saver, name) == (None if "old" in name else rows)
    assert (await archive_by_policy(saver, POLICY, folder.as_uri(), now=NOW)).outcomes == []
    retained = await saver.aretain(POLICY, now=NOW)
    assert (retained.deleted_threads, retained.checkpoints) == (0, 1)  # what is only thinned out is not archived
    await restore_archives(saver, [outcome.file for outcome in report.outcomes])
    assert {name: await rows_of(saver, name) for name in ("old", "older")} == {
        name: before[name] for name in ("old", "older")
    }


async def test_a_thread_that_wakes_up_before_its_turn_stays(saver: DeltaSaver, folder: Path) -> None:
    await fill(saver)
    told = [Puts(saver, "old"), Puts(saver, "older")]
    woken: list[Puts] = []

    def progress(outcome: Outcome) -> None:
        """The other thread gets a checkpoint."""
        [other] = [puts for puts in told if puts.thread_id != outcome.thread_id]
        other.put(None, {"log": ["new"]}, checkpoint_id=id_at(NOW.timestamp(), 99))
        woken.append(other)

    def run() -> None:
        asyncio.run(archive_by_policy(saver, POLICY, folder.as_uri(), now=NOW, progress=progress))

    await asyncio.to_thread(run)
    [other] = woken
    assert await rows_of(saver, other.thread_id) is not None
    assert len(files_in(folder)) == 1


async def test_times_need_a_zone(saver: DeltaSaver, folder: Path) -> None:
    with pytest.raises(InvalidConfigError, match="time zone"):
        await archive_by_policy(saver, POLICY, folder.as_uri(), now=datetime(2026, 1, 1))  # noqa: DTZ001
