"""`deltastore archive` and `restore`, as the console runs them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from deltastore import DeltaSaver
from tests.cli.conftest import Run
from tests.faults.stories import Story, assert_reads_as


@pytest.fixture
def told(database_dsn: str) -> list[Story]:
    """Two threads in a database."""

    async def tell() -> list[Story]:
        async with DeltaSaver.from_conn_string(database_dsn) as saver:
            stories = [Story(saver, f"thread {number}", seed=number) for number in (1, 2)]
            for story in stories:
                await story.grow(4)
            return stories

    return asyncio.run(tell())


def read(dsn: str, stories: list[Story]) -> None:
    async def compare() -> None:
        async with DeltaSaver.from_conn_string(dsn) as saver:
            for step in [step for story in stories for step in story.steps]:
                await assert_reads_as(saver, step)

    asyncio.run(compare())


def test_there_and_back(database_dsn: str, told: list[Story], run: Run, tmp_path: Path) -> None:
    names = [story.thread_id for story in told]
    target = "--dsn", database_dsn, "--to", tmp_path / "cold"
    ended = run("archive", *names, *target)
    assert (ended.code, ended.output) == (2, "")
    assert f"there is no folder {tmp_path}/cold" in ended.error
    foretold = json.loads(run("archive", *names, *target, "--make-folder", "--dry-run", "--json").output)
    assert not (tmp_path / "cold").exists()
    read(database_dsn, told)
    ended = run("archive", *names, *target, "--make-folder")
    assert ended.code == 0
    assert sorted(each["file"] for each in foretold["outcomes"]) == sorted(map(str, (tmp_path / "cold").iterdir()))
    assert ended.output.startswith(f"archived  thread 1: 4 checkpoints, {tmp_path}/cold/thread-1.")
    assert "threads: 2 archived; " in ended.output
    files = sorted((tmp_path / "cold").iterdir())
    ended = run("restore", "--check", *files)
    assert ended.code == 0
    assert "threads: 2 sound\n" in ended.output
    ended = run("restore", *files, "--to", database_dsn, "--json")
    assert ended.code == 0
    assert json.loads(ended.output)["threads"] == {"restored": 2}
    read(database_dsn, told)
    ended = run("restore", *files, "--to", database_dsn)
    assert ended.code == 2
    lines = ended.output.splitlines()
    assert lines[0].startswith(f"refused   {files[0]}: thread 'thread 1' is there already; hint: --as NAME")
    assert lines[1].startswith(f"refused   {files[1]}: thread 'thread 2' is there already")
    assert lines[2:] == ["threads: 2 refused"]
    assert run("delete", "thread 2", "--yes", "--dsn", database_dsn).code == 0
    ended = run("restore", *files, "--to", database_dsn, "--json")
    assert (ended.code, json.loads(ended.output)["threads"]) == (2, {"refused": 1, "restored": 1})
    read(database_dsn, told)
    assert run("restore", *files, "--to", database_dsn, "--replace").code == 0
    assert run("restore", files[0], "--to", database_dsn, "--as", "another").code == 0
    read(database_dsn, told)


def test_what_goes_wrong(database_dsn: str, told: list[Story], run: Run, tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    ended = run("archive", "thread 1", "nothing", "--dsn", database_dsn, "--to", tmp_path / "cold", "--keep", "--json")
    assert ended.code == 4
    answer = json.loads(ended.output)
    assert answer["threads"] == {"copied": 1, "missing": 1}
    [copied, missing] = answer["outcomes"]
    assert (missing["thread_id"], missing["reason"]) == ("nothing", "there is no such thread")
    assert Path(copied["file"]).stat().st_size == copied["file_bytes"] == answer["file_bytes"]
    read(database_dsn, told)
    [file] = (tmp_path / "cold").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:-5])
    ended = run("restore", file, "--to", database_dsn, "--replace")
    assert ended.code == 4
    assert "is cut off" in ended.output
    ended = run("restore", "--check", file)
    assert ended.code == 4
    assert "is cut off" in ended.output
    assert ended.output.startswith(f"failed    {file}: ")
    ended = run("restore", "--check", tmp_path / "cold")
    assert ended.code == 2
    assert f"refused   {tmp_path}/cold is a folder; hint: name its files: {tmp_path}/cold/*.deltastore" in ended.output
    ended = run("archive", "thread 1", "--dsn", database_dsn, "--to", file, "--make-folder")
    assert ended.code == 2
    assert f"{file} is no folder" in ended.error
    assert run("archive", "--dsn", database_dsn, "--to", tmp_path).code == 2
    assert run("restore", file, file, "--as", "x", "--to", database_dsn).code == 2
    assert run("restore", tmp_path / "nothing", "--to", database_dsn).code == 2
    read(database_dsn, told)


def test_threads_by_age_and_by_policy(database_dsn: str, told: list[Story], run: Run, tmp_path: Path) -> None:
    assert len(told) == 2
    place = "--dsn", database_dsn, "--to", tmp_path / "cold"
    (tmp_path / "cold").mkdir()
    ended = run("archive", "--idle-older-than", "90d", *place)
    assert (ended.code, ended.output) == (0, "threads: none\n")
    ended = run("archive", "--idle-older-than", "0s", "--dry-run", *place)
    assert ended.code == 0
    assert f"counted   thread 1: 4 checkpoints, {tmp_path}/cold/thread-1." in ended.output
    assert "threads: 2 counted; " in ended.output
    assert not list((tmp_path / "cold").iterdir())
    policy = tmp_path / "retention.toml"
    policy.write_text('[[rule]]\nidle = "0s"\n', encoding="utf-8")
    ended = run("archive", "--policy", policy, "--json", *place)
    assert ended.code == 0
    assert json.loads(ended.output)["threads"] == {"archived": 2}
    for wrong in ((), ("thread 1", "--policy", policy), ("--policy", policy, "--idle-older-than", "1d")):
        ended = run("archive", *wrong, *place)
        assert ended.code == 2
        assert "which threads?" in ended.error
    assert run("archive", "--policy", tmp_path / "nothing", *place).code == 2
    assert run("archive", "--idle-older-than", "soon", *place).code == 2
