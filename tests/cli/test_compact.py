"""`deltastore compact`, as the console runs it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from deltastore import DeltaSaver
from tests.cli.conftest import Run
from tests.cli.test_archive import read
from tests.faults.stories import Story


@pytest.fixture
def told(database_dsn: str) -> list[Story]:
    """Two threads in a database."""

    async def tell() -> list[Story]:
        async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
            stories = [Story(saver, f"thread {number}", seed=number) for number in (1, 2)]
            for story in stories:
                await story.grow(12)
            return stories

    return asyncio.run(tell())


def test_threads_by_name_and_all(database_dsn: str, told: list[Story], run: Run) -> None:
    target = "--dsn", database_dsn
    foretold = json.loads(run("compact", "thread 1", *target, "--dry-run", "--json").output)
    assert foretold["threads"] == {"counted": 1}
    ended = run("compact", "thread 1", *target)
    assert ended.code == 0
    sizes = f"{foretold['before_bytes']:,} bytes of payloads to {foretold['after_bytes']:,}"
    assert ended.output.splitlines() == [
        f"compacted thread 1: {foretold['segments']} segments in 1 pack, {sizes}",
        f"threads: 1 compacted; {sizes}",
    ]
    read(database_dsn, told)
    ended = run("compact", "--all", *target, "--json")
    assert (ended.code, json.loads(ended.output)["threads"]) == (0, {"compacted": 1, "unchanged": 1})
    read(database_dsn, told)
    ended = run("compact", "thread 1", "nobody", *target)
    assert ended.code == 4
    assert ended.output.splitlines() == [
        "unchanged thread 1",
        "missing   nobody: there is no such thread",
        "threads: 1 unchanged, 1 missing",
    ]


def test_threads_by_age(database_dsn: str, told: list[Story], run: Run, tmp_path: Path) -> None:
    target = "--dsn", database_dsn
    ended = run("compact", "--idle-older-than", "1h", *target)
    assert (ended.code, ended.output) == (0, "threads: none\n")
    policy = tmp_path / "cold.toml"
    policy.write_text('[[rule]]\nidle = "0s"\n', encoding="utf-8")
    ended = run("compact", "--policy", policy, *target, "--json")
    assert (ended.code, json.loads(ended.output)["threads"]) == (0, {"compacted": 2})
    read(database_dsn, told)


@pytest.mark.parametrize("given", [(), ("thread 1", "--all"), ("--all", "--idle-older-than", "1h")])
def test_which_threads_must_be_said_once(run: Run, given: tuple[str, ...]) -> None:
    ended = run("compact", *given, "--dsn", "postgresql://nowhere")
    assert ended.code == 2
    assert ended.error.startswith("deltastore: which threads?")
