"""A run goes on while another process prunes, deletes or copies its thread: never a wrong state, never a deadlock."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sized
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple

from deltastore import BrokenChainError, DeltaSaver
from tests.faults.stories import Step, Story, config_of, until

ROUNDS = [pytest.param(3, id="quick"), pytest.param(60, id="many", marks=pytest.mark.slow)]
STEPS = 25


@asynccontextmanager
async def two_savers(dsn: str, **options: Any) -> AsyncIterator[tuple[DeltaSaver, DeltaSaver]]:
    """Two pools and two caches, as two processes have."""
    async with (
        DeltaSaver.from_conn_string(dsn, max_size=3, **options) as writer,
        DeltaSaver.from_conn_string(dsn, max_size=3, **options) as sweeper,
    ):
        yield writer, sweeper


@asynccontextmanager
async def all_the_time(call: Any, seed: int) -> AsyncIterator[list[Any]]:
    """Repeats a call at random moments while the block runs; what the calls answered."""
    answers: list[Any] = []
    pauses = random.Random(seed)

    async def repeat() -> None:
        while True:
            for _ in range(pauses.randrange(40)):
                await asyncio.sleep(0)
            answers.append(await call())

    repeating = asyncio.ensure_future(repeat())
    try:
        yield answers
    finally:
        repeating.cancel()
        await asyncio.wait([repeating])
        if not repeating.cancelled() and repeating.exception() is not None:
            raise AssertionError("the other process failed") from repeating.exception()


async def assert_survives(saver: DeltaSaver, step: Step) -> bool:
    """A checkpoint is there with exactly its state, or gone; whether it is there."""
    found = await saver.aget_tuple(step.config)
    if found is None:
        return False
    assert found.checkpoint == step.checkpoint
    assert found.metadata == step.metadata
    assert found.parent_config in (None, step.parent and step.parent.config)
    assert sorted(map(repr, found.pending_writes or [])) == sorted(map(repr, step.pending))
    return True


async def assert_history_survives(saver: DeltaSaver, step: Step) -> None:
    history = await saver.aget_delta_channel_history(config=step.config, channels=["log"])
    assert history["log"]["writes"] == list(step.log)


async def go_on(story: Story, **metadata: Any) -> Step:
    """A step behind the newest one; if that is deleted, behind the newest that is there, as a new run would."""
    parent = story.steps[-1] if story.steps else None
    while True:
        try:
            return await story.step(parent, **metadata)
        except BrokenChainError:
            found = await story.saver.aget_tuple(config_of(story.thread_id))
            there = {step.id: step for step in story.steps}
            parent = None if found is None else there[found.checkpoint["id"]]


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("frequency", [3, 50])
async def test_keep_latest_while_a_run_writes(
    database_dsn: str, caplog: pytest.LogCaptureFixture, rounds: int, frequency: int
) -> None:
    async with two_savers(database_dsn, snapshot_frequency=frequency) as (writer, sweeper):
        for number in range(rounds):
            story = Story(writer, f"t{number}", seed=number)
            async with all_the_time(lambda story=story: sweeper.aprune([story.thread_id]), number) as pruned:
                head = await story.grow(STEPS)
            assert len(pruned) > 1
            for reader in (writer, sweeper):
                assert await assert_survives(reader, head)
                await assert_history_survives(reader, head)
                there = [await assert_survives(reader, step) for step in story.steps]
                assert sum(there) == len([each async for each in reader.alist(config_of(story.thread_id))])
            await story.grow(2)
            assert all([await assert_survives(sweeper, step) for step in story.steps[-3:]])
    assert not caplog.get_records("call") or caplog.records[0].levelno < logging.WARNING


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_deletion_of_runs_while_a_run_writes(database_dsn: str, rounds: int) -> None:
    """Checkpoints of four runs in turn; two of the runs are deleted again and again while all of them go on."""
    async with two_savers(database_dsn, snapshot_frequency=4) as (writer, sweeper):
        for number in range(rounds):
            story = Story(writer, f"t{number}", seed=number)
            deleted = [f"{number}-0", f"{number}-2"]
            async with all_the_time(lambda deleted=deleted: sweeper.adelete_for_runs(deleted), number):
                for count in range(STEPS):
                    await go_on(story, run_id=f"{number}-{count % 4}")
            for reader in (writer, sweeper):
                for step in story.steps:
                    if await assert_survives(reader, step):
                        await assert_history_survives(reader, step)
                    else:
                        assert step.metadata["run_id"] in deleted
            await sweeper.adelete_for_runs(deleted)
            for step in story.steps:
                assert await assert_survives(writer, step) == (step.metadata["run_id"] not in deleted)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("by_itself", [False, True], ids=["another process", "the same process"])
async def test_deletion_of_the_thread_while_a_run_writes(database_dsn: str, rounds: int, by_itself: bool) -> None:
    """A run whose thread is deleted gets an error or starts anew: what is there is never less than it thinks."""
    async with two_savers(database_dsn, snapshot_frequency=4) as (writer, sweeper):
        for number in range(rounds):
            story = Story(writer, f"t{number}", seed=number)
            deleter = writer if by_itself else sweeper
            async with all_the_time(lambda story=story, by=deleter: by.adelete_thread(story.thread_id), number):
                for _ in range(STEPS):
                    await go_on(story)
            head = await go_on(story)
            for reader in (writer, sweeper):
                assert await assert_survives(reader, head)
                for step in story.steps:
                    if await assert_survives(reader, step):
                        await assert_history_survives(reader, step)
            await sweeper.adelete_thread(story.thread_id)
            assert await writer.aget_tuple(config_of(story.thread_id)) is None


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_reads_while_another_process_removes(database_dsn: str, rounds: int) -> None:
    """What a load needs can go between its two statements: then it looks again, and finds a state or nothing."""
    async with two_savers(database_dsn, snapshot_frequency=3) as (writer, sweeper):
        for number in range(rounds):
            story = Story(writer, f"t{number}", seed=number, words_max=3000)
            await story.grow(12)
            middle = story.steps[6]

            async def read(story: Story = story, step: Step = middle) -> None:
                reader = await new_reader(sweeper)
                await assert_survives(reader, step)
                async for found in reader.alist(config_of(story.thread_id)):
                    assert found.checkpoint in [each.checkpoint for each in story.steps]

            async with all_the_time(read, number) as reads, all_the_time(read, number + 1000):
                await until(partial(_at_least, reads, 2))
                await writer.aprune([story.thread_id])
                await story.grow(3)
                await writer.aprune([story.thread_id])
                await writer.adelete_thread(story.thread_id)


def _at_least(reads: Sized, count: int) -> bool:
    return len(reads) >= count


async def new_reader(saver: DeltaSaver) -> DeltaSaver:
    """A saver over the same pool with an empty cache."""
    return DeltaSaver(saver._bridge.engine.storage._pool)  # type: ignore[attr-defined]


async def test_all_of_it_at_once(database_dsn: str) -> None:
    """Many threads, each written by one saver and swept by the other, which also lists and copies."""
    async with two_savers(database_dsn, snapshot_frequency=5) as (writer, sweeper):
        stories = [Story(writer, f"t{number}", seed=number) for number in range(8)]
        ids = [story.thread_id for story in stories]

        async def sweep() -> None:
            await sweeper.aprune(ids[:4])
            await sweeper.adelete_for_runs(["a"])
            listed = [each async for each in sweeper.alist(None, limit=40)]
            for found in listed:
                step = known.get(found.config["configurable"]["checkpoint_id"])
                assert step is None or found.checkpoint == step.checkpoint

        known: dict[str, Step] = {}

        async def write(story: Story) -> None:
            for number in range(STEPS):
                step = await go_on(story, run_id="ab"[number % 2])
                known[step.id] = step

        async with all_the_time(sweep, 1) as sweeps:
            await asyncio.gather(*(write(story) for story in stories))
            await until(lambda: sweeps)
        for story in stories:
            there = [await assert_survives(sweeper, step) for step in story.steps]
            for step, is_there in zip(story.steps, there, strict=True):
                if is_there:
                    await assert_history_survives(sweeper, step)
            assert there[-1] or story.steps[-1].metadata["run_id"] == "a"


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_copies_are_of_one_moment(database_dsn: str, rounds: int) -> None:
    async with two_savers(database_dsn, snapshot_frequency=4) as (writer, sweeper):
        for number in range(rounds):
            story = Story(writer, f"t{number}", seed=number)
            await story.step(None)
            copies: list[str] = []

            async def copy(story: Story = story, copies: list[str] = copies) -> None:
                target = f"{story.thread_id} copy {len(copies)}"
                await sweeper.acopy_thread(story.thread_id, target)
                copies.append(target)

            async with all_the_time(copy, number):
                await story.grow(STEPS)
            assert copies
            for target in copies:
                found = [each async for each in sweeper.alist(config_of(target))]
                assert [each.checkpoint for each in reversed(found)] == [
                    step.checkpoint for step in story.steps[: len(found)]
                ]
                await assert_pending_are_of_a_moment(found, story)


async def assert_pending_are_of_a_moment(found: list[CheckpointTuple], story: Story) -> None:
    """The writes to the newest copied checkpoint may be copied or not, those to all others are."""
    for each, step in zip(reversed(found), story.steps, strict=False):
        if each is found[0]:
            assert (each.pending_writes or []) in ([], step.pending)
        else:
            assert each.pending_writes == step.pending


async def test_the_copied_thread_goes_on_by_itself(database_dsn: str) -> None:
    async with two_savers(database_dsn, snapshot_frequency=4) as (writer, sweeper):
        story = Story(writer, "t")
        await story.grow(10)
        await sweeper.acopy_thread("t", "u")
        await writer.adelete_thread("t")
        found = [each async for each in sweeper.alist(config_of("u"))]
        assert [each.checkpoint for each in reversed(found)] == [step.checkpoint for step in story.steps]
