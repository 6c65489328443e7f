"""`deltastore verify`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psycopg
import pytest

from deltastore import DeltaSaver
from deltastore.conversion.validate import checkpoint_key
from tests.cli.conftest import Run
from tests.faults.stories import Story

NAMES = ["customer-1", "customer-2", "evil \x1b[31m"]


@pytest.fixture
def stories(database_dsn: str) -> dict[str, Story]:
    async def grow() -> dict[str, Story]:
        async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
            stories = {name: Story(saver, name, seed=5) for name in NAMES}
            for story in stories.values():
                await story.grow(9)
            return stories

    return asyncio.run(grow())


@pytest.fixture
def damaged(database_dsn: str, stories: dict[str, Story]) -> str:
    """The DSN; of `customer-2` the seventh checkpoint is damaged."""
    key = checkpoint_key(stories["customer-2"].steps[6].id)
    with psycopg.connect(database_dsn) as connection:
        connection.execute(
            "UPDATE deltastore.delta_checkpoints SET payload = payload || '\\x00' WHERE checkpoint_id = %s", [key]
        )
    return database_dsn


def test_sound(run: Run, database_dsn: str, stories: dict[str, Story]) -> None:
    ended = run("verify", "--dsn", database_dsn, "--all")
    assert ended.code == 0
    assert ended.output.startswith("3 threads, 27 checkpoints, ")
    assert "no damage" in ended.output
    assert "types of values were not looked up" in ended.output
    assert "types" not in run("verify", "--dsn", database_dsn, "--all", "--import", "json").output
    assert "2 threads, " in run("verify", "--dsn", database_dsn, "customer-1", "customer-2").output
    ended = run("verify", "--dsn", database_dsn, "customer-1", "nobody")
    assert (ended.code, ended.output) == (2, "")
    assert "there is no thread 'nobody'" in ended.error
    with psycopg.connect(database_dsn) as connection:
        connection.execute("DELETE FROM deltastore.delta_threads WHERE thread_id = 'customer-1'")
    ended = run("verify", "--dsn", database_dsn, "customer-1")
    assert (ended.code, "thread 'customer-1': damaged" in ended.output) == (1, True)
    assert "1 thread, " in run("verify", "--dsn", database_dsn, "--sample", 1).output


def test_damage(run: Run, damaged: str, stories: dict[str, Story]) -> None:
    ended = run("verify", "--dsn", damaged, "--all")
    assert ended.code == 1
    lines = ended.output.splitlines()
    assert lines[0] == "thread 'customer-2': damaged, 3 of 9 checkpoints cannot be loaded, none of them can be saved"
    assert lines[1].startswith(f"  payload     checkpoint {stories['customer-2'].steps[6].id}: ")
    assert stories["customer-2"].steps[5].id in lines[2]
    assert "quarantine" not in ended.output
    assert run("verify", "--dsn", damaged, "customer-1").code == 0


def test_json(run: Run, damaged: str, stories: dict[str, Story]) -> None:
    ended = run("verify", "--dsn", damaged, "--all", "--json")
    assert ended.code == 1
    answer = json.loads(ended.output)
    assert answer["threads"] == {"damaged": 1, "sound": 2}
    assert answer["findings"] == {"payload": 1}
    assert answer["types"] is False
    [thread] = answer["damaged"]
    assert thread["thread_id"] == "customer-2"
    steps = [step.id for step in stories["customer-2"].steps]
    assert [place["checkpoint_id"] for place in thread["lost"]] == steps[6:]
    assert [place["checkpoint_id"] for place in thread["readable"]] == [steps[5]]
    assert {action["verb"] for action in thread["actions"]} == {"quarantine"}


def test_repair(run: Run, damaged: str) -> None:
    dry = run("verify", "--dsn", damaged, "--all", "--repair", "--dry-run")
    assert dry.code == 1
    assert "nothing was written" in dry.output
    assert run("verify", "--dsn", damaged, "--all").code == 1
    repaired = run("verify", "--dsn", damaged, "--all", "--repair")
    assert repaired.code == 0
    plan = [line for line in dry.output.splitlines() if line.startswith("  ")]
    assert [line for line in repaired.output.splitlines() if line.startswith("  ")] == [
        *plan,
        "  repaired    no damage is left",
    ]
    assert "1 thread repaired" in repaired.output
    assert run("verify", "--dsn", damaged, "--all").code == 0


def test_repair_as_json(run: Run, damaged: str) -> None:
    ended = run("verify", "--dsn", damaged, "customer-2", "--repair", "--json")
    assert ended.code == 0
    [thread] = json.loads(ended.output)["damaged"]
    assert (thread["status"], thread["left"]) == ("repaired", [])


def test_names_cannot_steer_the_terminal(run: Run, database_dsn: str, stories: dict[str, Story]) -> None:
    with psycopg.connect(database_dsn) as connection:
        connection.execute("UPDATE deltastore.delta_segments SET payload = payload || '\\x00'")
    ended = run("verify", "--dsn", database_dsn, "--all")
    assert "\x1b" not in ended.output
    assert "evil \\x1b[31m" in ended.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "which threads?"),
        (["a", "--all"], "which threads?"),
        (["--all", "--sample", "3"], "which threads?"),
        (["--all", "--dry-run"], "--dry-run is for --repair"),
        (["--all", "--import", "no_such_module"], "cannot be imported"),
        (["--all", "--serde", "json:nothing"], "cannot be imported"),
        (["--sample", "0"], "Invalid value"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[Any], text: str) -> None:
    ended = run("verify", "--dsn", "postgresql://localhost:1/x", *arguments)
    assert ended.code == 2
    assert text in ended.error


def test_a_database_that_is_away(run: Run) -> None:
    assert run("verify", "--dsn", "postgresql://localhost:1/x", "--all").code == 3
