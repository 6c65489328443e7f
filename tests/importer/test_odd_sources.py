"""What savers hold that nobody expects: it is moved exactly, or named; and what changed behind an import's back."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sysconfig
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner
from langgraph.checkpoint.memory import InMemorySaver

from deltastore.cli.migrate import migrate as command
from deltastore.errors import DatabaseRefusedError, InvalidConfigError
from deltastore.importer import Options, PartLimits, Status, migrate
from deltastore.importer.stock import move_back
from tests.importer.sources import assert_same, delta, fill_postgres, stock
from tests.importer.test_hostile import FULL, checkpoint, fill
from tests.support.exact import exact_tuple

PROVED = Options(verify="full", since_last=True)
LARGE = (2**64, -(2**63) - 1, 10**40)


def change(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement)


async def test_integers_that_only_json_holds(empty_database_dsn: str, database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new, stock(database_dsn) as back:
        await old.setup()
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        for number, large in enumerate(LARGE):
            put = checkpoint(number, {"large": large, "edge": 2**64 - 1, "log": [number]})
            metadata: Any = {"source": "loop", "step": number, "owner": {"ids": [large]}}
            config = await old.aput(config, put, metadata, put["channel_versions"])
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.unsettled == []
        assert await assert_same(old, new, "t") == len(LARGE)
        await new.adelete_thread("t")
        assert (await migrate(old, empty_database_dsn, FULL)).unsettled == []
        assert await assert_same(old, new, "t") == len(LARGE)
        returned = await move_back(empty_database_dsn, f"stock-{database_dsn}", FULL)
        assert returned.unsettled == []
        assert await assert_same(back, new, "t") == len(LARGE)


@pytest.mark.parametrize(
    "change_to",
    [
        "checkpoint = jsonb_set(checkpoint, '{channel_values}', 'null')",
        """metadata = metadata || '{"counters_since_delta_snapshot": ["log"]}'""",
        """metadata = metadata || '{"counters_since_delta_snapshot": "log"}'""",
    ],
)
async def test_documents_of_another_shape_are_moved(change_to: str, empty_database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new:
        await old.setup()
        await fill(old, "t")
        change(empty_database_dsn, f"UPDATE checkpoints SET {change_to}")
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.unsettled == []
        assert await assert_same(old, new, "t") == 3


@pytest.mark.parametrize(
    ("change_to", "reason"),
    [
        ("metadata = 'null'", "its metadata is NoneType"),
        ("metadata = '[1]'", "its metadata is list"),
        ("parent_checkpoint_id = checkpoint_id", "cycle"),
        ("""checkpoint = jsonb_set(checkpoint || '{"v": 3}', '{channel_versions,other}', '5')""", "TypeError"),
    ],
)
async def test_a_dry_run_reports_what_the_run_would(change_to: str, reason: str, empty_database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old:
        await old.setup()
        await fill(old, "a")
        last = await fill(old, "bad")
        await old.aput_writes(last, [("__pregel_tasks", 1)], "task")
    change(empty_database_dsn, "UPDATE checkpoint_writes SET channel = '__pregel_tasks' WHERE thread_id = 'bad'")
    change(empty_database_dsn, f"UPDATE checkpoints SET {change_to} WHERE thread_id = 'bad'")
    options = Options(thread_ids=["a", "bad", "missing"])
    looked = await migrate(empty_database_dsn, empty_database_dsn, options, dry_run=True)
    assert looked.counts == {Status.COUNTED: 1, Status.FAILED: 2}
    assert reason in looked.unsettled[0].reason
    moved = await migrate(empty_database_dsn, empty_database_dsn, options)
    assert {each.reason for each in moved.unsettled} == {each.reason for each in looked.unsettled}


class InOrderOfArrival(InMemorySaver):
    """Gives pending writes as they came, not by path, task and index."""

    def _ordered_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Any:
        return list(self.writes[thread_id, checkpoint_ns, checkpoint_id].values())


@pytest.mark.parametrize("limits", [PartLimits(), PartLimits(from_bytes=0, part_checkpoints=1)])
async def test_pending_writes_keep_the_order_in_which_a_saver_gives_them(
    limits: PartLimits, empty_database_dsn: str
) -> None:
    old = InOrderOfArrival()
    config = await fill(old, "t", 1)
    await old.aput_writes(config, [("__interrupt__", "why?")], "task-b", "~2")
    await old.aput_writes(config, [("log", [1]), ("facts", {})], "task-a", "~1")
    await old.aput_writes(config, [("__resume__", ["so"])], "task-b", "~2")
    await old.aput_writes(config, [("log", [2])], "task-b", "~2")
    report = await migrate(old, empty_database_dsn, Options(verify="full", limits=limits))
    assert report.unsettled == []
    async with delta(empty_database_dsn) as new:
        assert exact_tuple(await new.aget_tuple(config)) == exact_tuple(await old.aget_tuple(config))
    again = await migrate(old, empty_database_dsn, PROVED)
    assert again.counts == {Status.PRESENT: 1}


async def test_threads_of_a_saver_whose_ids_are_no_texts(empty_database_dsn: str) -> None:
    old = InMemorySaver()
    for thread_id in (7, "8", 8, uuid.UUID(int=9)):
        await fill(old, thread_id)  # type: ignore[arg-type]
    report = await migrate(old, empty_database_dsn, FULL)
    assert report.counts == {Status.IMPORTED: 2, Status.FAILED: 1}
    assert report.unsettled[0].thread_id == "8"
    assert "2 threads" in report.unsettled[0].reason
    async with delta(empty_database_dsn) as new:
        assert await new.aget_tuple({"configurable": {"thread_id": str(uuid.UUID(int=9))}}) is not None


LAST = "1f1ed167-7afc-6548-8002-6c9d1b05920a"


@pytest.mark.parametrize("limits", [PartLimits(), PartLimits(from_bytes=0)])
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (f"UPDATE checkpoints SET metadata = '{{}}' WHERE checkpoint_id = '{LAST}'", "metadata"),
        (f"UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE checkpoint_id = '{LAST}'", "parent"),
        ("UPDATE checkpoint_blobs SET blob = '\\x9163' WHERE channel = 'log'", "channel_values"),
        ("UPDATE checkpoint_writes SET blob = '\\x9163'", "pending write"),
    ],
)
async def test_a_full_pass_finds_what_was_put_again(
    statement: str, reason: str, limits: PartLimits, empty_database_dsn: str
) -> None:
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new:
        await old.setup()
        config = await fill(old, "t")
        assert (await migrate(empty_database_dsn, empty_database_dsn, FULL)).unsettled == []
        before = exact_tuple(await new.aget_tuple(config))
        same = await migrate(empty_database_dsn, empty_database_dsn, PROVED)
        assert (same.counts, same.verified) == ({Status.PRESENT: 1}, 3)
        change(empty_database_dsn, statement)
        options = Options(verify="full", since_last=True, limits=limits)
        report = await migrate(empty_database_dsn, empty_database_dsn, options)
        assert report.counts == {Status.DIVERGED: 1}
        assert reason in report.unsettled[0].reason
        assert exact_tuple(await new.aget_tuple(config)) == before


async def test_named_threads_have_to_begin_with_the_prefix(empty_database_dsn: str, database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old:
        await old.setup()
        for thread_id in ("a", "b"):
            await fill(old, thread_id)
    options = Options(thread_ids=["a", "b"], prefix="b")
    assert (await migrate(empty_database_dsn, empty_database_dsn, options)).counts == {Status.IMPORTED: 1}
    back = await move_back(empty_database_dsn, f"stock-{database_dsn}", options)
    assert back.counts == {Status.IMPORTED: 1}


def test_an_empty_list_of_threads_is_not_all_of_them(empty_database_dsn: str) -> None:
    fill_postgres(empty_database_dsn, "postgres-3.0.0")
    arguments = ["--from", empty_database_dsn, "--to", empty_database_dsn, "--json", "--threads", ""]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 4
    assert json.loads(result.stdout)["threads"] == {"failed": 1}


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [f"{sysconfig.get_path('scripts')}/deltastore", "migrate", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_factory_in_the_current_folder(tmp_path: Path, empty_database_dsn: str) -> None:
    lines = (
        "from langgraph.checkpoint.memory import InMemorySaver as make\ndef fail(): raise OSError('no disk')\nvalue = 1"
    )
    (tmp_path / "old_savers.py").write_text(lines)
    moved = run("--from", "old_savers:make", "--to", empty_database_dsn, folder=tmp_path)
    assert (moved.returncode, moved.stderr) == (0, "")
    for name, reason in (("fail", "OSError: no disk"), ("value", "not callable"), ("nothing", "cannot be imported")):
        failed = run("--from", f"old_savers:{name}", "--to", empty_database_dsn, folder=tmp_path)
        assert failed.returncode == 2
        assert failed.stderr.count("\n") == 1
        assert reason in failed.stderr


def test_the_way_back_makes_no_embedded_database(tmp_path: Path) -> None:
    failed = run("--from", "embedded:mistyped", "--to", "stock-postgresql://nowhere/x", folder=tmp_path)
    assert failed.returncode == 2
    assert "there is no embedded database" in failed.stderr
    assert list(tmp_path.iterdir()) == []


async def test_a_role_that_may_not_read_all_tables(empty_database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old:
        await old.setup()
        await fill(old, "t")
    role = f"reader_{uuid.uuid4().hex[:12]}"
    change(empty_database_dsn, f"CREATE ROLE {role} LOGIN; GRANT SELECT ON checkpoints, checkpoint_writes TO {role}")
    address = urlsplit(empty_database_dsn)
    reader = address._replace(netloc=f"{role}@{address.netloc.rpartition('@')[2]}").geturl()
    try:
        with pytest.raises(DatabaseRefusedError, match="SELECT on checkpoint_blobs"):
            await migrate(reader, empty_database_dsn)
        change(empty_database_dsn, f"GRANT SELECT ON checkpoint_blobs TO {role}")
        assert (await migrate(reader, empty_database_dsn, FULL)).counts == {Status.IMPORTED: 1}
        change(empty_database_dsn, "DROP TABLE checkpoint_writes")
        with pytest.raises(InvalidConfigError, match="checkpoint_writes"):
            await migrate(reader, empty_database_dsn)
    finally:
        change(empty_database_dsn, f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_damaged_sqlite_file_is_named(tmp_path: Path, empty_database_dsn: str) -> None:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE writes (thread_id TEXT)")
    connection.execute("CREATE TABLE checkpoints (thread_id TEXT)")
    connection.executemany("INSERT INTO checkpoints VALUES (?)", [("x" * 3000,)] * 9)
    connection.commit()
    connection.close()
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(DatabaseRefusedError, match="cannot be read"):
        await migrate(f"sqlite:///{path}", empty_database_dsn)
