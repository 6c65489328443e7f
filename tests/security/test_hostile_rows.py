"""Whoever can write to the database can make loads fail, but runs no code in the processes that load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
import ormsgpack
import pytest

from deltastore import DeltaSaver, UnreadableValueError
from deltastore.core.frame import seal
from deltastore.core.model import SegmentKind
from deltastore.core.payload import pack_values, segment_binding

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
ID = "1f000000-0000-6000-8000-000000000001"


async def plant(dsn: str, item: bytes) -> None:
    """Puts an item in the place of a stored value, with everything around it in order."""
    async with DeltaSaver.from_conn_string(dsn) as saver:
        checkpoint: Any = {"v": 4, "id": ID, "channel_values": {"value": "x" * 5000}, "channel_versions": {"value": 1}}
        await saver.aput(CONFIG, checkpoint, {}, {"value": 1})
    connection = await asyncpg.connect(dsn)
    [row] = await connection.fetch("SELECT * FROM deltastore.delta_segments")
    binding = segment_binding(SegmentKind(row["kind"]), row["namespace"], row["checkpoint_id"])
    sealed = seal(pack_values([item]), associated=binding)
    await connection.execute("UPDATE deltastore.delta_segments SET payload = $1", sealed)
    await connection.close()


@pytest.mark.parametrize("code", [0, 1, 2, 5])
async def test_a_planted_call_is_not_made(database_dsn: str, tmp_path: Path, code: int) -> None:
    command = f"touch {tmp_path}/ran"
    argument: Any = {1: (command,), 2: {"command": command}, 5: {"command": command}}.get(code, command)
    call = ormsgpack.Ext(code, ormsgpack.packb(("os", "system", argument)))
    await plant(database_dsn, b"\x00" + ormsgpack.packb([{"deep": call}]))
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        with pytest.raises(UnreadableValueError, match=r"channel 'value'.*os\.system"):
            await saver.aget_tuple(CONFIG)
        with pytest.raises(UnreadableValueError, match=r"os\.system"):
            _ = [each async for each in saver.alist(CONFIG)]
    assert not (tmp_path / "ran").exists()


async def test_a_planted_pickle_is_not_loaded(database_dsn: str) -> None:
    pickled = b"cos\nsystem\n(S'exit 1'\ntR."
    await plant(database_dsn, b"\x05" + pickled)
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        with pytest.raises(UnreadableValueError, match="pickle"):
            await saver.aget_tuple(CONFIG)


async def test_the_saver_goes_on_after_a_refusal(database_dsn: str) -> None:
    await plant(database_dsn, b"\x05x")
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        with pytest.raises(UnreadableValueError):
            await saver.aget_tuple(CONFIG)
        other: Any = {"configurable": {"thread_id": "other", "checkpoint_ns": ""}}
        checkpoint: Any = {"v": 4, "id": ID, "channel_values": {"value": "fine"}, "channel_versions": {"value": 1}}
        stored = await saver.aput(other, checkpoint, {}, {"value": 1})
        found = await saver.aget_tuple(stored)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"value": "fine"}
