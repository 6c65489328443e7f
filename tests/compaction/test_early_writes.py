"""Writes that came before their checkpoint, and are in a pack when it comes."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base.id import uuid6

from deltastore import DeltaSaver
from deltastore.core.compacted import Compaction
from tests.faults.stories import config_of


def checkpoint(number: int) -> Any:
    return {
        "v": 4,
        "id": str(uuid6(clock_seq=number)),
        "ts": f"2026-01-01T00:00:{number:02}+00:00",
        "channel_values": {"words": ["w"] * (number + 1)},
        "channel_versions": {"words": number + 1, "log": number + 1},
        "versions_seen": {},
    }


async def put(saver: DeltaSaver, at: Any, given: Any, step: int) -> Any:
    metadata: Any = {"source": "loop", "step": step, "counters_since_delta_snapshot": {"log": [step, step]}}
    return await saver.aput(at, given, metadata, given["channel_versions"])


async def test_a_child_is_made_with_writes_that_were_packed_before_their_checkpoint_came(saver: DeltaSaver) -> None:
    """With durability "async", writes overtake their checkpoint; a compaction came between."""
    first, second, third = (checkpoint(number) for number in range(3))
    root = await put(saver, config_of("story"), first, 0)
    await saver.aput_writes(config_of("story", second["id"]), [("log", "overtook")], "task")
    await saver.aput_writes(config_of("story", first["id"]), [("words", ["w" * 100])], "task")
    assert (await saver.acompact_thread("story")).status is Compaction.COMPACTED
    middle = await put(saver, root, second, 1)
    head = await put(saver, middle, third, 2)
    found = await saver.aget_tuple(middle)
    assert found is not None
    assert found.pending_writes == [("task", "log", "overtook")]
    history = await saver.aget_delta_channel_history(config=head, channels=["log"])
    assert list(history["log"]["writes"]) == [("task", "log", "overtook")]
