"""`deltastore stats`."""

from __future__ import annotations

import asyncio
import json

import pytest

from deltastore import DeltaSaver
from tests.cli.conftest import Run
from tests.faults.stories import Story


@pytest.fixture
def dsn(database_dsn: str) -> str:
    async def grow() -> None:
        async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
            for number in range(3):
                await Story(saver, f"customer-{number} \x1b[31m", seed=5).grow(4 + 8 * number)

    asyncio.run(grow())
    return database_dsn


def test_database(run: Run, dsn: str) -> None:
    ended = run("stats", "--dsn", dsn, "--top", 2, "--days", 2)
    assert ended.code == 0
    lines = ended.output.splitlines()
    assert lines[0].startswith("3 threads, 36 checkpoints, ")
    assert "on disk" in lines[0]
    assert any(line.startswith("checkpoints ") for line in lines)
    assert sum(line.startswith("customer-2 \\x1b") for line in lines) == 2, "the largest, and the fastest-growing"
    assert not any(line.startswith("customer-0") for line in lines)
    assert "estimate" in ended.output
    assert "channels that only grow" in ended.output
    assert "\x1b" not in ended.output
    assert "estimate" not in run("stats", "--dsn", dsn, "--sample", 0).output


def test_database_as_json(run: Run, dsn: str) -> None:
    answer = json.loads(run("stats", "--dsn", dsn, "--json").output)
    assert (answer["threads"], answer["checkpoints"], answer["sample"]["threads"]) == (3, 36, 3)
    assert answer["payload_bytes"] == sum(volume["payload_bytes"] for volume in answer["volumes"].values())
    assert set(answer["disk_bytes"]) >= {"delta_checkpoints", "delta_segments"}
    assert sum(day["checkpoints"] for day in answer["days"]) == 36


def test_thread(run: Run, dsn: str) -> None:
    name = "customer-2 \x1b[31m"
    ended = run("stats", "--dsn", dsn, "--thread", name)
    assert ended.code == 0
    assert ended.output.startswith("thread customer-2 \\x1b[31m: 20 checkpoints, ")
    assert any(line.startswith("(root)") and " words " in line and line.rstrip().endswith("grows")
               for line in ended.output.splitlines())  # fmt: skip
    assert "and 4 more channels" in run("stats", "--dsn", dsn, "--thread", name, "--top", 1).output
    answer = json.loads(run("stats", "--dsn", dsn, "--thread", name, "--json").output)
    assert {channel["channel"] for channel in answer["channels"]} == {"words", "facts", "text", "quiet", "log"}
    assert answer["stock_bytes"] > answer["payload_bytes"]


def test_wrong_usage(run: Run, dsn: str) -> None:
    nothing = run("stats", "--dsn", dsn, "--thread", "nobody")
    assert (nothing.code, "there is no thread 'nobody'" in nothing.error) == (2, True)
    assert run("stats", "--dsn", dsn, "--days", 0).code == 2
    assert run("stats", "--dsn", "postgresql://localhost:1/x").code == 3
