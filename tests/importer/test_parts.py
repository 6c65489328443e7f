"""Threads that land in parts: stopped anywhere, they end as those of a run that nobody disturbed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from deltastore.connect import DeltaSaver
from deltastore.importer import Options, PartLimits, Report, Status, migrate
from deltastore.postgres.storage import PostgresStorage
from tests.importer.sources import FIXTURES, assert_same, delta, fill_postgres, stock
from tests.importer.trees import Tree, canonical
from tests.twins.running import Run
from tests.twins.scenarios import CASES

POSTGRES = sorted(path.stem for path in FIXTURES.glob("postgres-*.sql"))

TINY = PartLimits(from_bytes=0, part_bytes=10**9, part_checkpoints=4)
WHOLE = PartLimits(from_bytes=10**15, from_checkpoints=10**9)


class StoppedError(Exception):
    """The run ends here, as far as this thread is concerned."""


def stopping(after: int, seen: list[int] | None = None) -> Callable[[int], None]:
    """Stops a run after so many checkpoints; counts in any case."""
    counted = seen if seen is not None else []

    def advance(read_bytes: int) -> None:
        counted.append(read_bytes)
        if len(counted) > after:
            raise StoppedError

    return advance


async def move(dsn: str, after: int = 10**9, *, seen: list[int] | None = None, **options: Any) -> Report:
    schema = options.pop("schema", "deltastore")
    given = {"limits": TINY, "verify": "full", **options}
    return await migrate(dsn, dsn, Options(**given), schema=schema, snapshot_frequency=5, advance=stopping(after, seen))


async def staged(dsn: str) -> int:
    storage = await PostgresStorage.open(dsn)
    found = await storage.staging().threads()
    await storage.close()
    return sum(each.parts for each in found)


@pytest.mark.parametrize("seed", range(4))
async def test_stopped_again_and_again(seed: int, empty_database_dsn: str) -> None:
    dsn, chance = empty_database_dsn, random.Random(seed)
    async with stock(dsn) as old:
        await old.setup()
        await Tree(old, "t", seed).grow(60)
        at_once = await move(dsn, schema="whole", limits=WHOLE)
        undisturbed = await move(dsn, schema="parts")
        stops = parts = 0
        while (report := await move(dsn, chance.randrange(4, 16))).counts != {Status.IMPORTED: 1}:
            assert "StoppedError" in report.unsettled[0].reason
            assert await staged(dsn) >= parts
            parts, stops = await staged(dsn), stops + 1
        assert stops > 3
        assert (report.verified, report.source_bytes) == (at_once.verified, at_once.source_bytes)
        assert report.target_bytes == pytest.approx(at_once.target_bytes, rel=0.02), "but for the size of ids"
        assert undisturbed.target_bytes == pytest.approx(at_once.target_bytes, rel=0.02)
        assert report.noted == []
        expected = await canonical(dsn, "whole", "t")
        assert await canonical(dsn, "parts", "t") == expected
        assert await canonical(dsn, "deltastore", "t") == expected
        assert await staged(dsn) == 0
        async with delta(dsn) as new:
            assert await assert_same(old, new, "t") == 60
        for since_last in (False, True):
            assert (await move(dsn, since_last=since_last)).counts == {Status.PRESENT: 1}
        assert await staged(dsn) == 0


async def test_a_later_run_reads_only_the_rest(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old:
        await old.setup()
        await Tree(old, "t", 7).grow(60)
    for after in (17, 40):
        await move(dsn, after)
    parts, seen = await staged(dsn), list[int]()
    report = await move(dsn, seen=seen)
    assert report.counts == {Status.IMPORTED: 1}
    open_parents = len(seen) - (60 - 4 * parts)
    assert parts > 8
    assert 0 <= open_parents < 8
    assert sum(seen) < report.source_bytes


async def test_all_parts_were_there(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        await Tree(old, "t", 2).grow(12)
        limits = PartLimits(from_bytes=0, part_checkpoints=1)
        await move(dsn, 11, limits=limits)
        assert await staged(dsn) == 11
        seen: list[int] = []
        await move(dsn, seen=seen, limits=limits)
        assert len(seen) <= 4
        assert await assert_same(old, new, "t") == 12


@pytest.mark.parametrize("seed", range(3))
async def test_the_source_grew(seed: int, empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        tree = Tree(old, "t", seed)
        await tree.grow(40)
        for after in (15, 15, 10):
            await move(dsn, after)
            await tree.grow(5)
            assert await staged(dsn) > 0
        await old.aput_writes(tree.heads[""], [("log", "late"), ("delta", "late")], "late task")
        report = await move(dsn)
        assert report.counts == {Status.IMPORTED: 1}
        assert await assert_same(old, new, "t") == 55
        await move(dsn, schema="whole", limits=WHOLE)
        async with delta(dsn, schema="whole") as whole:
            assert await assert_same(whole, new, "t") == 55


async def move_with_stops(dsn: str, source: str = "") -> list[Report]:
    """Runs that stop after some checkpoints each, of whatever thread, until all threads are there."""
    options = Options(verify="full", workers=1, limits=PartLimits(from_bytes=0, part_checkpoints=1))
    reports: list[Report] = []
    while not reports or reports[-1].unsettled:
        advance = stopping(3 + len(reports))
        reports.append(await migrate(source or dsn, dsn, options, snapshot_frequency=3, advance=advance))
        assert all("StoppedError" in each.reason for each in reports[-1].unsettled)
    return reports


@pytest.mark.parametrize("fixture", POSTGRES)
async def test_tables_of_older_versions(fixture: str, empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    fill_postgres(dsn, fixture)
    reports = await move_with_stops(dsn)
    assert len(reports) > 5
    assert sum(report.verified for report in reports) > 25
    whole = await migrate(dsn, dsn, Options(limits=WHOLE), schema="whole", snapshot_frequency=3)
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        threads = {each.config["configurable"]["thread_id"] async for each in new.alist(None)}
        assert len(threads) == whole.counts[Status.IMPORTED]
        for thread_id in threads:
            assert await assert_same(old, new, thread_id) > 0
            assert await canonical(dsn, "deltastore", thread_id) == await canonical(dsn, "whole", thread_id)


@pytest.mark.parametrize(("script", "is_delta"), CASES[::4], ids=lambda each: getattr(each, "__name__", str(each)))
async def test_graphs_of_today(script: Any, is_delta: bool, empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        await script(Run(old, is_async=True, durability="sync", delta=is_delta))
        await move_with_stops(dsn)
        assert await assert_same(old, new, "thread") > 0
        await migrate(dsn, dsn, Options(limits=WHOLE), schema="whole", snapshot_frequency=3)
    assert await canonical(dsn, "deltastore", "thread") == await canonical(dsn, "whole", "thread")


CHANGES = {
    "a checkpoint is gone": "DELETE FROM checkpoints WHERE checkpoint_id = %(id)s",
    "writes came": """INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel,
        type, blob) SELECT thread_id, checkpoint_ns, checkpoint_id, 'new', 0, 'log', 'null', '' FROM checkpoints
        WHERE checkpoint_id = %(id)s""",
    "another parent": "UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE checkpoint_id = %(id)s",
    "a damaged part": "UPDATE deltastore.delta_staging SET payload = payload || '\\x00' WHERE part = 3",
    "a lost part": "DELETE FROM deltastore.delta_staging WHERE part = 3",
    "a part twice": """UPDATE deltastore.delta_staging SET payload = (
        SELECT payload FROM deltastore.delta_staging WHERE part = 2) WHERE part = 3""",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_parts_that_do_not_fit_are_made_anew(change: str, empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        await Tree(old, "t", 11).grow(40)
        await move(dsn, 30)
        assert await staged(dsn) == 7
        with psycopg.connect(dsn, autocommit=True) as connection:
            ids = connection.execute("SELECT checkpoint_id FROM checkpoints ORDER BY checkpoint_ns, checkpoint_id")
            middle = ids.fetchall()[13][0]
            connection.execute(CHANGES[change].encode(), {"id": middle} if "%(id)s" in CHANGES[change] else None)
        seen: list[int] = []
        report = await move(dsn, seen=seen)
        assert report.counts == {Status.IMPORTED: 1}, report.unsettled
        assert 20 < len(seen) < 40, "the parts before stay"
        assert await assert_same(old, new, "t") >= 39
        assert await staged(dsn) == 0


async def test_a_special_write_that_was_replaced(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        tree = Tree(old, "t", 3)
        await tree.grow(20)
        config = tree.heads[""]
        await old.aput_writes(config, [("__resume__", ["first"])], "task-9")
        await tree.grow(10)
        await move(dsn, 28)
        before = await staged(dsn)
        await old.aput_writes(config, [("__resume__", ["second"])], "task-9")
        report = await move(dsn)
        assert before >= 6
        assert report.counts == {Status.IMPORTED: 1}
        assert "made anew" in report.noted[0].notes[0]
        assert await assert_same(old, new, "t") == 30


async def test_readers_see_nothing_of_parts(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        await Tree(old, "t", 5).grow(20)
        await move(dsn, 15)
        assert await staged(dsn) > 0
        assert [each async for each in new.alist(None)] == []
        assert await new.aget_tuple({"configurable": {"thread_id": "t"}}) is None
        for command in (["threads"], ["verify", "--all"], ["stats"]):
            arguments = [sys.executable, "-m", "deltastore.cli", *command, "--dsn", dsn, "--json"]
            done = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, text=True, check=True)
            assert '"t"' not in done.stdout


@pytest.mark.parametrize("seed", range(3))
async def test_two_runs_at_once(seed: int, empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        await Tree(old, "t", seed).grow(40)
        if seed:
            await move(dsn, 10 * seed)
        reports = await asyncio.gather(move(dsn), move(dsn), move(dsn))
        for failed in (each for report in reports for each in report.unsettled):
            assert "another run moves this thread" in failed.reason or "someone else" in failed.reason
        await move(dsn)
        assert (await move(dsn, since_last=True)).counts == {Status.PRESENT: 1}
        assert await staged(dsn) == 0
        assert await assert_same(old, new, "t") == 40
        await move(dsn, schema="whole", limits=WHOLE)
        assert await canonical(dsn, "deltastore", "t") == await canonical(dsn, "whole", "t")


@pytest.mark.parametrize("limits", [TINY, WHOLE], ids=["parts", "whole"])
async def test_only_the_latest(limits: PartLimits, empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        tree = Tree(old, "t", 13)
        await tree.grow(30)
        await move(dsn, 20, limits=limits, latest_only=True)
        report = await move(dsn, limits=limits, latest_only=True)
        assert report.counts == {Status.IMPORTED: 1}, report.unsettled
        assert report.verified == 3
        assert len([each async for each in new.alist(None)]) == 3
        with psycopg.connect(dsn) as connection:
            found = connection.execute("""SELECT xmin::text FROM deltastore.delta_threads
                UNION SELECT xmin::text FROM deltastore.delta_checkpoints""").fetchall()
        assert len(found) == 1, "the thread became visible when it was pruned, not before"
        assert (await move(dsn, limits=limits, latest_only=True, since_last=True)).counts == {Status.PRESENT: 1}


async def test_a_thread_that_is_there_catches_up_in_parts(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        tree = Tree(old, "t", 17)
        await tree.grow(20)
        await move(dsn, limits=WHOLE)
        await tree.grow(20)
        await move(dsn, 25, since_last=True)
        assert len([each async for each in new.alist({"configurable": {"thread_id": "t"}})]) == 20
        assert await staged(dsn) == 6
        report = await move(dsn, since_last=True)
        assert report.counts == {Status.CAUGHT_UP: 1}
        assert await assert_same(old, new, "t") == 40


async def test_a_thread_that_went_on_in_the_target_is_left_alone(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        tree = Tree(old, "t", 17)
        await tree.grow(20)
        await move(dsn, 15)
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        checkpoint: Any = {"v": 4, "id": "new", "ts": "", "channel_values": {}, "channel_versions": {}}
        checkpoint["versions_seen"] = {}
        await new.aput(config, checkpoint, {}, {})
        report = await move(dsn, since_last=True)
        assert report.counts == {Status.DIVERGED: 1}
        assert await staged(dsn) == 0
        assert len([each async for each in new.alist(config)]) == 1


async def test_orphans_and_other_savers(empty_database_dsn: str, tmp_path: Any) -> None:
    dsn, path = empty_database_dsn, tmp_path / "old.sqlite"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as old, delta(dsn) as new:
        await Tree(old, "t", 19).grow(30)
        orphan: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "nowhere"}}
        await old.aput_writes(orphan, [("log", "x" * 3000)], "task")
        options = Options(verify="full", limits=TINY)
        for after in (9, 9, 10**9):
            report = await migrate(f"sqlite:///{path}", dsn, options, snapshot_frequency=5, advance=stopping(after))
        assert report.counts == {Status.IMPORTED: 1}, report.unsettled
        assert "which does not exist" in report.noted[0].notes[0]
        assert await assert_same(old, new, "t") == 30
        by_methods = await migrate(old, dsn, options, schema="methods", snapshot_frequency=5)
        assert by_methods.counts == {Status.IMPORTED: 1}


async def test_parts_are_encrypted_as_rows_are(empty_database_dsn: str) -> None:
    dsn, old = empty_database_dsn, InMemorySaver()
    await Tree(old, "t", 41).grow(30)
    keys = [EncryptedSerializer.from_pycryptodome_aes(key=bytes([number]) * 16) for number in (1, 2)]
    options = Options(verify="full", limits=TINY)

    async def run(after: int, serde: Any) -> Report:
        return await migrate(old, dsn, options, serde=serde, snapshot_frequency=5, advance=stopping(after))

    await run(20, keys[0])
    assert await staged(dsn) == 5
    with psycopg.connect(dsn) as connection:
        payloads = connection.execute("SELECT payload FROM deltastore.delta_staging").fetchall()
        assert not any(b"line" in payload or b"write" in payload for (payload,) in payloads)
    report = await run(10**9, keys[0])
    assert report.counts == {Status.IMPORTED: 1}, report.unsettled
    assert report.noted == []
    async with DeltaSaver.from_conn_string(dsn, serde=keys[0]) as new:
        assert await assert_same(old, new, "t") == 30
        await new.adelete_thread("t")
        await run(20, keys[0])
        report = await run(10**9, keys[1])
    assert "made anew" in report.noted[0].notes[0]
    async with DeltaSaver.from_conn_string(dsn, serde=keys[1]) as new:
        assert await assert_same(old, new, "t") == 30


async def test_parts_of_threads_that_left_the_source(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old:
        await old.setup()
        for thread_id in ("gone", "stays"):
            await Tree(old, thread_id, 23).grow(12)
        await move(dsn, 9, thread_ids=["gone"])
        await old.adelete_thread("gone")
        young = await move(dsn)
        assert young.dropped == []
        assert await staged(dsn) == 2
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("UPDATE deltastore.delta_staging SET staged_at = now() - interval '2 days'")
        old_enough = await move(dsn)
        assert old_enough.dropped == ["gone"]
        assert old_enough.as_json()["dropped"] == ["gone"]
        assert await staged(dsn) == 0


async def test_memory_does_not_grow_with_the_thread(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    limits = PartLimits(from_bytes=0, part_bytes=2**20)
    async with stock(dsn) as old:
        await old.setup()
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        for number in range(60):
            checkpoint: Any = {
                "v": 4,
                "id": f"1f1ed167-7afc-6548-8001-{number:012}",
                "ts": "2026-01-01T00:00:00+00:00",
                "channel_values": {"last": random.Random(number).randbytes(10**6)},
                "channel_versions": {"last": f"{number + 1:032}.0"},
                "versions_seen": {},
            }
            config = await old.aput(config, checkpoint, {}, checkpoint["channel_versions"])
    peaks = []
    for after in (30, 10**9):
        tracemalloc.start()
        report = await move(dsn, after, limits=limits, verify="none")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert report.counts == {Status.IMPORTED: 1}
    assert max(peaks) < 40e6 < report.source_bytes


CHILD = """
import asyncio, sys
from deltastore.importer import Options, PartLimits, migrate
dsn = sys.argv[1]
limits = PartLimits(from_bytes=0, part_checkpoints=3)
report = asyncio.run(migrate(dsn, dsn, Options(limits=limits, verify="none"), snapshot_frequency=5,
    advance=lambda read_bytes: print(read_bytes, flush=True)))
