"""`put` and the `put_writes` of many tasks, in any order and at the same time, give the same checkpoint."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint

from deltastore import DeltaSaver
from tests.faults.stories import config_of

TASKS = 12


def checkpoint_of(number: int) -> Any:
    checkpoint: Any = create_checkpoint(empty_checkpoint(), None, number)
    checkpoint.update(id=f"{number:08}", ts="", channel_values={"words": ["a"]}, channel_versions={"words": 1})
    return checkpoint


async def final(saver: DeltaSaver, thread_id: str, seed: int, *, at_once: bool) -> tuple[Any, ...]:
    """Puts checkpoint 1 and the writes to it in an order of its own, then checkpoint 2; what both read as."""
    shuffled = random.Random(seed)
    config = config_of(thread_id, "00000001")
    calls: list[Any] = [
        saver.aput_writes(config, [("log", f"from {task}"), ("words", [f"{task}"])], f"task-{task:02}", f"~{task % 3}")
        for task in range(TASKS)
    ]
    calls.append(saver.aput(config_of(thread_id), checkpoint_of(1), {"step": 1}, {"words": 1}))
    shuffled.shuffle(calls)
    if at_once:
        await asyncio.gather(*calls)
    else:
        for call in calls:
            await call
    child = checkpoint_of(2)
    child["channel_values"]["words"] = ["a", *(str(task) for task in range(TASKS))]
    child["channel_versions"] = {"words": 2, "log": 1}
    stored = await saver.aput(config, child, {"step": 2}, {"words": 2, "log": 1})
    first, second = await saver.aget_tuple(config), await saver.aget_tuple(stored)
    assert first is not None
    assert second is not None
    history = await saver.aget_delta_channel_history(config=stored, channels=["log"])
    return first.checkpoint, first.metadata, first.pending_writes, second.checkpoint, second.pending_writes, history


async def test_a_hundred_orders_give_one_result(database_dsn: str) -> None:
    """F21: half of them at the same time, half one after the other."""
    async with DeltaSaver.from_conn_string(database_dsn, max_size=8) as saver:
        results = [await final(saver, f"t{seed}", seed, at_once=bool(seed % 2)) for seed in range(100)]
    assert all(each == results[0] for each in results)
    _, _, pending, _, _, history = results[0]
    assert pending is not None
    assert len(pending) == 2 * TASKS
    order = sorted(range(TASKS), key=lambda task: (f"~{task % 3}", f"task-{task:02}"))
    assert [value for _, _, value in history["log"]["writes"]] == [f"from {task}" for task in order]


async def test_writes_are_shown_once_their_checkpoint_arrives(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        config = config_of("t", "00000001")
        await saver.aput_writes(config, [("words", ["a"])], "task")
        assert await saver.aget_tuple(config) is None
        assert await saver.aget_tuple(config_of("t")) is None
        assert [each async for each in saver.alist(config_of("t"))] == []
        await saver.aput(config_of("t"), checkpoint_of(1), {"step": 1}, {"words": 1})
        found = await saver.aget_tuple(config_of("t"))
        assert found is not None
        assert found.pending_writes == [("task", "words", ["a"])]


async def test_the_same_checkpoint_put_by_many_at_once(database_dsn: str) -> None:
    """As after a retry whose first attempt was still under way."""
    async with (
        DeltaSaver.from_conn_string(database_dsn, max_size=4) as one,
        DeltaSaver.from_conn_string(database_dsn, max_size=4) as other,
    ):
        for number in range(1, 11):
            at = config_of("t") if number == 1 else config_of("t", f"{number - 1:08}")
            calls = [
                saver.aput(at, checkpoint_of(number), {"step": number}, {"words": 1}) for saver in (one, other) * 4
            ]
            await asyncio.gather(*calls)
        found = [each async for each in one.alist(config_of("t"))]
        assert [each.checkpoint for each in found] == [checkpoint_of(number) for number in range(10, 0, -1)]
        assert all(each.pending_writes == [] for each in found)
