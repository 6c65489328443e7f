"""Statements of overviews: named as their functions, qualified, and found by index."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

import asyncpg
import pytest

from deltastore.core.overview import ThreadsQuery
from deltastore.errors import BrokenChainError
from deltastore.postgres.migrations import schema_folder
from deltastore.postgres.naming import render
from deltastore.postgres.overview import Overview
from deltastore.postgres.pool import PoolOptions
from deltastore.postgres.queries import statements
from deltastore.postgres.storage import PostgresStorage
from tests.contract.calls import T, row, save
from tests.inspection.many import fill

SCHEMA = "deltastore"
SEGMENTS = """
INSERT INTO deltastore.delta_segments
SELECT row_number() OVER (), 1 + depth % 3, thread_key, namespace, checkpoint_id, NULL, ''
FROM deltastore.delta_checkpoints;
ANALYZE deltastore.delta_segments
"""
TEXT = files("deltastore.postgres").joinpath("overview.sql").read_text(encoding="utf-8")


def test_every_statement_is_used_by_a_function_and_says_what_it_is_for() -> None:
    used = re.findall(r'self\.text\["(\w+)"\]', inspect.getsource(Overview))
    assert list(statements(SCHEMA, "overview.sql")) == used
    for name, body in re.findall(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", TEXT, re.MULTILINE | re.DOTALL):
        assert body.startswith("-- "), name
        assert body.count(";\n") == 1, f"{name} is more than one statement"
    sql = re.sub(r"--.*", "", TEXT)
    assert not re.search(r"(?<!\{schema\}\.)\bdelta_\w+", sql)


def nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(below for child in node.get("Plans", []) for below in nodes(child))]


async def plan(connection: asyncpg.Connection[Any], name: str, schema: str = SCHEMA) -> list[dict[str, Any]]:
    text = statements(schema, "overview.sql")[name]
    parameters = max(int(number) for number in re.findall(r"\$(\d+)", text))
    await connection.execute(f"PREPARE probe AS {text}")
    nulls = ", ".join(["NULL"] * parameters)
    plans = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE probe ({nulls})"))
    await connection.execute("DEALLOCATE probe")
    return nodes(plans[0]["Plan"])


async def test_checkpoints_are_found_by_descents_of_the_primary_key(database_dsn: str) -> None:
    connection = await asyncpg.connect(database_dsn)
    await fill(connection, 3000, older=3)
    await connection.execute(SEGMENTS)
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    scanned = {"newest_threads": {"delta_threads"}, "newest_threads_with_metadata": {"delta_metadata", "delta_threads"}}
    for name in ("newest_threads", "newest_threads_with_metadata", "namespaces", "load_structures"):
        found = await plan(connection, name)
        whole = {each["Relation Name"] for each in found if each["Node Type"] == "Seq Scan"}
        assert whole <= scanned.get(name, set()), name
        by_key = [each for each in found if each.get("Index Name") == "delta_checkpoints_pkey"]
        assert len(by_key) >= 2, name
        assert all("thread_key = " in each["Index Cond"] for each in by_key), name
    await connection.close()


async def test_a_descent_meets_one_partition(empty_database_dsn: str) -> None:
    connection = await asyncpg.connect(empty_database_dsn)
    variant = schema_folder().joinpath("variants", "partitioned.sql").read_text(encoding="utf-8")
    await connection.execute(render("CREATE SCHEMA {schema};" + variant, SCHEMA))
    await fill(connection, 300, older=3, shuffle=False)
    text = statements(SCHEMA, "overview.sql")["newest_threads"]
    await connection.execute(f"PREPARE probe AS {text}")
    plans = json.loads(await connection.fetchval("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE probe (NULL, NULL, 9, false)"))
    descents = [each for each in nodes(plans[0]["Plan"]) if "checkpoints" in each.get("Relation Name", "")]
    assert sum(each["Actual Loops"] for each in descents) == 300 + 9
    await connection.close()


@pytest.fixture
async def storage(database_dsn: str) -> AsyncIterator[PostgresStorage]:
    storage = await PostgresStorage.open(database_dsn, options=PoolOptions(max_size=1))
    await save(storage, row(1))
    yield storage
    await storage.close()


async def test_the_setting_of_a_page_does_not_outlive_it(storage: PostgresStorage) -> None:
    async with storage._pool.acquire() as connection:
        before = await connection.fetchval("SHOW jit")
    await storage.newest_threads(ThreadsQuery())
    async with storage._pool.acquire() as connection:
        assert await connection.fetchval("SHOW jit") == before


async def test_one_statement_for_namespaces(storage: PostgresStorage) -> None:
    seen: list[str] = []
    async with storage._pool.acquire() as connection:
        connection.add_query_logger(lambda record: seen.append(record.query))
    await storage.namespaces(T.key, None, 9)
    await asyncio.sleep(0)
    assert seen == [statements(SCHEMA, "overview.sql")["namespaces"]]


async def test_lost_rows_are_an_error_instead_of_a_shorter_list(storage: PostgresStorage) -> None:
    await storage._pool.execute("DELETE FROM deltastore.delta_metadata")
    with pytest.raises(BrokenChainError, match="metadata of a checkpoint"):
        await storage.newest_threads(ThreadsQuery())
    await save(storage, row(2, namespace="x"))
    await storage._pool.execute("DELETE FROM deltastore.delta_threads")
    with pytest.raises(BrokenChainError, match="row of the thread"):
        await storage.newest_threads(ThreadsQuery("{}"))
