"""The way back: what LangGraph's saver reads from its tables is what deltastore had, and threads run on there."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from langchain_core.messages import HumanMessage

from deltastore.errors import InvalidConfigError
from deltastore.importer import Options, Status, migrate
from deltastore.importer.stock import move_back
from deltastore.importer.stock_rows import text_version
from tests.importer.sources import delta, everything, fill_postgres, graphs, stock
from tests.twins.running import Run, Script
from tests.twins.scenarios import CASES

FULL = Options(verify="full")


def with_texts(found: dict[Any, Any]) -> dict[Any, Any]:
    """What deltastore says, with versions as the other side has them."""
    texts = {}
    for key, (exact, history) in found.items():
        versions = tuple((name, ("str", text_version(version))) for name, (_, version) in exact["versions"])
        seen = {
            node: tuple((name, ("str", text_version(version))) for name, (_, version) in each)
            for node, each in exact["seen"].items()
        }
        texts[key] = {**exact, "versions": versions, "seen": seen}, history
    return texts


def without_order(found: dict[Any, Any]) -> dict[Any, Any]:
    """The same, but for the order inside of metadata, which JSON columns do not keep."""

    def ordered(value: Any) -> Any:
        if isinstance(value, tuple) and value[:1] == ("dict",):
            return "dict", tuple(sorted((key, ordered(child)) for key, child in value[1]))
        return value

    return {
        key: ({**exact, "metadata": tuple((name, ordered(value)) for name, value in exact["metadata"])}, history)
        for key, (exact, history) in found.items()
    }


@pytest.mark.parametrize(
    ("script", "is_delta", "is_compacted"),
    [(*case, number % 3 == 0) for number, case in enumerate(CASES[::2] + CASES[1:8:2])],
)
async def test_everything_comes_back(script: Script, is_delta: bool, is_compacted: bool, database_dsn: str) -> None:
    async with delta(database_dsn, snapshot_frequency=5) as new:
        await script(Run(new, is_async=True, durability="sync", delta=is_delta))
        if is_compacted:
            await new.acompact_thread("thread")
        report = await move_back(database_dsn, f"stock-{database_dsn}", FULL)
        assert report.unsettled == []
        assert report.counts == {Status.IMPORTED: 1}
        async with stock(database_dsn) as old:
            expected = without_order(with_texts(await everything(new, "thread")))
            found = without_order(await everything(old, "thread"))
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                assert found[key] == value, key
        again = await move_back(database_dsn, f"stock-{database_dsn}", FULL)
        assert again.counts == {Status.PRESENT: 1}


async def test_an_old_thread_goes_there_and_back(empty_database_dsn: str, database_dsn: str) -> None:
    fill_postgres(empty_database_dsn, "postgres-2.0.25")
    await migrate(empty_database_dsn, database_dsn, FULL)
    report = await move_back(database_dsn, f"stock-{database_dsn}", FULL)
    assert report.unsettled == []
    async with stock(empty_database_dsn) as before, stock(database_dsn) as after:
        await before.setup()
        for thread_id in ("agent", "sends", "paused", "nested", "asking"):
            assert await everything(before, thread_id) == await everything(after, thread_id)


async def test_a_thread_of_deltastore_runs_on_there(database_dsn: str) -> None:
    config: Any = {"configurable": {"thread_id": "agent"}}
    async with delta(database_dsn) as new, stock(database_dsn) as old:
        for turn in range(3):
            await graphs().agent_graph(new).ainvoke({"messages": [HumanMessage("?", id=f"h{turn}")]}, config)
        await move_back(database_dsn, f"stock-{database_dsn}")
        for turn in range(3, 6):
            result = await graphs().agent_graph(old).ainvoke({"messages": [HumanMessage("?", id=f"h{turn}")]}, config)
            assert len(result["messages"]) == 4 * turn + 4
        assert result["count"] == 21


def test_versions_keep_their_order() -> None:
    versions: list[Any] = [0, 1, 2.0, 2.25, 3, 10, 2**40, 2**63]
    texts = [text_version(version) for version in versions]
    assert texts == sorted(texts)
    assert len(set(texts)) == len(texts)
    assert text_version("00000003.0.5") == "00000003.0.5"


async def turn_of(saver: Any, number: int) -> None:
    config: Any = {"configurable": {"thread_id": "agent"}}
    message = HumanMessage("?", id=f"h{number}")
    await graphs().agent_graph(saver).ainvoke({"messages": [message]}, config, durability="sync")


async def test_a_dry_run_makes_no_tables_and_counts(empty_database_dsn: str, database_dsn: str) -> None:
    async with delta(database_dsn) as new:
        await turn_of(new, 0)
        count = len([each async for each in new.alist({"configurable": {"thread_id": "agent"}})])
    report = await move_back(database_dsn, f"stock-{empty_database_dsn}", FULL, dry_run=True)
    assert report.dry_run
    assert (report.counts, report.checkpoints) == ({Status.COUNTED: 1}, count)
    connection = await asyncpg.connect(empty_database_dsn)
    try:
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    finally:
        await connection.close()


async def test_what_went_on_here_is_named_and_taken_back_when_asked(database_dsn: str) -> None:
    target = f"stock-{database_dsn}"
    async with delta(database_dsn) as new, stock(database_dsn) as old:
        await turn_of(new, 0)
        assert (await move_back(database_dsn, target, FULL)).counts == {Status.IMPORTED: 1}
        await turn_of(new, 1)
        report = await move_back(database_dsn, target, FULL)
        assert report.counts == {Status.DIVERGED: 1}
        assert report.exit_code != 0
        assert "lack" in str(report.unsettled[0].reason)
        again = Options(verify="full", since_last=True)
        assert (await move_back(database_dsn, target, again)).counts == {Status.CAUGHT_UP: 1}
        assert (await move_back(database_dsn, target, again)).counts == {Status.PRESENT: 1}
        expected = without_order(with_texts(await everything(new, "agent")))
        assert without_order(await everything(old, "agent")) == expected
        await turn_of(old, 2)
        await turn_of(new, 2)
        report = await move_back(database_dsn, target, again)
        assert report.counts == {Status.DIVERGED: 1}
        assert "others" in str(report.unsettled[0].reason)


async def test_a_schema_that_is_not_there_is_named(database_dsn: str) -> None:
    async with delta(database_dsn) as new:
        await turn_of(new, 0)
    with pytest.raises(InvalidConfigError, match="'back' of LangGraph's tables is not there"):
        await move_back(database_dsn, f"stock-{database_dsn}", FULL, target_schema="back")
