"""Values that nothing but pending writes repeat are no leftovers."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.base.id import uuid6

from deltastore import DeltaSaver
from deltastore.verification import verify_threads
from tests.faults.stories import config_of

WORD = "a word " * 200


async def put_root(saver: DeltaSaver, run_id: str, words: list[str]) -> Any:
    checkpoint: Any = {
        "v": 4,
        "id": str(uuid6()),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"words": words},
        "channel_versions": {"words": 1},
        "versions_seen": {},
    }
    return await saver.aput(config_of("story"), checkpoint, {"source": "input", "run_id": run_id}, {"words": 1})


@pytest.mark.parametrize("is_early", [False, True])
async def test_values_of_a_deleted_checkpoint_that_pending_writes_repeat_are_needed(is_early: bool) -> None:
    saver = DeltaSaver.in_memory()
    await put_root(saver, "deleted", [WORD])
    kept = await put_root(saver, "kept", ["other"])
    at = config_of("story", str(uuid6())) if is_early else kept
    await saver.aput_writes(at, [("words", [WORD])], "task")
    await saver.adelete_for_runs(["deleted"])
    report = await verify_threads(saver, ["story"])
    assert report.is_sound, [outcome.found.findings for outcome in report.damaged]
