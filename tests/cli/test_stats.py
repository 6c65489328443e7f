"""`deltastore stats`."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from deltastore import DeltaSaver
from tests.cli.conftest import Run
from tests.faults.stories import Story
from tests.support.puts import Puts


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
    assert not [line for line in lines if line != line.rstrip()]
    assert any(line.startswith("checkpoints ") for line in lines)
    assert sum(line.startswith("customer-2 \\x1b") for line in lines) == 2, "the largest, and the fastest-growing"
    assert not any(line.startswith("customer-0") for line in lines)
    assert "estimate" in ended.output
    assert "channels that only grow" in ended.output
    assert "\x1b" not in ended.output
    assert "estimate" not in run("stats", "--dsn", dsn, "--sample", 0).output


def test_numbers_are_not_cut_for_a_long_name(run: Run, database_dsn: str) -> None:
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        Puts(saver, "a long name " * 20).put(None, {"n": 1})
    lines = run("stats", "--dsn", database_dsn).output.splitlines()
    (header,) = {line.rstrip() for line in lines if line.startswith("thread ")}
    assert header.split() == ["thread", "checkpoints", "bytes"]
    rows = [line for line in lines if line.startswith("a long name")]
    assert rows
    assert [line for line in rows if "…" not in line or not line.endswith(" bytes")] == []


def kinds(text: str) -> list[str]:
    head, *lines = itertools.dropwhile(lambda line: not line.startswith("kind "), text.splitlines())
    assert head
    return [line.split()[0] for line in itertools.takewhile(lambda line: "%" in line, lines)]


def test_plurals_small_sizes_and_days(run: Run, database_dsn: str) -> None:
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        Puts(saver, "only").put(None, {"n": 1})
    text = run("stats", "--dsn", database_dsn).output
    assert text.startswith("1 thread, 1 checkpoint, ")
    assert "from 1 thread chosen by chance" in text
    assert "0.0 kB" not in text
    assert " bytes" in text
    assert "growth       none in 7 days" in text, "the checkpoint's id is of another time"
    assert kinds(text) == kinds(run("stats", "--dsn", database_dsn, "--thread", "only").output)
    asyncio.run(grow_today(database_dsn))
    text = run("stats", "--dsn", database_dsn).output
    assert "growth per day (UTC), without days that brought nothing\nday " in text


async def grow_today(dsn: str) -> None:
    async with DeltaSaver.from_conn_string(dsn) as saver:
        await Story(saver, "today").grow(1)


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
