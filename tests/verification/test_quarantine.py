"""Repairs on PostgreSQL: what goes into quarantine, keys that are lost, and what happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from deltastore import BrokenChainError, DeltaSaver
from deltastore.conversion.validate import checkpoint_key, thread
from deltastore.verification import Status, verify_threads
from tests.faults.stories import Story, assert_reads_as, config_of
from tests.verification.conftest import FREQUENCY

Pool = Any


@pytest.fixture
async def pool(database_dsn: str) -> AsyncIterator[Pool]:
    async with asyncpg.create_pool(database_dsn, min_size=1, max_size=4) as pool:
        yield pool


@pytest.fixture
def saver(pool: Pool) -> DeltaSaver:
    return DeltaSaver(pool, snapshot_frequency=FREQUENCY)


async def grown(saver: DeltaSaver) -> Story:
    story = Story(saver, seed=5, words_max=1500)
    await story.grow(12)
    return story


async def flip(pool: Pool, checkpoint_id: str) -> None:
    await pool.execute(
        "UPDATE deltastore.delta_checkpoints SET payload = set_byte(payload, 9, get_byte(payload, 9) # 1)"
        " WHERE checkpoint_id = $1",
        checkpoint_key(checkpoint_id),
    )


def fresh(saver: DeltaSaver) -> DeltaSaver:
    """The saver, knowing nothing."""
    saver._bridge.engine.cache.forget(thread("story").key)
    return saver


async def test_rows_in_quarantine_are_as_they_were_and_can_be_put_back(pool: Pool, saver: DeltaSaver) -> None:
    story = await grown(saver)
    tables = ("delta_checkpoints", "delta_segments", "delta_metadata")
    lost = story.steps[7]
    await flip(pool, lost.id)
    before = [await pool.fetch(f"SELECT * FROM deltastore.{table} ORDER BY payload") for table in tables]
    [outcome] = (await verify_threads(saver, repair=True)).damaged
    assert (outcome.status, outcome.is_sound) == (Status.REPAIRED, True)
    rows = await pool.fetch("SELECT * FROM deltastore.delta_quarantine ORDER BY number")
    assert [row["source"] for row in rows] == ["delta_checkpoints"] * 3
    assert all(row["reason"] and row["thread_key"] == thread("story").key for row in rows)
    assert (await verify_threads(saver)).is_sound
    await pool.execute("UPDATE deltastore.delta_checkpoints SET orphaned = false")
    for table in tables:
        await pool.execute(
            f"INSERT INTO deltastore.{table} SELECT (jsonb_populate_record(NULL::deltastore.{table},"
            " columns || jsonb_build_object('payload', '\\x' || encode(payload, 'hex')))).*"
            " FROM deltastore.delta_quarantine WHERE source = $1",
            table,
        )
    assert [await pool.fetch(f"SELECT * FROM deltastore.{table} ORDER BY payload") for table in tables] == before


async def test_a_deleted_thread_leaves_nothing_in_quarantine(pool: Pool, saver: DeltaSaver) -> None:
    story = await grown(saver)
    await flip(pool, story.steps[7].id)
    await verify_threads(saver, repair=True)
    assert await pool.fetchval("SELECT count(*) FROM deltastore.delta_quarantine")
    await saver.adelete_thread("story")
    assert not await pool.fetchval("SELECT count(*) FROM deltastore.delta_quarantine")


async def test_a_run_goes_on_after_a_repair_of_its_past(pool: Pool, saver: DeltaSaver) -> None:
    story = await grown(saver)
    await flip(pool, story.steps[2].id)
    other = DeltaSaver(pool, snapshot_frequency=FREQUENCY)
    await verify_threads(other, repair=True)
    head = await story.grow(4)
    await assert_reads_as(fresh(saver), head)
    assert (await verify_threads(saver)).is_sound


@pytest.mark.parametrize("table", ["delta_threads", "delta_checkpoints", "delta_segments", "delta_metadata"])
async def test_a_restore_that_ran_twice(pool: Pool, saver: DeltaSaver, table: str) -> None:
    story = await grown(saver)
    await pool.execute(f"ALTER TABLE deltastore.{table} DROP CONSTRAINT {table}_pkey")
    count = await pool.fetchval(f"SELECT count(*) FROM deltastore.{table}")
    await pool.execute(f"INSERT INTO deltastore.{table} SELECT * FROM deltastore.{table}")
    if table in ("delta_checkpoints", "delta_metadata"):
        with pytest.raises(BrokenChainError, match="is stored twice"):
            _ = [each async for each in fresh(saver).alist(config_of("story"), limit=3)]
    [outcome] = (await verify_threads(saver, repair=True)).damaged
    assert {str(finding.kind) for finding in outcome.found.findings} == {"duplicate"}
    assert {action.verb for action in outcome.actions} == {"keep one"}
    assert outcome.is_sound
    assert await pool.fetchval(f"SELECT count(*) FROM deltastore.{table}") == count
    for step in story.steps:
        await assert_reads_as(fresh(saver), step)


async def test_different_rows_under_one_key(pool: Pool, saver: DeltaSaver) -> None:
    story = await grown(saver)
    await pool.execute("ALTER TABLE deltastore.delta_checkpoints DROP CONSTRAINT delta_checkpoints_pkey")
    await pool.execute("INSERT INTO deltastore.delta_checkpoints SELECT * FROM deltastore.delta_checkpoints")
    place = "(SELECT min(ctid) FROM deltastore.delta_checkpoints WHERE checkpoint_id = $1)"
    await pool.execute(
        "UPDATE deltastore.delta_checkpoints SET payload = set_byte(payload, 9, get_byte(payload, 9) # 1)"
        f" WHERE ctid = {place}",
        checkpoint_key(story.steps[7].id),
    )
    with pytest.raises(BrokenChainError, match="is stored twice"):
        await fresh(saver).aget_tuple(story.steps[8].config)
    [outcome] = (await verify_threads(saver, repair=True)).damaged
    assert outcome.is_sound
    assert not outcome.found.lost
    assert await pool.fetchval("SELECT count(*) FROM deltastore.delta_quarantine") == 1
    for step in story.steps:
        await assert_reads_as(fresh(saver), step)


async def test_a_lost_row_of_the_thread(pool: Pool, saver: DeltaSaver) -> None:
    story = await grown(saver)
    await pool.execute("DELETE FROM deltastore.delta_threads")
    [outcome] = (await verify_threads(saver, repair=True)).damaged
    assert outcome.status is Status.LEFT
    assert outcome.found.thread_id is None
    [outcome] = (await verify_threads(saver, ["story"], repair=True)).damaged
    assert (outcome.status, outcome.is_sound) == (Status.REPAIRED, True)
    await assert_reads_as(fresh(saver), story.steps[-1])
    assert (await verify_threads(saver)).is_sound


async def test_a_thread_id_that_metadata_tell(pool: Pool, saver: DeltaSaver) -> None:
    story = Story(saver, seed=5)
    await story.grow(4, thread_id="story")
    await pool.execute("UPDATE deltastore.delta_threads SET thread_id = 'stork'")
    [outcome] = (await verify_threads(saver, repair=True)).damaged
    assert (outcome.found.thread_id, outcome.status, outcome.is_sound) == ("story", Status.REPAIRED, True)
    await assert_reads_as(fresh(saver), story.steps[-1])


async def test_verification_holds_up_nobody(pool: Pool, saver: DeltaSaver) -> None:
    story = await grown(saver)
    async with saver._bridge.engine.storage.survey(thread("story").key) as survey:
        rows = await survey.rows()
        await asyncio.wait_for(story.grow(3), 5)
        await asyncio.wait_for(saver.aprune(["story"]), 5)
        assert len((await survey.rows()).checkpoints) == len(rows.checkpoints) == 12
        assert len(await survey.payloads([head.segment_id for head in rows.segments])) == len(rows.segments)


async def test_saves_and_repairs_at_one_moment(pool: Pool, saver: DeltaSaver) -> None:
    story = await grown(saver)
    other = DeltaSaver(pool, snapshot_frequency=FREQUENCY)
    for number in (1, 3, 6):
        await flip(pool, story.steps[number].id)
        repairs = asyncio.create_task(verify_threads(other, ["story"], repair=True))
        await story.grow(6)
        await repairs
    await verify_threads(other, repair=True)
    report = await verify_threads(other)
    assert report.is_sound, report.damaged
    await assert_reads_as(fresh(saver), story.steps[-1])


@pytest.mark.parametrize(
    ("change", "kind", "is_lost"),
    [
        ("UPDATE deltastore.delta_checkpoints SET segments = segments || ARRAY[{other}]::bigint[] {at}", "link", False),
        ("UPDATE deltastore.delta_checkpoints SET segments = segments || ARRAY[NULL]::bigint[] {at}", "link", False),
        ("UPDATE deltastore.delta_segments SET kind = 9 WHERE segment_id = {other}", "payload", True),
        ("UPDATE deltastore.delta_segments SET segment_references = ARRAY[NULL]::bigint[] {of}", "payload", True),
        ("UPDATE deltastore.delta_segments SET checkpoint_id = '\\x00' WHERE segment_id = {other}", "payload", True),
        ("UPDATE deltastore.delta_metadata SET document = '[]'", "metadata", False),
        ("UPDATE deltastore.delta_checkpoints SET depth = -1 {at}", "link", False),
        ("UPDATE deltastore.delta_checkpoints SET checkpoint_id = '\\x0000' {at}", "payload", True),
    ],
)
async def test_columns_that_make_no_sense(pool: Pool, saver: DeltaSaver, change: str, kind: str, is_lost: bool) -> None:
    story = await grown(saver)
    other = await pool.fetchval("SELECT max(segment_id) FROM deltastore.delta_segments WHERE kind = 3")
    key = checkpoint_key(story.steps[7].id).hex()
    where = {"other": other, "at": f"WHERE checkpoint_id = '\\x{key}'", "of": f"WHERE segment_id = {other}"}
    await pool.execute(change.format(**where))
    [outcome] = (await verify_threads(saver, ["story"], repair=True)).damaged
    assert kind in {str(finding.kind) for finding in outcome.found.findings}
    assert bool(outcome.found.lost) is is_lost
    assert outcome.is_sound, outcome.left
    lost = {place.checkpoint_id for place in outcome.found.lost}
    found = {each.config["configurable"]["checkpoint_id"] async for each in fresh(saver).alist(config_of("story"))}
    assert found == {step.id for step in story.steps} - lost - ({story.steps[7].id} if "\\x0000" in change else set())
