"""The thread that is damaged: all that it has, what loads of it gave, and loads that are compared with that."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import asyncpg
from langgraph.checkpoint.base import CheckpointTuple

from deltastore import DeltaSaver, StoredDataError
from deltastore.conversion.validate import checkpoint_key, thread
from deltastore.postgres.queries import AnyConnection
from tests.faults.damage import KEYS, Damage, keys_of
from tests.faults.stories import Step, Story, config_of

FREQUENCY = 5
TABLES = (*KEYS, "delta_threads")


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


async def written(dsn: str, *, packed: bool = False) -> Thread:
    async with DeltaSaver.from_conn_string(dsn, snapshot_frequency=FREQUENCY) as saver:
        story = Story(saver, seed=7, words_max=1500)
        await story.grow(9, run_id="first")
        await story.grow(7, run_id="second")
        await story.grow(3, story.steps[6], run_id="third")
        if packed:
            assert (await saver.acompact_thread("story")).packs > 1
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
        assert set(counts) == ({3, 4} if packed else {1, 2, 3}), "values, pages and writes, or packs"
        await connection.execute("CREATE SCHEMA backup")
        for table in TABLES:
            await connection.execute(f"CREATE TABLE backup.{table} AS TABLE deltastore.{table}")
        await connection.close()
        return Thread(dsn, story.steps, tuples, histories)


async def restore(connection: AnyConnection) -> None:
    await connection.execute("TRUNCATE deltastore.delta_quarantine")
    for table in TABLES:
        await connection.execute(f"TRUNCATE deltastore.{table}")
        await connection.execute(f"INSERT INTO deltastore.{table} SELECT * FROM backup.{table}")
        key = f"{table}_pkey"
        if not await connection.fetchval("SELECT count(*) FROM pg_constraint WHERE conname = $1", key):
            columns = ", ".join(dict.fromkeys(("thread_key", *keys_of(table))))
            await connection.execute(f"ALTER TABLE deltastore.{table} ADD CONSTRAINT {key} PRIMARY KEY ({columns})")


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
