"""Verification while graphs write and others delete, prune and retain: no false alarm."""

from __future__ import annotations

import asyncio
import random

import asyncpg

from deltastore import DeltaSaver
from deltastore.core.retention import RetentionPolicy, RetentionRule
from deltastore.verification import Report, verify_threads
from tests.faults.stories import Story
from tests.verification.conftest import FREQUENCY

THREADS = 4
ROUNDS = 12


async def grow(story: Story) -> None:
    """Runs of some steps each."""
    for number in range(ROUNDS):
        await story.grow(5, run_id=f"{story.thread_id} run {number}")


async def test_no_false_alarm_while_threads_change(database_dsn: str) -> None:
    chance = random.Random(4)
    async with asyncpg.create_pool(database_dsn, min_size=1, max_size=8) as pool:
        savers = [DeltaSaver(pool, snapshot_frequency=FREQUENCY) for _ in range(3)]
        stories = [Story(savers[0], f"thread {number}", seed=number) for number in range(THREADS)]
        writers = asyncio.gather(*map(grow, stories))
        reports: list[Report] = []

        async def remove() -> None:
            policy = RetentionPolicy((RetentionRule(keep_last=5),))
            while not writers.done():
                ended = {story.thread_id: len(story.steps) // 5 - 2 for story in stories}
                await savers[1].adelete_for_runs([f"{name} run {number}" for name, number in ended.items()])
                await savers[1].aretain(policy)
                await savers[1].aprune([f"thread {chance.randrange(THREADS)}"])

        async def verify() -> None:
            while not writers.done():
                reports.append(await verify_threads(savers[2]))

        await asyncio.gather(writers, remove(), verify())
        reports.append(await verify_threads(savers[2]))
    assert len(reports) > 3
    assert reports[-1].threads == THREADS
    for report in reports:
        assert not report.damaged, [outcome.found.findings for outcome in report.damaged]
