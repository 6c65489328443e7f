"""`deltastore schema`."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Run
from tests.support.servers import execute


def test_status_up_status(run: Run, empty_database_dsn: str) -> None:
    before = run("schema", "status", "--dsn", empty_database_dsn)
    assert before.code == 3
    assert before.output.startswith("schema deltastore: version 0, expected ")
    assert "not set up: run deltastore schema up (initial" in before.output
    up = run("schema", "up", "--dsn", empty_database_dsn)
    assert up.code == 0
    assert "applied initial\n" in up.output
    assert "schema deltastore is up to date at version " in up.output
    after = run("schema", "status", "--dsn", empty_database_dsn)
    assert after.code == 0
    assert after.output.endswith("up to date\n")
    again = run("schema", "up", "--dsn", empty_database_dsn)
    assert again.code == 0
    assert "applied" not in again.output


def test_json(run: Run, empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTASTORE_DSN", empty_database_dsn)
    assert json.loads(run("schema", "status", "--json").output)["pending"][0] == "initial"
    applied = json.loads(run("schema", "up", "--json").output)
    assert applied["schema"] == "deltastore"
    assert applied["applied"][0] == "initial"
    status = json.loads(run("schema", "status", "--json").output)
    assert status["found"] == status["expected"] == applied["version"]
    assert status["pending"] == []


def test_another_schema_name(run: Run, empty_database_dsn: str) -> None:
    name = 'My "Agents" 1'
    assert run("schema", "up", "--dsn", empty_database_dsn, "--schema", name).code == 0
    assert run("schema", "status", "--dsn", empty_database_dsn, "--schema", name).code == 0
    assert run("schema", "status", "--dsn", empty_database_dsn).code == 3


def test_sql_does_what_up_does(run: Run, empty_database_dsn: str) -> None:
    script = run("schema", "sql").output
    with psycopg.connect(empty_database_dsn, autocommit=True) as connection:
        connection.execute(script)
    assert run("schema", "status", "--dsn", empty_database_dsn).code == 0
    assert run("schema", "sql", "--dsn", empty_database_dsn).output == ""
    assert run("schema", "sql", "--dsn", empty_database_dsn, "--from", 0).output == script


def test_up_without_the_right_to_create(run: Run, empty_database_dsn: str) -> None:
    role = f"role_{uuid.uuid4().hex}"
    execute(empty_database_dsn, "CREATE ROLE {} LOGIN", role)
    try:
        dsn = empty_database_dsn.replace("postgres@", f"{role}@")
        ended = run("schema", "up", "--dsn", dsn)
        assert ended.code == 3
        assert "deltastore schema sql" in ended.error
        assert ended.error.count("\n") == 1
    finally:
        execute(empty_database_dsn, "DROP ROLE {}", role)


def test_up_in_a_schema_that_must_exist(run: Run, empty_database_dsn: str) -> None:
    refused = run("schema", "up", "--dsn", empty_database_dsn, "--no-create-schema")
    assert refused.code == 3
    execute(empty_database_dsn, "CREATE SCHEMA deltastore")
    assert run("schema", "up", "--dsn", empty_database_dsn, "--no-create-schema").code == 0


def test_embedded_folder(run: Run, server_home: Path) -> None:
    assert run("schema", "up", "--dsn", f"embedded:{server_home / 'server'}").code == 0
    assert run("schema", "status", "--dsn", f"embedded:{server_home / 'server'}").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["schema", "status"], 2, "no database given; hint: say --dsn DSN, or set DELTASTORE_DSN"),
        (["schema", "status", "--dsn", "postgresql://localhost:1/x"], 3, "cannot be reached"),
        (["schema", "status", "--dsn", "mysql://localhost/x"], 2, "cannot be used"),
        (["schema", "status", "--dsn", "embedded:"], 2, "names no folder"),
        (["schema", "up", "--dsn", "postgresql://localhost:1/x", "--schema", ""], 2, "schema name"),
        (["schema", "sql", "--schema", "x" * 64], 2, "schema name"),
    ],
)
def test_errors_are_one_line(run: Run, arguments: list[str], code: int, text: str) -> None:
    ended = run(*arguments)
    assert ended.code == code
    assert ended.error.startswith("deltastore: ")
    assert text in ended.error
    assert ended.error.count("\n") == 1
    assert ended.output == ""


@pytest.mark.parametrize(
    "arguments", [["schema", "nothing"], ["nothing"], ["schema", "sql", "--from", "-1"], ["demo", "--turns", "1"]]
)
def test_wrong_usage_is_exit_code_2(run: Run, arguments: list[str]) -> None:
    assert run(*arguments).code == 2


def test_help_and_version(run: Run) -> None:
    assert "schema" in run("--help").output
    assert run("--version").output.startswith("deltastore, version ")
    for command in ("status", "up", "sql"):
        assert "--schema" in run("schema", command, "-h").output
