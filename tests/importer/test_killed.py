"""Runs of the command that are killed, again and again: the end is that of a run that nobody disturbed."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from typing import Any

import psycopg
import pytest

from deltastore.importer import Options, PartLimits, Status, migrate
from tests.importer.sources import delta, graphs, stock
from tests.support.exact import exact_tuple

THREADS = 200
KILLS = 20
COPY = """
    INSERT INTO checkpoints SELECT 'copy ' || number, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type,
        checkpoint, metadata FROM checkpoints, generate_series(1, %(count)s) AS number WHERE thread_id = 'one';
    INSERT INTO checkpoint_blobs SELECT 'copy ' || number, checkpoint_ns, channel, version, type, blob
        FROM checkpoint_blobs, generate_series(1, %(count)s) AS number WHERE thread_id = 'one';
    INSERT INTO checkpoint_writes SELECT 'copy ' || number, checkpoint_ns, checkpoint_id, task_id, idx, channel, type,
        blob, task_path FROM checkpoint_writes, generate_series(1, %(count)s) AS number WHERE thread_id = 'one';
"""


async def fill(dsn: str, copies: int) -> None:
    """One thread of some turns, and copies of it."""
    config: Any = {"configurable": {"thread_id": "one"}}
    async with stock(dsn) as old:
        await old.setup()
        for turn in range(5):
            await graphs().agent_graph(old).ainvoke({"messages": [("user", f"question {turn}")]}, config)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in COPY.split(";")[:-1]:
            connection.execute(statement, {"count": copies})


def start(dsn: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "deltastore.cli", "migrate", "--from", dsn, "--to", dsn, "--json", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def counts(dsn: str, schema: str) -> list[tuple[Any, ...]]:
    """Rows and bytes of each table."""
    found = []
    with psycopg.connect(dsn) as connection:
        for table in ("threads", "checkpoints", "segments", "metadata"):
            payload = "0" if table == "threads" else "sum(length(payload))"
            found += connection.execute(f'SELECT count(*), {payload} FROM "{schema}".delta_{table}').fetchall()
    return found


async def contents(dsn: str, schema: str) -> list[Any]:
    async with delta(dsn, schema=schema) as saver:
        return [exact_tuple(each) async for each in saver.alist(None)]


@pytest.mark.slow
def test_killed_twenty_times(database_dsn: str) -> None:
    asyncio.run(fill(database_dsn, THREADS - 1))
    rng = random.Random(5)
    started = time.monotonic()
    undisturbed = start(database_dsn, "--schema", "undisturbed")
    undisturbed.communicate()
    assert undisturbed.returncode == 0
    usual_seconds = time.monotonic() - started
    there = []
    for _ in range(KILLS):
        process = start(database_dsn, "--verify", "none")
        time.sleep(rng.uniform(0.3, 1.0) * usual_seconds / 3)
        process.kill()
        process.communicate()
        there.append(counts(database_dsn, "deltastore")[0][0])
    last = start(database_dsn)
    out, _ = last.communicate()
    assert last.returncode == 0
    report = json.loads(out)
    assert sum(report["threads"].values()) == THREADS
    assert there == sorted(there)
    assert there[0] < THREADS
    assert counts(database_dsn, "deltastore")[0] == (THREADS, 0)
    left, right = counts(database_dsn, "deltastore"), counts(database_dsn, "undisturbed")
    assert [count for count, _ in left] == [count for count, _ in right]
    assert asyncio.run(contents(database_dsn, "deltastore")) == asyncio.run(contents(database_dsn, "undisturbed"))
    again = asyncio.run(migrate(database_dsn, database_dsn, Options(since_last=True)))
    assert again.counts == {Status.PRESENT: THREADS}
    assert counts(database_dsn, "deltastore") == left


async def test_the_command_reports(database_dsn: str) -> None:
    await fill(database_dsn, 3)
    dry = start(database_dsn, "--dry-run")
    out, _ = await asyncio.to_thread(dry.communicate)
    assert dry.returncode == 0
    report = json.loads(out)
    assert report["threads"] == {"counted": 4}
    assert report["source_bytes"] > report["target_bytes"] > 0
    assert counts(database_dsn, "deltastore")[0][0] == 0
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        connection.execute("UPDATE checkpoint_blobs SET blob = '\\xc1' WHERE thread_id = 'copy 2'")
    run = start(database_dsn, "--verify", "full")
    out, _ = await asyncio.to_thread(run.communicate)
    assert run.returncode == 4
    report = json.loads(out)
    assert report["threads"] == {"failed": 1, "imported": 3}
    assert report["verified"] == report["checkpoints"] == 3 * 15
    [failed] = report["unsettled"]
    assert failed["thread_id"] == "copy 2"
    assert "cannot be decoded" in failed["reason"]


@pytest.mark.parametrize("limits", [PartLimits(), PartLimits(from_bytes=0, part_checkpoints=2)], ids=["whole", "parts"])
@pytest.mark.parametrize("reads", [1, 8, 15])
async def test_a_run_that_is_cancelled_leaves_nothing_half(limits: PartLimits, reads: int, database_dsn: str) -> None:
    await fill(database_dsn, 0)
    left, reached = iter(range(reads - 1, -1, -1)), asyncio.Event()

    def advance(_: int) -> None:
        if next(left) == 0:
            reached.set()

    task = asyncio.create_task(migrate(database_dsn, database_dsn, Options(limits=limits), advance=advance))
    await asyncio.wait([task, asyncio.create_task(reached.wait())], return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert counts(database_dsn, "deltastore")[0][0] == 0
    report = await migrate(database_dsn, database_dsn, Options(limits=limits, verify="full"))
    assert report.counts == {Status.IMPORTED: 1}
    assert report.verified == 15
