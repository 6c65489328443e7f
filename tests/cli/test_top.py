"""What all commands share: where an answer cannot go, what is not installed, and which database is meant."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deltastore import DeltaSaver
from tests.cli.conftest import Run
from tests.support.puts import Puts


@pytest.fixture
def dsn(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DELTASTORE_DSN", database_dsn)
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        Puts(saver, "x").put(None, {"n": 1})
    return database_dsn


@pytest.mark.parametrize(
    "arguments",
    [["schema", "status"], ["threads"], ["history", "x"], ["show", "x", "--json"], ["stats"], ["verify", "--all"]],
    ids=" ".join,
)
def test_an_answer_that_cannot_be_written(dsn: str, arguments: list[str]) -> None:
    del dsn
    command = [sys.executable, "-m", "deltastore.cli", *arguments]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        5,
        "deltastore: the answer cannot be written; OSError: [Errno 28] No space left on device\n",
    )


def test_without_click(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "deltastore.cli.commands", raising=False)
    monkeypatch.setitem(sys.modules, "click", None)
    ended = run("threads")
    assert ended.code == 2
    assert "pip install 'langgraph-checkpoint-deltastore[cli]'" in ended.error
    assert ended.error.count("\n") == 1


READING: dict[str, Callable[[Path], list[str]]] = {
    "threads": lambda _: [],
    "history": lambda _: ["x"],
    "stats": lambda _: [],
    "verify": lambda _: ["--all"],
    "copy": lambda _: ["x", "y"],
    "delete": lambda _: ["x", "--yes"],
    "prune": lambda _: ["x"],
    "pin": lambda _: ["x"],
    "undelete": lambda _: ["x"],
    "retain": lambda _: ["--dry-run", "--idle", "1d"],
    "archive": lambda folder: ["x", "--to", str(folder)],
    "schema status": lambda _: [],
}


@pytest.mark.parametrize("command", READING)
def test_a_mistyped_embedded_folder_does_not_become_a_database(run: Run, tmp_path: Path, command: str) -> None:
    never = tmp_path / "never"
    ended = run(*command.split(), *READING[command](tmp_path), "--dsn", f"embedded:{never}")
    assert ended.code == 2
    assert f"there is no embedded database in {never}" in ended.error
    assert not never.exists()


@pytest.mark.parametrize(
    ("dsn", "code", "text"),
    [
        ("mysql://app:secret@localhost/x", 2, "found mysql://; hint: expected postgresql://user@host:port/database"),
        ("app:secret@localhost/x", 2, "found no postgresql://"),
        ("postgresql://app:secret@localhost:1/x", 3, "host localhost:1, database x: "),
        ("postgresql://app:secret@/x?host=/no/such/folder&port=6543", 3, "host /no/such/folder, port 6543, database x"),
        ("postgresql://app@localhost:1/x?password=secret", 3, "host localhost:1, database x: "),
        ("postgresql://localhost:1/secret@localhost/x", 3, "cannot be reached"),
    ],
)
def test_errors_name_the_database_and_no_password(run: Run, dsn: str, code: int, text: str) -> None:
    ended = run("threads", "--dsn", dsn)
    assert ended.code == code
    assert text in ended.error
    assert "secret" not in ended.error
    assert ended.error.count("\n") == 1
