"""The history of a thread as a tree."""

from __future__ import annotations

import asyncio
import resource
import time
import tracemalloc
from typing import Any

import asyncpg
import pytest

from deltastore import DeltaSaver
from deltastore.inspection import ChannelChange, HistoryEntry, history
from tests.support.puts import NOTHING, Puts, uuid_of


def listed(saver: DeltaSaver, **options: Any) -> list[HistoryEntry]:
    async def collect() -> list[HistoryEntry]:
        return [each async for each in history(saver, "t", **options)]

    return asyncio.run(collect())


def test_forks_steps_and_changes(saver: DeltaSaver, puts: Puts) -> None:
    first = puts.put(None, {"log": ["a"], "files": {"x": 1}, "name": "n"})
    second = puts.put(first, {"log": ["a", "b", "c"]})
    fork = puts.put(first, {"files": {}, "log": ["z"]}, metadata={"source": "fork", "user": "u"})
    third = puts.put(second, {"name": NOTHING, "more": {"k": 1}})
    found = listed(saver)
    assert [(each.checkpoint_id, each.parent_id) for each in found] == [
        (third, second),
        (fork, first),
        (second, first),
        (first, None),
    ]
    assert [each.changes for each in found] == [
        (ChannelChange("name", "gone"), ChannelChange("more", "new", None, 1)),
        (ChannelChange("log", "changed", 1, 1), ChannelChange("files", "changed", 1, 0)),
        (ChannelChange("log", "changed", 1, 3),),
        (ChannelChange("log", "new", None, 1), ChannelChange("files", "new", None, 1), ChannelChange("name", "new")),
    ]
    assert (found[1].source, found[1].step, found[1].metadata) == ("fork", 3, {"parents": {}, "user": "u"})
    assert found[0].saved_at == "2024-05-04T06:32:42.235444+00:00"
    assert [each.checkpoint_id for each in listed(saver, limit=2)] == [third, fork]
    assert listed(saver, namespace="elsewhere") == []


def test_changes_at_an_anchor_are_those_against_its_parent(saver: DeltaSaver, puts: Puts) -> None:
    parent = None
    for number in range(60):
        parent = puts.put(
            parent, {"log": list(range(number)), "still": 1} if number == 0 else {"log": [*range(number)]}
        )
    found = listed(saver)
    assert len(found) == 60
    assert all(each.changes == (ChannelChange("log", "changed", 58 - n, 59 - n),) for n, each in enumerate(found[:-1]))


def test_delta_channels(saver: DeltaSaver, puts: Puts) -> None:
    counters = {"counters_since_delta_snapshot": {"log": [1, 1]}}
    parent = puts.put(None, {"other": 1})
    for number in range(3):
        parent = puts.step(parent, "log", number, metadata=counters)
    assert [each.changes for each in listed(saver)[:3]] == [
        (ChannelChange("log", "written", before, before + 1),) for before in (2, 1, 0)
    ]


def test_interrupted_failed_and_resumed(saver: DeltaSaver, puts: Puts) -> None:
    checkpoints = [puts.put(None, {"n": number}) for number in range(4)]
    puts.write(checkpoints[0], [("__interrupt__", [1])], task="a")
    puts.write(checkpoints[1], [("__error__", "no")], task="a")
    puts.write(checkpoints[2], [("__interrupt__", [1])], task="a")
    puts.write(checkpoints[2], [("__resume__", [1])], task="a")
    assert [each.status for each in listed(saver)] == ["", "", "failed", "interrupted"]
    assert [each.writes for each in listed(saver)] == [0, 2, 1, 1]


def test_a_deleted_parent_is_not_named(saver: DeltaSaver, puts: Puts) -> None:
    first = puts.put(None, {"log": [1]}, metadata={"run_id": "r1"})
    second = puts.put(first, {"log": [1, 2]}, metadata={"run_id": "r2"})
    saver.delete_for_runs(["r1"])
    [found] = listed(saver)
    assert (found.checkpoint_id, found.parent_id) == (second, None)


async def test_a_broken_chain_is_an_entry_with_a_problem(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        puts = Puts(saver)
        parent = None
        for number in range(4):
            parent = await asyncio.to_thread(puts.put, parent, {"log": [*range(number)]})
        connection = await asyncpg.connect(database_dsn)
        await connection.execute("DELETE FROM deltastore.delta_checkpoints WHERE depth = 1")
        await connection.close()
        found = [each async for each in history(saver, "t")]
        assert [bool(each.problem) for each in found] == [True, True, False]
        assert uuid_of(2) in found[0].problem
        assert found[0].step == 4


@pytest.mark.slow
async def test_a_long_history_streams(database_dsn: str, record_property: Any) -> None:
    """Twenty thousand checkpoints: the first at once, two statements a page, memory bounded by a page."""
    total = 20_000
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        await asyncio.to_thread(make_long, Puts(saver), total)
    statements: list[str] = []

    async def keep_session(connection: object) -> None:
        pass

    async with asyncpg.create_pool(database_dsn, min_size=1, max_size=1, reset=keep_session) as pool:
        async with pool.acquire() as connection:
            connection.add_query_logger(
                lambda record: statements.append(record.query) if "payload" in record.query else None
            )
        saver = DeltaSaver(pool)
        started = time.perf_counter()
        entries = history(saver, "t")
        await anext(entries)
        first_seconds = time.perf_counter() - started
        await asyncio.sleep(0)
        assert len(statements) == 2
        count = 1
        async for _ in entries:
            count += 1
        seconds = time.perf_counter() - started
        assert count == total
        pages = 1 + -(-(total - 16) // 100)
        assert len(statements) <= 2 * (pages + 1)
        early_bytes, late_bytes = await peaks(saver, total // 2)
    assert late_bytes < 1.5 * early_bytes
    assert late_bytes < 64e6
    assert first_seconds < 1
    figures = {
        "first_ms": first_seconds * 1000,
        "all_seconds": seconds,
        "statements": len(statements),
        "peak_megabytes": late_bytes / 1e6,
        "process_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }
    record_property("history", figures)
    print(figures)


async def peaks(saver: DeltaSaver, count: int) -> tuple[int, int]:
    """The most memory that the two halves of so many entries hold, after the first pages."""
    found: list[int] = []
    number = 0
    tracemalloc.start()
    async for _ in history(saver, "t", limit=count):
        number += 1
        if number == 500:
            tracemalloc.reset_peak()
        if number in (count // 2, count):
            found.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.reset_peak()
    tracemalloc.stop()
    return found[0], found[1]


def make_long(puts: Puts, total: int) -> None:
    """A conversation that is cut again and again, as long threads are."""
    parent, log = None, list[str]()
    for number in range(total):
        log = [*log[-400:], f"message {number}"]
        parent = puts.put(parent, {"log": log, "branch:to:agent": None})
