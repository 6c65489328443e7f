"""Packs that do not say where they begin: a process that knew no packs copied them."""

from __future__ import annotations

from deltastore import DeltaSaver
from deltastore.inspection import history
from tests.faults.stories import Story, assert_reads_as


async def test_writes_are_found_in_packs_without_a_first_checkpoint(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        story = Story(saver)
        head = await story.grow(4)
        await saver.aput_writes(head.config, [("words", ["w"])], "task")
        head.pending.append(("task", "words", ["w"]))
        entries = [each async for each in history(saver, "story")]
        await saver.acompact_thread("story")
        pool = saver._bridge.engine.storage._pool  # type: ignore[attr-defined]
        await pool.execute("UPDATE deltastore.delta_segments SET first_checkpoint_id = NULL")
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        for step in story.steps:
            await assert_reads_as(saver, step)
        assert [each async for each in history(saver, "story")] == entries
