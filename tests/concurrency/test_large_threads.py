"""Threads of thousands of checkpoints: the distance to the next anchor bounds what is read, not the thread."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass
from typing import Any

import pytest

from deltastore import DeltaSaver
from tests.concurrency.statements import Counter, counting
from tests.faults.stories import Step, Story, assert_reads_as, config_of, until

FREQUENCY = 50
ROWS_MAX = 8 * FREQUENCY
"""For each step back to the anchor: its row, writes, items and metadata, and what lookups count beside them."""


LENGTHS = [pytest.param(300, id="300"), pytest.param(5000, id="5000", marks=pytest.mark.slow)]


@dataclass
class Large:
    """The steps of the thread, and a counter on its database."""

    steps: list[Step]
    counter: Counter

    def step(self, position: float) -> Step:
        """The step at a share of the thread's length."""
        return self.steps[int(position * (len(self.steps) - 1))]


async def written(dsn: str, length: int) -> list[Step]:
    async with DeltaSaver.from_conn_string(dsn, max_size=1) as saver:
        story = Story(saver, words_max=20)
        await story.grow(length)
        return story.steps


@pytest.mark.parametrize("length", LENGTHS)
async def test_large_threads(database_dsn: str, length: int) -> None:
    """One test, since the thread takes long to write."""
    steps = await written(database_dsn, length)
    async with counting(database_dsn, max_size=1) as counter:
        large = Large(steps, counter)
        await any_checkpoint_reads_exactly_from_a_bounded_number_of_rows(large)
        await the_oldest_is_read_as_fast_as_the_newest(large)
        await a_checkpoint_that_is_not_there_is_none(large)
        await a_page_of_history_reads_a_page(large)
        await a_listing_streams(large)


async def any_checkpoint_reads_exactly_from_a_bounded_number_of_rows(large: Large) -> None:
    """F09, F28: the first, 17, 999 to 1001, 2500 and 4999 of 5,000, or the same shares of fewer."""
    for number in (0, 1, 17, 999, 1000, 1001, 2500, 4998, 4999):
        step = large.step(number / 4999)
        saver = await large.counter.new_saver()
        before = await large.counter.rows_read()
        assert step.is_read_as(await saver.aget_tuple(step.config))
        rows = await large.counter.rows_read() - before
        assert rows <= ROWS_MAX + 2 * step.number, "the items of the list itself, and what leads to them"
        await assert_reads_as(await large.counter.new_saver(), step)


async def the_oldest_is_read_as_fast_as_the_newest(large: Large) -> None:
    """Of equal size: the list grows, so the second half of the thread is compared with its end."""

    async def median_seconds(step: Step) -> float:
        times = []
        for _ in range(9):
            saver = await large.counter.new_saver()
            start = time.perf_counter()
            await saver.aget_tuple(step.config)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    newest = await median_seconds(large.step(1))
    assert await median_seconds(large.step(0.002)) < 2 * newest
    assert await median_seconds(large.step(0.5)) < 3 * newest


async def a_checkpoint_that_is_not_there_is_none(large: Large) -> None:
    saver = await large.counter.new_saver()
    unknown = config_of("story", "1f000000-0000-6000-8000-000000000000")
    assert await saver.aget_tuple(unknown) is None
    assert await saver.aget_delta_channel_history(config=unknown, channels=["log"]) == {"log": {"writes": []}}
    assert [each async for each in saver.alist(unknown)] == []


async def a_page_of_history_reads_a_page(large: Large) -> None:
    """F31: 20 checkpoints cost their rows and those back to the anchor of the oldest."""
    saver = await large.counter.new_saver()
    before = await large.counter.rows_read()
    found = [each async for each in saver.alist(config_of("story"), limit=20)]
    rows = await large.counter.rows_read() - before
    newest = large.steps[:-21:-1]
    assert [each.checkpoint for each in found] == [step.checkpoint for step in newest]
    assert rows <= 2 * ROWS_MAX + 2 * newest[0].number


async def a_listing_streams(large: Large) -> None:
    """The first item is there before the last is read; who stops early leaves nothing checked out."""
    saver = await large.counter.new_saver()
    listing = saver.alist(config_of("story"))
    await anext(listing)
    assert await large.counter.count() <= 3
    for _ in range(2):
        await anext(listing)
    await listing.aclose()  # type: ignore[attr-defined]
    assert large.counter.pool.get_idle_size() == large.counter.pool.get_size() == 1

    async def consume(saver: DeltaSaver) -> None:
        async for found in saver.alist(config_of("story")):
            consumed.append(found.config)  # noqa: PERF401 - counted while it goes on

    consumed: list[Any] = []
    consuming = asyncio.ensure_future(consume(saver))
    await until(lambda: len(consumed) >= 3)
    consuming.cancel()
    await asyncio.wait([consuming])
    assert len(consumed) < len(large.steps)
    assert large.counter.pool.get_idle_size() == 1
    assert large.step(1).is_read_as(await saver.aget_tuple(config_of("story")))
