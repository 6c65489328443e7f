"""A checkpoint whose parent was deleted, put once more."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base.id import uuid6

from deltastore import DeltaSaver
from deltastore.verification import verify_threads
from tests.faults.stories import config_of


async def test_it_still_has_no_parent_for_readers() -> None:
    saver = DeltaSaver.in_memory()
    parent = config = config_of("story")
    checkpoint: Any = {}
    for version in (1, 2):
        parent = config
        checkpoint = {
            "v": 4,
            "id": str(uuid6(clock_seq=version)),
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": {"words": ["word"] * version},
            "channel_versions": {"words": version},
            "versions_seen": {},
        }
        config = await saver.aput(parent, checkpoint, {"source": "loop"}, {"words": version})
    await saver.aprune(["story"])
    again: Any = {**checkpoint, "ts": "2026-02-01T00:00:00+00:00"}
    await saver.aput(parent, again, {"source": "loop"}, {"words": 2})
    found = await saver.aget_tuple(config)
    assert found is not None
    assert found.checkpoint["ts"] == again["ts"]
    assert found.parent_config is None
    assert (await verify_threads(saver, ["story"])).is_sound
