"""Sources filled with fixtures or by LangGraph's own savers of today, and targets to move them to."""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore.connect import DeltaSaver
from tests.support.exact import address, exact_history, exact_tuple

REDUCED = ("messages", "log", "facts")
"""Channels that can be DeltaChannels."""
FIXTURES = Path(__file__).parent / "fixtures"


def graphs() -> ModuleType:
    """The graphs that the fixtures were made with."""
    spec = importlib.util.spec_from_file_location("fixture_graphs", FIXTURES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where annotations are looked up
    spec.loader.exec_module(module)
    return module


def fill_postgres(dsn: str, fixture: str, schema: str = "public") -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        if schema != "public":
            connection.execute(psycopg.sql.SQL("CREATE SCHEMA {}").format(psycopg.sql.Identifier(schema)))
        connection.execute("SELECT set_config('search_path', %s, false)", ['"' + schema.replace('"', '""') + '"'])
        connection.execute((FIXTURES / f"{fixture}.sql").read_text(encoding="utf-8"))


def fill_sqlite(path: Path, fixture: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript((FIXTURES / f"{fixture}.sql").read_text(encoding="utf-8"))
    connection.close()


@asynccontextmanager
async def delta(dsn: str, **options: Any) -> AsyncIterator[DeltaSaver]:
    """What was moved; any class may be built."""
    async with DeltaSaver.from_conn_string(dsn, serde=JsonPlusSerializer(), **options) as saver:
        yield saver


async def everything(saver: BaseCheckpointSaver[Any], thread_id: str) -> dict[Any, Any]:
    """All that a saver says of a thread, by checkpoint."""
    config: Any = {"configurable": {"thread_id": thread_id}}
    found: dict[Any, Any] = {}
    listed = [each async for each in saver.alist(config)]
    for each in listed:
        settings: Any = {"configurable": dict(each.config["configurable"])}
        single = await saver.aget_tuple(settings)
        assert exact_tuple(single) == exact_tuple(each)
        channels = [name for name in sorted(each.checkpoint["channel_versions"]) if name in REDUCED]
        history = await saver.aget_delta_channel_history(config=settings, channels=channels)
        found[address(each.config)] = exact_tuple(each), exact_history(history)
    return found


async def assert_same(left: BaseCheckpointSaver[Any], right: BaseCheckpointSaver[Any], thread_id: str) -> int:
    """Two savers say the same of a thread; how many checkpoints it has."""
    one, other = await everything(left, thread_id), await everything(right, thread_id)
    assert one.keys() == other.keys()
    for key, expected in one.items():
        assert other[key] == expected, key
    return len(one)


@asynccontextmanager
async def stock(dsn: str) -> AsyncIterator[AsyncPostgresSaver]:
    async with AsyncPostgresSaver.from_conn_string(dsn) as saver:
        yield saver
