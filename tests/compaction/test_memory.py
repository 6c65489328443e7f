"""What a compaction holds in memory is bounded by bytes, however large single segments are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from deltastore import DeltaSaver
from deltastore.core.compacted import Compaction
from deltastore.memory.thread import MemoryEdit
from tests.faults.stories import Story, assert_reads_as


async def test_large_segments_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.repacking.ROUND_BYTES", 40_000)
    saver = DeltaSaver.in_memory()
    story = Story(saver)
    head = await story.grow(1)
    for number in range(60):
        value = "".join(random.Random(number).choices("abcdefghijklmnop", k=10_000))
        await saver.aput_writes(head.config, [("words", value)], f"task {number}")
        head.pending.append((f"task {number}", "words", value))
    asked: list[int] = []
    segments = MemoryEdit.segments

    async def counted(view: MemoryEdit, segment_ids: Sequence[int]) -> Any:
        asked.append(len(segment_ids))
        return await segments(view, segment_ids)

    monkeypatch.setattr(MemoryEdit, "segments", counted)
    assert (await saver.acompact_thread("story")).status is Compaction.COMPACTED
    assert max(asked) <= 8
    await assert_reads_as(saver, head)
