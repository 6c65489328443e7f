"""Damaged rows: no load gives a wrong or shortened state; it gives the right one or raises `StoredDataError`.

What a row's loss takes away without a trace is what only that row told of: the checkpoint itself, or the writes of one
task that no later checkpoint consumed. Everything else is missed by something that is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
from langgraph.checkpoint.base import CheckpointTuple

from deltastore import BrokenChainError, DeltaSaver, StoredDataError
from deltastore.conversion.validate import checkpoint_key, thread
from deltastore.core import pieces
from deltastore.postgres.queries import AnyConnection
from tests.faults.damage import KEYS, Damage, damage_something
from tests.faults.stories import Step, Story, config_of
from tests.support.servers import database

FREQUENCY = 5
DAMAGES = [pytest.param(1, 40, id="40"), *(pytest.param(n, 100, marks=pytest.mark.slow) for n in (2, 3, 4))]


@dataclass(frozen=True)
class Thread:
    """The undamaged thread: its steps, and what loads gave."""

    dsn: str
    steps: list[Step]
    tuples: dict[str, CheckpointTuple]
    histories: dict[str, Any]

    @property
    def listed(self) -> list[CheckpointTuple]:
        return [self.tuples[each] for each in sorted(self.tuples, reverse=True)]


@pytest.fixture(scope="module")
def stored(server_dsn: str, _template: str) -> Iterator[Thread]:
    """A thread with anchors, deltas, pages, large and small items, forks, pending writes and two runs."""
    with (
        database(server_dsn, _template) as dsn,
        ThreadPoolExecutor(1) as executor,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(pieces, "PAGE_PIECES", 4)
        yield executor.submit(asyncio.run, written(dsn)).result()


async def written(dsn: str) -> Thread:
    async with DeltaSaver.from_conn_string(dsn, snapshot_frequency=FREQUENCY) as saver:
        story = Story(saver, seed=7, words_max=1500)
        await story.grow(9, run_id="first")
        await story.grow(7, run_id="second")
        await story.grow(3, story.steps[6], run_id="third")
        head = await story.grow(1, story.steps[15], run_id="second")
        await saver.aput_writes(head.config, [("words", ["pending"]), ("log", "pending")], "late", "~late")
        tuples, histories = {}, {}
        for step in story.steps:
            found = await saver.aget_tuple(step.config)
            assert found is not None
            tuples[step.id] = found
            histories[step.id] = await saver.aget_delta_channel_history(config=step.config, channels=["log"])
        connection = await asyncpg.connect(dsn)
        counts = Counter(row["kind"] for row in await connection.fetch("SELECT kind FROM deltastore.delta_segments"))
        assert set(counts) == {1, 2, 3}, "values, pages and writes"
        await connection.execute("CREATE SCHEMA backup")
        for table in KEYS:
            await connection.execute(f"CREATE TABLE backup.{table} AS TABLE deltastore.{table}")
        await connection.close()
        return Thread(dsn, story.steps, tuples, histories)


async def restore(connection: AnyConnection) -> None:
    for table in KEYS:
        await connection.execute(f"TRUNCATE deltastore.{table}")
        await connection.execute(f"INSERT INTO deltastore.{table} SELECT * FROM backup.{table}")


class Loads:
    """All loads of the thread, each with an empty cache; what came of them."""

    def __init__(self, thread_: Thread, saver: DeltaSaver, damage: Damage) -> None:
        self._thread = thread_
        self._saver = saver
        self._damage = damage
        self.outcomes: Counter[str] = Counter()
        self.errors: set[str] = set()

    async def check(self) -> None:
        for step in self._thread.steps:
            await self._expect(lambda step=step: self._saver.aget_tuple(step.config), [step])
            await self._expect_history(step)
        newest = sorted(self._thread.steps, key=lambda step: step.id, reverse=True)
        await self._expect(lambda: self._saver.aget_tuple(config_of("story")), newest)
        await self._check_listing(newest)

    def _forget(self) -> None:
        self._saver._bridge.engine.cache.forget(thread("story").key)

    def _removed(self, step: Step) -> bool:
        return self._damage.removed(checkpoint_key(step.id))

    def _is_right(self, found: CheckpointTuple, step: Step) -> bool:
        right = self._thread.tuples[step.id]
        if found == right:
            return True
        if not self._damage.removed_writes(checkpoint_key(step.id)):
            return False
        pending = [write for write in right.pending_writes or [] if write in (found.pending_writes or [])]
        return found == right._replace(pending_writes=pending)

    async def _expect(self, load: Any, candidates: list[Step]) -> None:
        """The first candidate that is not removed, or an error."""
        self._forget()
        expected = next((step for step in candidates if not self._removed(step)), None)
        try:
            found = await load()
        except StoredDataError as error:
            self.outcomes[type(error).__name__] += 1
            self.errors.add(str(error))
            return
        self.outcomes["right" if expected else "None"] += 1
        if expected is None:
            assert found is None, self._damage
        else:
            assert found is not None, f"{self._damage}: step {expected.number} is not there any more"
            assert self._is_right(found, expected), f"{self._damage}: step {expected.number} reads as {found}"

    async def _expect_history(self, step: Step) -> None:
        self._forget()
        try:
            found = await self._saver.aget_delta_channel_history(config=step.config, channels=["log"])
        except StoredDataError:
            self.outcomes["history refused"] += 1
            return
        if self._removed(step):
            assert found == {"log": {"writes": []}}
        else:
            assert found == self._thread.histories[step.id], f"{self._damage}: history of step {step.number}"

    async def _check_listing(self, newest: list[Step]) -> None:
        """What a listing gives before it raises is right and in order."""
        self._forget()
        expected = iter([step for step in newest if not self._removed(step)])
        try:
            async for found in self._saver.alist(config_of("story")):
                assert self._is_right(found, next(expected)), f"{self._damage}: a listing gave {found}"
        except StoredDataError:
            self.outcomes["listing refused"] += 1
        else:
            assert next(expected, None) is None, f"{self._damage}: a listing is too short"


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
            await Loads(stored, saver, damage).check()
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
        await pool.execute("CREATE TABLE backup.delta_threads AS TABLE deltastore.delta_threads")
        await pool.execute("TRUNCATE deltastore.delta_threads")
        try:
            with pytest.raises(BrokenChainError, match="the row of the thread"):
                await saver.aget_tuple(config_of("story"))
            with pytest.raises(BrokenChainError, match="the row of the thread"):
                _ = [each async for each in saver.alist(config_of("story"))]
        finally:
            await pool.execute("INSERT INTO deltastore.delta_threads SELECT * FROM backup.delta_threads")
