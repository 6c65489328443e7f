"""`deltastore retain` and `pin`, as the console runs them."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deltastore import DeltaSaver
from tests.cli.conftest import Run
from tests.retention.trees import DAY, Tree, seen

POLICY = """
[[rule]]
name = "held"
filter = { hold = true }
keep_all = true

[[rule]]
name = "all others"
keep_last = 3
"""


@pytest.fixture
def dsn(database_dsn: str) -> str:
    """A database with three threads of ten checkpoints, one of them held."""
    noon = time.time() // DAY * DAY - DAY / 2  # steps of one day stay in one day
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        for number in range(3):
            tree = Tree(saver, f"thread {number}", noon, random.Random(number))
            tree.metadata = {"hold": number == 0, "number": number}
            for step in range(10):
                tree.step("", tree.now - 20 * DAY + step)
    return database_dsn


def counts(dsn: str) -> list[int]:
    with DeltaSaver.from_conn_string(dsn) as saver:
        return [len(seen(saver, f"thread {number}")) for number in range(3)]


def test_a_dry_run_and_the_run(run: Run, dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    foretold = run("retain", "--dry-run", "--policy", path, "--dsn", dsn)
    assert foretold.code == 0
    assert foretold.output.startswith("would be removed: 14 checkpoints of 2 threads, 0 of them as a whole\npayloads: ")
    assert counts(dsn) == [10, 10, 10]
    as_json = json.loads(run("retain", "--dry-run", "--policy", path, "--dsn", dsn, "--json").output)
    done = json.loads(run("retain", "--once", "--policy", path, "--dsn", dsn, "--json").output)
    assert done["lock_ms_max"] > 0
    for report in (as_json, done):
        del report["lock_ms_max"], report["elapsed_seconds"], report["dry_run"]
    assert as_json == done
    assert [rule["checkpoints"] for rule in done["rules"]] == [0, 14, 0]
    assert counts(dsn) == [10, 3, 3]
    again = run("retain", "--once", "--policy", path, "--dsn", dsn)
    assert again.output.startswith("removed: 0 checkpoints of 0 threads")


def test_options_make_one_rule(run: Run, dsn: str) -> None:
    call = ["retain", "--once", "--dsn", dsn, "--filter"]
    assert run(*call, "number=1", "--heads-only").output.startswith("removed: 9 checkpoints of 1 thread, 0 of")
    assert run(*call, "hold=true", "--max-age", "20d", "--keep-last", 4).output.startswith("removed: 10 ")
    assert run(*call, "number=2", "--idle", "30d", "--daily-after", "2w", "--grace", "0s").output.startswith(
        "removed: 9 "
    )
    assert counts(dsn) == [0, 1, 1]


def test_pins(run: Run, dsn: str) -> None:
    assert run("pin", "thread 1", "--dsn", dsn).code == 0
    ended = run("retain", "--once", "--idle", "1d", "--dsn", dsn)
    assert "2 of them as a whole" in ended.output
    assert "looked at 3 threads, 1 of them pinned" in ended.output
    assert counts(dsn) == [0, 10, 0]
    assert run("pin", "thread 1", "--off", "--dsn", dsn).code == 0
    assert "1 of them as a whole" in run("retain", "--once", "--idle", "1d", "--dsn", dsn).output
    assert run("pin", "thread 1", "--dsn", dsn).code == 2


def test_undelete(run: Run, dsn: str) -> None:
    ended = run("undelete", "thread 1", "--dsn", dsn)
    assert (ended.code, ended.output) == (1, "'thread 1': it is not known to be deleted; nothing was done\n")
    run("retain", "--once", "--idle", "1d", "--dsn", dsn)
    ended = run("undelete", "thread 1", "--dsn", dsn)
    assert (ended.code, ended.output) == (0, "'thread 1': runs may save to it again\n")
    ended = run("undelete", "thread 1", "--dsn", dsn, "--json")
    assert (ended.code, json.loads(ended.output)) == (1, {"thread": "thread 1", "undeleted": False})


def test_again_and_again_until_it_is_interrupted(dsn: str) -> None:
    command = [sys.executable, "-m", "deltastore.cli", "retain", "--every", "0.05s", "--keep-last", "2", "--dsn", dsn]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reports = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (0, "")
    assert [report["checkpoints"] for report in reports] == [24, 0, 0]


def test_a_thread_that_cannot_be_read_is_left_and_named(run: Run, dsn: str) -> None:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE deltastore.delta_checkpoints SET payload = 'damaged' WHERE thread_key ="
            " (SELECT thread_key FROM deltastore.delta_threads WHERE thread_id = 'thread 1')"
        )
    ended = run("retain", "--once", "--keep-last", 2, "--dsn", dsn)
    assert ended.code == 4
    assert "removed: 16 checkpoints of 2 threads" in ended.output
    assert "\nleft as it is: thread 1: CorruptPayloadError: " in ended.output
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT count(*) FROM deltastore.delta_checkpoints WHERE payload = 'damaged'")
        assert found.fetchone() == (10,)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--idle", "1d"], "say one of --dry-run, --once and --every"),
        (["--once", "--every", "1h", "--idle", "1d"], "say one of"),
        (["--once"], "no rule is given"),
        (["--once", "--filter", "a=1"], "'options' says nothing"),
        (["--once", "--idle", "1"], "idle must be a number with a unit"),
        (["--once", "--idle", "1d", "--grace", "x"], "--grace must be a number with a unit"),
        (["--every", "soon", "--idle", "1d"], "--every must be a number with a unit"),
        (["--once", "--idle", "1d", "--filter", "a"], "--filter must be KEY=VALUE"),
        (["--once", "--heads-only", "--keep-last", "3"], "both heads_only and keep_last"),
        (["--once", "--policy", "nowhere.toml"], "'nowhere.toml' cannot be read"),
        (
            ["--once", "--policy", "nowhere.toml", "--idle", "1d", "--grace", "1m"],
            "--policy and --idle, --grace do not",
        ),
    ],
)
def test_wrong_usage_is_named_before_the_database_is_asked(run: Run, arguments: list[str], text: str) -> None:
    ended = run("retain", *arguments, "--dsn", "postgresql://localhost:1/x")
    assert ended.code == 2
    assert text in ended.error
    assert ended.error.count("\n") == 1
