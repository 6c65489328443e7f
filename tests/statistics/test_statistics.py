"""What is counted, against rows and against the stock saver's own tables."""

from __future__ import annotations

import datetime as dt
from typing import Any

import asyncpg
import pytest
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from deltastore import BrokenChainError, CorruptPayloadError, DeltaSaver
from deltastore.conversion.validate import checkpoint_key
from deltastore.core.statistics import earliest_key
from deltastore.errors import InvalidConfigError
from deltastore.statistics import database_statistics, thread_statistics
from tests.faults.stories import Story

FREQUENCY = 10


async def grown(saver: Any) -> Story:
    story = Story(saver, seed=5, words_max=900)
    await story.grow(40, run_id="first")
    await story.grow(8, story.steps[20])
    return story


@pytest.fixture(params=["memory", "postgres"])
async def saver(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        yield DeltaSaver.in_memory(snapshot_frequency=FREQUENCY)
        return
    dsn = request.getfixturevalue("database_dsn")
    async with DeltaSaver.from_conn_string(dsn, snapshot_frequency=FREQUENCY, max_size=2) as opened:
        yield opened


def test_a_day_begins_with_its_first_key() -> None:
    now = uuid6()
    moment = dt.datetime(2026, 11, 30, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    midnight = int(dt.datetime(2026, 12, 1, tzinfo=dt.UTC).timestamp())
    seconds = (now.time - 0x01B21DD213814000) // 10_000_000
    assert earliest_key(seconds) <= checkpoint_key(str(now)) < earliest_key(seconds + 1)
    ticks = int(moment.timestamp() * 1_000_000) * 10 + 0x01B21DD213814000
    digits = f"{ticks:015x}"
    last = f"{digits[:8]}-{digits[8:12]}-6{digits[12:]}-bfff-ffffffffffff"
    assert earliest_key(midnight - 86_400) < checkpoint_key(last) < earliest_key(midnight)


async def test_an_empty_database(saver: DeltaSaver) -> None:
    found = await database_statistics(saver)
    assert (found.counts.threads, found.counts.checkpoints, found.counts.payload_bytes) == (0, 0, 0)
    assert found.sample.threads == 0
    assert len(found.counts.days) == 7
    assert await thread_statistics(saver, "nothing") is None


async def test_database_and_thread_count_the_same(saver: DeltaSaver) -> None:
    await grown(saver)
    found, weight = await database_statistics(saver, days=2), await thread_statistics(saver, "story", days=2)
    assert weight is not None
    counts = found.counts
    assert (counts.threads, counts.checkpoints, counts.hidden) == (1, 48, 0)
    assert weight.checkpoints == 48
    assert {kind: volume for kind, volume in counts.volumes.items() if volume.rows} == weight.volumes
    assert counts.chains == weight.chains
    assert (counts.chains.anchors, counts.chains.max_steps) == (4, 9)
    assert counts.days == weight.days
    assert counts.days[-1].checkpoints + counts.days[-2].checkpoints == 48
    assert (
        sum(day.payload_bytes for day in counts.days) == counts.payload_bytes - counts.volumes["metadata"].payload_bytes
    )
    assert [(each.thread_id, each.checkpoints) for each in counts.largest] == [("story", 48)]
    assert counts.largest == counts.fastest
    assert found.sample.stock_bytes == weight.stock_bytes
    assert found.sample.compression == round(weight.compression, 2)
    assert found.as_json()["payload_bytes"] == counts.payload_bytes
    assert weight.as_json()["payload_bytes"] == weight.payload_bytes


async def test_channels(saver: DeltaSaver) -> None:
    story = await grown(saver)
    weight = await thread_statistics(saver, "story")
    assert weight is not None
    channels = {each.channel: each for each in weight.channels}
    assert set(channels) == {"words", "facts", "text", "quiet", "log"}
    words, log = channels["words"], channels["log"]
    newest = max(story.steps, key=lambda step: step.id)
    assert (words.kind, words.changes, words.length) == ("list", 48, len(newest.checkpoint["channel_values"]["words"]))
    assert words.is_unbounded
    assert words.stock_bytes > 10 * words.new_bytes
    assert (log.kind, log.length) == ("writes", len(newest.log))
    assert not channels["text"].is_unbounded
    assert not channels["quiet"].is_unbounded
    assert {each.channel for each in weight.unbounded} <= {"words", "log", "facts"}


async def test_a_channel_that_is_cut_is_bounded(saver: DeltaSaver) -> None:
    config: Any = {"configurable": {"thread_id": "cut", "checkpoint_ns": ""}}
    for number in range(30):
        checkpoint: Any = {
            "v": 4,
            "id": f"{number:03}",
            "ts": "",
            "channel_values": {"grows": ["x" * 40] * (number + 1), "window": ["x"] * min(number + 1, 10 + number % 2)},
            "channel_versions": {"grows": number + 1, "window": number + 1},
            "versions_seen": {},
        }
        config = await saver.aput(config, checkpoint, {"step": number}, checkpoint["channel_versions"])
    weight = await thread_statistics(saver, "cut")
    assert weight is not None
    assert [each.channel for each in weight.unbounded] == ["grows"]


async def test_the_largest_threads_and_those_that_grew(saver: DeltaSaver) -> None:
    for number in range(4):
        await Story(saver, f"thread {number}", words_max=600).grow(2 + 3 * number)
    found = await database_statistics(saver, limit=2, days=1, sample=2)
    assert [each.thread_id for each in found.counts.largest] == ["thread 3", "thread 2"]
    assert found.sample.threads == 2
    assert found.counts.days[-1].checkpoints == sum(2 + 3 * number for number in range(4))
    assert (await database_statistics(saver, sample=0)).sample.threads == 0


async def test_the_estimate_is_near_to_what_the_stock_saver_stores(database_dsn: str) -> None:
    async with (
        DeltaSaver.from_conn_string(database_dsn) as saver,
        AsyncPostgresSaver.from_conn_string(database_dsn) as stock,
    ):
        await stock.setup()
        for each in (saver, stock):
            await grown(each)
        weight = await thread_statistics(saver, "story")
    connection = await asyncpg.connect(database_dsn)
    stored = await connection.fetchval(
        "SELECT (SELECT sum(octet_length(blob) + 150) FROM checkpoint_blobs)"
        " + (SELECT sum(octet_length(blob) + 150) FROM checkpoint_writes)"
        " + (SELECT sum(octet_length(checkpoint::text) + octet_length(metadata::text) + 150) FROM checkpoints)"
    )
    await connection.close()
    assert weight is not None
    assert 0.8 * stored < weight.stock_bytes < 1.2 * stored


async def test_a_damaged_thread_is_an_error_and_no_part_of_the_sample(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, max_size=2) as saver:
        story = await grown(saver)
        connection = await asyncpg.connect(database_dsn)
        await connection.execute("UPDATE deltastore.delta_segments SET payload = payload || '\\x00'")
        with pytest.raises(CorruptPayloadError, match="thread 'story'"):
            await thread_statistics(saver, "story")
        assert (await database_statistics(saver)).sample.threads == 0
        await connection.execute("DELETE FROM deltastore.delta_segments")
        await connection.execute("DELETE FROM deltastore.delta_checkpoints WHERE checkpoint_id = $1",
                                 checkpoint_key(story.steps[3].id))  # fmt: skip
        await connection.close()
        with pytest.raises(BrokenChainError, match="cannot be rebuilt"):
            await thread_statistics(saver, "story")


@pytest.mark.parametrize(
    "wrong", [{"days": 0}, {"days": 4000}, {"limit": -1}, {"sample": -1}, {"days": 1.5}, {"limit": True}]
)
async def test_numbers_out_of_range(wrong: Any) -> None:
    with pytest.raises(InvalidConfigError):
        await database_statistics(DeltaSaver.in_memory(), **wrong)
