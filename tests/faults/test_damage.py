"""Damaged rows: no load gives a wrong or shortened state; it gives the right one or raises `StoredDataError`.

What a row's loss takes away without a trace is what only that row told of: the checkpoint itself, or the writes of one
task that no later checkpoint consumed. Everything else is missed by something that is still there.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter

import asyncpg
import pytest

from deltastore import BrokenChainError, DeltaSaver, StoredDataError
from deltastore.conversion.validate import checkpoint_key, thread
from tests.faults.damage import NOTHING, damage_something
from tests.faults.stories import Story, config_of
from tests.faults.threads import FREQUENCY, Loads, Thread, restore

DAMAGES = [pytest.param(1, 40, id="40"), *(pytest.param(n, 100, marks=pytest.mark.slow) for n in (2, 3, 4))]


@pytest.mark.parametrize(("seed", "count"), DAMAGES)
async def test_random_damage_is_never_a_wrong_state(stored: Thread, seed: int, count: int) -> None:
    chance = random.Random(seed)
    print(f"seed {seed}")
    total: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    async with asyncpg.create_pool(stored.dsn, min_size=1, max_size=2) as pool:
        saver = DeltaSaver(pool, snapshot_frequency=FREQUENCY)
        async with pool.acquire() as connection:
            for _ in range(count):
                damage = await damage_something(connection, chance)
                loads = Loads(stored, saver, damage)
                await loads.check()
                kinds[
                    f"{damage.kind} in {damage.table}: " + ("noticed" if len(loads.outcomes) > 1 else "harmless")
                ] += 1
                total += loads.outcomes
                assert all("story" in each for each in loads.errors), loads.errors
                await restore(connection)
            await Loads(stored, saver, NOTHING).check()
    print(dict(total), dict(kinds), sep="\n")
    assert total["right"] > total.total() / 4, "what is not touched stays readable"
    assert total["CorruptPayloadError"]
    assert total["BrokenChainError"]


async def test_a_save_on_a_damaged_parent_is_refused_or_right(stored: Thread) -> None:
    chance = random.Random(11)
    async with asyncpg.create_pool(stored.dsn, min_size=1, max_size=2) as pool:
        saver = DeltaSaver(pool, snapshot_frequency=FREQUENCY)
        async with pool.acquire() as connection:
            refused = 0
            for _ in range(25):
                await damage_something(connection, chance)
                saver._bridge.engine.cache.forget(thread("story").key)
                parent = chance.choice(stored.steps)
                story = Story(saver, seed=chance.randrange(1000), words_max=1500)
                try:
                    child = await story.step(parent)
                except StoredDataError:
                    refused += 1
                else:
                    saver._bridge.engine.cache.forget(thread("story").key)
                    try:
                        found = await saver.aget_tuple(child.config)
                    except StoredDataError:
                        refused += 1
                    else:
                        assert found is not None
                        assert found.checkpoint == child.checkpoint
                del parent.pending[len(stored.tuples[parent.id].pending_writes or []) :]
                await restore(connection)
            assert 0 < refused < 25


@pytest.mark.parametrize("call", ["aprune", "adelete_for_runs"])
async def test_a_sweep_of_a_damaged_thread_loses_nothing_that_was_readable(stored: Thread, call: str) -> None:
    chance = random.Random(13)
    async with asyncpg.create_pool(stored.dsn, min_size=1, max_size=2) as pool:
        saver = DeltaSaver(pool, snapshot_frequency=FREQUENCY)
        async with pool.acquire() as connection:
            for _ in range(12):
                damage = await damage_something(connection, chance)
                saver._bridge.engine.cache.forget(thread("story").key)
                with contextlib.suppress(StoredDataError):
                    await (saver.aprune(["story"]) if call == "aprune" else saver.adelete_for_runs(["first", "third"]))
                saver._bridge.engine.cache.forget(thread("story").key)
                for step in stored.steps:
                    try:
                        found = await saver.aget_tuple(step.config)
                    except StoredDataError:
                        continue
                    right = stored.tuples[step.id]
                    if found is not None and not damage.removed_writes(checkpoint_key(step.id)):
                        assert found._replace(parent_config=None) == right._replace(parent_config=None), damage
                await restore(connection)


async def test_a_lost_thread_row_is_an_error_not_an_empty_thread(stored: Thread) -> None:
    async with asyncpg.create_pool(stored.dsn, min_size=1, max_size=2) as pool:
        saver = DeltaSaver(pool)
        await pool.execute("TRUNCATE deltastore.delta_threads")
        try:
            with pytest.raises(BrokenChainError, match="the row of the thread"):
                await saver.aget_tuple(config_of("story"))
            with pytest.raises(BrokenChainError, match="the row of the thread"):
                _ = [each async for each in saver.alist(config_of("story"))]
        finally:
            await pool.execute("INSERT INTO deltastore.delta_threads SELECT * FROM backup.delta_threads")
