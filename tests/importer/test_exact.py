"""Threads that LangGraph's savers of today stored: moved exactly from each kind of source, and run on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from deltastore.importer import Options, Status, migrate
from tests.importer.sources import assert_same, delta, stock
from tests.twins.running import Run, Script, perform
from tests.twins.scenarios import CASES

NAMES = [f"{script.__name__}-{'delta' if is_delta else 'ordinary'}" for script, is_delta in CASES]
FULL = Options(verify="full")


async def play(saver: Any, script: Script, is_delta: bool) -> None:
    await script(Run(saver, is_async=True, durability="sync", delta=is_delta))


@pytest.mark.parametrize(("script", "is_delta"), CASES, ids=NAMES)
async def test_from_langgraphs_tables(script: Script, is_delta: bool, empty_database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old:
        await old.setup()
        await play(old, script, is_delta)
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.unsettled == []
        assert report.counts == {Status.IMPORTED: 1}
        async with delta(empty_database_dsn, snapshot_frequency=5) as new:
            assert await assert_same(old, new, "thread") == report.verified
        again = await migrate(empty_database_dsn, empty_database_dsn, Options(since_last=True))
        assert again.counts == {Status.PRESENT: 1}


@pytest.mark.parametrize(("script", "is_delta"), CASES[::3], ids=NAMES[::3])
async def test_from_langgraphs_sqlite_file(
    script: Script, is_delta: bool, tmp_path: Path, empty_database_dsn: str
) -> None:
    path = tmp_path / "threads.sqlite"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as old:
        await play(old, script, is_delta)
        report = await migrate(f"sqlite:///{path}", empty_database_dsn, FULL)
        assert report.unsettled == []
        async with delta(empty_database_dsn) as new:
            assert await assert_same(old, new, "thread") == report.verified


@pytest.mark.parametrize(("script", "is_delta"), CASES[1::3], ids=NAMES[1::3])
def test_from_any_saver(script: Script, is_delta: bool, empty_database_dsn: str) -> None:
    import asyncio

    old = InMemorySaver()
    perform(script, Run(old, is_async=False, durability="async", delta=is_delta))

    async def check() -> None:
        report = await migrate(old, empty_database_dsn, FULL)
        assert report.unsettled == []
        async with delta(empty_database_dsn) as new:
            assert await assert_same(old, new, "thread") == report.verified

    asyncio.run(check())


@pytest.mark.parametrize("is_delta", [False, True])
async def test_a_thread_runs_on_with_other_channels(is_delta: bool, empty_database_dsn: str) -> None:
    """Moved with one kind of channels, continued with the other: the result is that of LangGraph's saver."""
    import operator
    from typing import Annotated

    from langgraph.channels.delta import DeltaChannel
    from langgraph.graph import END, START, StateGraph
    from typing_extensions import TypedDict

    from tests.twins.scenarios import append_all

    def graph(saver: Any, delta_channel: bool) -> Any:
        reducer: Any = DeltaChannel(append_all, snapshot_frequency=3) if delta_channel else operator.add
        make_typed_dict: Any = TypedDict
        schema = make_typed_dict("State", {"log": Annotated[list, reducer]})
        builder: Any = StateGraph(schema)
        builder.add_node("note", lambda state: {"log": [len(state["log"])]})
        builder.add_edge(START, "note")
        builder.add_edge("note", END)
        return builder.compile(checkpointer=saver)

    config: Any = {"configurable": {"thread_id": "thread"}}
    async with stock(empty_database_dsn) as old:
        await old.setup()
        for turn in range(4):
            await graph(old, is_delta).ainvoke({"log": [f"turn {turn}"]}, config)
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.unsettled == []
        async with delta(empty_database_dsn) as new:
            if not is_delta:
                for turn in range(4, 9):
                    one = await graph(old, True).ainvoke({"log": [f"turn {turn}"]}, config)
                    other = await graph(new, True).ainvoke({"log": [f"turn {turn}"]}, config)
                    assert one == other
                    assert len(other["log"]) == 2 * turn + 2
            for turn in range(9, 11):
                other = await graph(new, is_delta).ainvoke({"log": [f"turn {turn}"]}, config)
                assert other["log"][-2] == f"turn {turn}"
                assert other["log"][:2] == ["turn 0", 1]