print(report.as_json(), file=sys.stderr)
"""


@pytest.mark.slow
async def test_killed_twenty_times_in_one_thread(empty_database_dsn: str) -> None:
    """Processes are killed after a random number of checkpoints: between two parts, or in the middle of one."""
    dsn, chance = empty_database_dsn, random.Random(29)
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        await Tree(old, "t", 29).grow(300)
        await move(dsn, schema="whole", limits=WHOLE)
        before = kills = 0
        while kills < 20:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CHILD, dsn, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            assert process.stdout is not None
            for _ in range(chance.randrange(6, 20)):
                await process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
            await process.communicate()
            assert process.returncode == -signal.SIGKILL
            assert await staged(dsn) >= before
            before, kills = await staged(dsn), kills + 1
        assert await new.aget_tuple({"configurable": {"thread_id": "t"}}) is None
        seen: list[int] = []
        report = await move(dsn, seen=seen)
        assert report.counts == {Status.IMPORTED: 1}
        assert report.verified == 300
        assert len(seen) < 300 - 3 * before + 20
        assert await canonical(dsn, "deltastore", "t") == await canonical(dsn, "whole", "t")
        assert await assert_same(old, new, "t") == 300
        assert (await move(dsn, since_last=True)).counts == {Status.PRESENT: 1}


HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END $$;
CREATE TRIGGER hold BEFORE INSERT ON deltastore.delta_checkpoints FOR EACH ROW EXECUTE FUNCTION hold();
SELECT pg_advisory_lock(42);
"""
WAITING = "SELECT count(*), pg_sleep(0.01) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def test_killed_while_the_parts_become_a_thread(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        await Tree(old, "t", 37).grow(20)
        await move(dsn, 15)
        process = await holding(dsn)
        assert await new.aget_tuple({"configurable": {"thread_id": "t"}}) is None
        assert process.returncode is None
        process.kill()
        await process.communicate()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("DROP TRIGGER hold ON deltastore.delta_checkpoints")
        assert await staged(dsn) >= 6
        assert await new.aget_tuple({"configurable": {"thread_id": "t"}}) is None
        seen: list[int] = []
        assert (await move(dsn, seen=seen)).counts == {Status.IMPORTED: 1}
        assert seen == []
        assert await assert_same(old, new, "t") == 20


async def holding(dsn: str) -> asyncio.subprocess.Process:
    """A process that is held in the middle of the last transaction; the hold ends with this call."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(HOLD)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, dsn, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        while connection.execute(WAITING).fetchall()[0][0] == 0:
            assert process.returncode is None
            await asyncio.sleep(0)
        os.kill(process.pid, signal.SIGSTOP)
    return process


async def test_the_command_takes_a_limit(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old:
        await old.setup()
        await Tree(old, "t", 31).grow(10)
    arguments = [sys.executable, "-m", "deltastore.cli", "migrate", "--from", dsn, "--to", dsn, "--json"]
    done = await asyncio.to_thread(
        subprocess.run, [*arguments, "--parts-from", "0"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["threads"] == {"imported": 1}
