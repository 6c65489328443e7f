"""Threads that savers of older versions stored: moved exactly, and resumed by the LangGraph of today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from deltastore.importer import Options, Status, migrate
from tests.importer.sources import FIXTURES, assert_same, delta, fill_postgres, fill_sqlite, graphs, stock

POSTGRES = sorted(path.stem for path in FIXTURES.glob("postgres-*.sql"))
SQLITE = sorted(path.stem for path in FIXTURES.glob("sqlite-*.sql"))
FULL = Options(verify="full")


def test_there_are_fixtures() -> None:
    assert len(POSTGRES) >= 5
    assert len(SQLITE) >= 5


@pytest.mark.parametrize("fixture", POSTGRES)
async def test_tables_of_older_versions(fixture: str, empty_database_dsn: str) -> None:
    fill_postgres(empty_database_dsn, fixture)
    report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
    assert report.unsettled == []
    assert report.verified == report.checkpoints > 25
    again = await migrate(empty_database_dsn, empty_database_dsn, Options(since_last=True))
    assert again.counts == {Status.PRESENT: len(THREADS) + ("1.0" not in fixture)}
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new:
        await old.setup()
        for thread_id in THREADS:
            assert await assert_same(old, new, thread_id) > 0
        results = await resumed(new)
        assert results == await resumed(old)
    if not fixture.startswith(("postgres-1", "postgres-2.0.8")):
        assert results == EXPECTED


@pytest.mark.parametrize("fixture", SQLITE)
async def test_sqlite_files_of_older_versions(fixture: str, tmp_path: Path, empty_database_dsn: str) -> None:
    path = tmp_path / "old.sqlite"
    fill_sqlite(path, fixture)
    before = path.read_bytes()
    report = await migrate(f"sqlite:///{path}", empty_database_dsn, FULL)
    assert path.read_bytes() == before
    assert report.unsettled == []
    assert report.verified == report.checkpoints > 25
    async with AsyncSqliteSaver.from_conn_string(str(path)) as old, delta(empty_database_dsn) as new:
        for thread_id in THREADS:
            assert await assert_same(old, new, thread_id) > 0
        results = await resumed(new)
        assert results == await resumed(old)
    if not fixture.startswith(("sqlite-1", "sqlite-2.0.1")) or fixture == "sqlite-2.0.11":
        assert results == EXPECTED


THREADS = ("agent", "sends", "sent", "paused", "nested")
EXPECTED = {
    "sends": ["finished", "planned", "start", "worked on sent 0", "worked on sent 1", "worked on sent 2"],
    "sent": (),
    "paused": ["start", "first", "second"],
    "nested": ["inner one", "inner two", "after"],
    "question": [{"question": "why?"}],
    "asking": ["answer: because", "other", "start"],
}
"""What threads of formats from 3 on give; LangGraph of today does not know the channel names of older ones."""


def config_of(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


async def resumed(saver: Any) -> dict[str, Any]:
    """What comes of letting every thread go on where it stopped."""
    made = graphs()
    results: dict[str, Any] = {}
    agent = made.agent_graph(saver)
    before = (await agent.aget_state(config_of("agent"))).values["messages"]
    answer = await agent.ainvoke({"messages": [HumanMessage("one more", id="h9")]}, config_of("agent"))
    assert answer["messages"][: len(before)] == before
    assert len(answer["messages"]) > len(before)
    sends = made.sends_graph(saver)
    results["sends"] = sorted((await sends.ainvoke(None, config_of("sends")))["log"])
    results["sent"] = (await sends.aget_state(config_of("sent"))).next
    results["paused"] = (await made.paused_graph(saver).ainvoke(None, config_of("paused")))["log"]
    results["nested"] = (await made.nested_graph(saver).ainvoke(None, config_of("nested")))["log"][-3:]
    if await saver.aget_tuple(config_of("asking")) is not None:
        asking = made.asking_graph(saver)
        tasks = (await asking.aget_state(config_of("asking"))).tasks
        results["question"] = [interrupt.value for task in tasks for interrupt in task.interrupts]
        results["asking"] = sorted((await asking.ainvoke(Command(resume="because"), config_of("asking")))["log"])
    return results