async def test_options_choose_threads(empty_database_dsn: str) -> None:
    old = InMemorySaver()
    for number in range(6):
        config: Any = {"configurable": {"thread_id": f"{'ab'[number % 2]}-{number}", "checkpoint_ns": ""}}
        for step in range(3):
            config = old.put(config, checkpoint(number, step), {"source": "loop", "step": step}, {"log": step + 1})
    by_prefix = await migrate(old, empty_database_dsn, Options(prefix="a-"))
    assert by_prefix.counts == {Status.IMPORTED: 3}
    by_name = await migrate(old, empty_database_dsn, Options(thread_ids=["a-0", "b-1", "none"]))
    assert by_name.counts == {Status.PRESENT: 1, Status.IMPORTED: 1, Status.FAILED: 1}
    by_time = await migrate(old, empty_database_dsn, Options(newer_than="2025-01-04"))
    assert by_time.counts == {Status.PRESENT: 4, Status.IMPORTED: 1, Status.FILTERED: 1}
    latest = await migrate(old, empty_database_dsn, Options(latest_only=True, verify="full"), schema="latest")
    assert latest.counts == {Status.IMPORTED: 6}
    again = await migrate(old, empty_database_dsn, Options(latest_only=True, since_last=True), schema="latest")
    assert again.counts == {Status.PRESENT: 6}
    async with delta(empty_database_dsn, schema="latest") as new:
        found = [each async for each in new.alist(None)]
    assert sorted(each.checkpoint["channel_values"]["log"] for each in found) == [[n, 2] for n in range(6)]
    assert all(each.parent_config is None for each in found)


def checkpoint(number: int, step: int) -> Any:
    return {
        "v": 4,
        "id": f"1f1ed167-7afc-6548-800{step}-6c9d1b05920a",
        "ts": f"2025-01-0{number}T00:00:00+00:00",
        "channel_values": {"log": [number, step]},
        "channel_versions": {"log": step + 1},
        "versions_seen": {},
        "updated_channels": None,
    }


async def test_later_passes_catch_up(empty_database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new:
        await old.setup()
        config: Any = {"configurable": {"thread_id": "live", "checkpoint_ns": ""}}
        config = await old.aput(config, checkpoint(1, 0), {"source": "input", "step": -1}, {"log": 1})
        await old.aput_writes(config, [("log", "one")], "task-1")

        async def run(expected: Status, **options: Any) -> None:
            report = await migrate(empty_database_dsn, empty_database_dsn, Options(**options))
            assert report.counts == {expected: 1}, report.unsettled

        await run(Status.IMPORTED)
        await old.aput_writes(config, [("__resume__", ["first"])], "task-1")
        await run(Status.PRESENT)
        await run(Status.CAUGHT_UP, since_last=True)
        assert await assert_same(old, new, "live") == 1
        await old.aput_writes(config, [("__resume__", ["first", "second"])], "task-1")
        await run(Status.CAUGHT_UP, since_last=True)
        assert await assert_same(old, new, "live") == 1
        config = await old.aput(config, checkpoint(1, 1), {"source": "loop", "step": 0}, {"log": 2})
        await run(Status.CAUGHT_UP, since_last=True)
        assert await assert_same(old, new, "live") == 2
        await run(Status.PRESENT, since_last=True)
        await new.aput(config, checkpoint(1, 2), {"source": "loop", "step": 1}, {"log": 3})
        await old.aput_writes(config, [("log", "late")], "task-9")
        await run(Status.DIVERGED, since_last=True)
        assert len([each async for each in new.alist(config)]) >= 1
        head: Any = await new.aget_tuple({"configurable": {"thread_id": "live"}})
        assert head.checkpoint["channel_values"] == {"log": [1, 2]}, "the thread that went on was left alone"


async def test_the_source_is_only_read(empty_database_dsn: str) -> None:
    import psycopg

    async with AsyncPostgresSaver.from_conn_string(empty_database_dsn) as old:
        await old.setup()
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        await old.aput(config, checkpoint(1, 0), {"source": "input", "step": -1}, {"log": 1})
    role = f"reader_{os.getpid()}"
    with psycopg.connect(empty_database_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
        try:
            connection.execute(f"GRANT SELECT ON checkpoints, checkpoint_blobs, checkpoint_writes TO {role}")
            address = urlsplit(empty_database_dsn)
            reader_dsn = address._replace(netloc=f"{role}:secret@{address.netloc.rpartition('@')[2]}").geturl()
            report = await migrate(reader_dsn, empty_database_dsn, Options(verify="full"))
            assert report.counts == {Status.IMPORTED: 1}
        finally:
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("seed", [["a"], {"a": 1}, 0, "", False, 1.5, None, "absent"], ids=repr)
async def test_seeds_of_channels_that_become_delta_channels(seed: Any, empty_database_dsn: str) -> None:
    """The value that was stored last is the seed, whatever it is; writes before it are never replayed."""
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new:
        await old.setup()
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        for step in range(3):
            put = checkpoint(1, step)
            put["channel_versions"]["x"] = step + 1
            if step < 2 and seed != "absent":
                put["channel_values"]["x"] = seed
            config = await old.aput(config, put, {"source": "loop", "step": step}, put["channel_versions"])
            await old.aput_writes(config, [("x", [f"write {step}"])], f"task-{step}")
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.unsettled == []
        history = (await new.aget_delta_channel_history(config=config, channels=["x"]))["x"]
        if seed == "absent":
            assert "seed" not in history
            assert [value for _, _, value in history["writes"]] == [["write 0"], ["write 1"]]
        else:
            assert history["seed"] == seed
            assert type(history["seed"]) is type(seed)
            assert [value for _, _, value in history["writes"]] == [["write 1"]]
        if seed is not None:
            assert history == (await old.aget_delta_channel_history(config=config, channels=["x"]))["x"]
