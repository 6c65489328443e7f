"""Hot statements find their rows by index, also when PostgreSQL plans once for all parameters."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

import asyncpg
import pytest

from deltastore.postgres.queries import statements

SCHEMA = "deltastore"
HOT = (
    "save", "save_writes", "load_chains", "load_segments", "list_checkpoint", "list_namespace", "list_namespace_below",
    "list_thread", "find_runs", "lock_thread", "edit_checkpoints", "edit_segments", "edit_metadata", "edit_documents",
    "delete_segments", "delete_checkpoints", "mark_checkpoints", "bury_thread", "extend_deletion", "delete_thread",
    "has_rows", "view_thread", "count_rows", "payload_bytes", "pin_thread", "forget_deletion",
)  # fmt: skip
ORDERED = ("list_namespace", "list_namespace_below")
ONE_DESCENT_PER_ROW = ("save", "load_chains", "load_segments")

FILL = """
INSERT INTO deltastore.delta_threads (thread_key, thread_id)
SELECT decode(md5(thread::text), 'hex'), thread::text FROM generate_series(1, 1000) AS thread;
INSERT INTO deltastore.delta_checkpoints
SELECT step / 5, step % 50, false, false, decode(md5(thread::text), 'hex'), '', int8send(step), int8send(step - 1),
    ARRAY[step], ''
FROM generate_series(1, 1000) AS thread, generate_series(1, CASE WHEN thread = 1 THEN 20000 ELSE 30 END) AS step;
INSERT INTO deltastore.delta_segments
SELECT step, 1 + 2 * (step % 2), thread_key, namespace, checkpoint_id, NULL, ''
FROM (SELECT *, row_number() OVER () AS step FROM deltastore.delta_checkpoints) AS numbered;
INSERT INTO deltastore.delta_metadata
SELECT DISTINCT metadata_id, thread_key, jsonb_build_object('run_id', encode(thread_key, 'hex') || metadata_id),
    ''::bytea
FROM deltastore.delta_checkpoints;
INSERT INTO deltastore.delta_tombstones
SELECT now(), decode(md5('gone ' || thread), 'hex'), decode('00', 'hex') FROM generate_series(1, 1000) AS thread;
INSERT INTO deltastore.delta_quarantine
SELECT now(), thread, decode(md5('hurt ' || thread), 'hex'), 'delta_segments', 'damaged', '{}', ''
FROM generate_series(1, 1000) AS thread;
ANALYZE
"""


@pytest.fixture
async def connection(database_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_dsn)
    await connection.execute(FILL)
    yield connection
    await connection.close()


async def plan(connection: asyncpg.Connection, name: str) -> dict:
    text = statements(SCHEMA)[name]
    parameters = max(int(number) for number in re.findall(r"\$(\d+)", text))
    await connection.execute(f"PREPARE probe AS {text}")
    nulls = ", ".join(["NULL"] * parameters)
    plans = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE probe ({nulls})"))
    await connection.execute("DEALLOCATE probe")
    found: dict = plans[0]["Plan"]
    return found


def nodes(node: dict) -> list[dict]:
    return [node, *(below for child in node.get("Plans", []) for below in nodes(child))]


async def test_generic_plans_of_hot_statements(connection: asyncpg.Connection) -> None:
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    for name in HOT:
        found = nodes(await plan(connection, name))
        scanned = [node.get("Relation Name") for node in found if node["Node Type"] == "Seq Scan"]
        assert not scanned, f"{name} reads {scanned} from end to end"
        for node in found:
            if "delta_" in node.get("Index Name", "") and node["Index Name"] != "delta_metadata_run":
                assert "thread_key = " in node["Index Cond"], f"{name}: {node['Index Name']} without the thread"
        if name in ORDERED:
            assert not [node for node in found if node["Node Type"] == "Sort"], f"{name} sorts"
        if name in ONE_DESCENT_PER_ROW:
            for node in found:
                if node.get("Index Name") in ("delta_checkpoints_pkey", "delta_segments_pkey", "delta_segments_writes"):
                    reads_one_by_one = re.search(r"checkpoint_id|segment_id", node["Index Cond"]) is not None
                    is_head = node.get("Scan Direction") == "Backward"
                    assert reads_one_by_one or is_head, f"{name}: {node}"


async def test_custom_plans_of_hot_statements(connection: asyncpg.Connection) -> None:
    """With the parameters known, of a long and of a short thread."""
    text = statements(SCHEMA)
    for thread in ("1", "2"):
        key = f"decode(md5('{thread}'), 'hex')"
        for name, arguments in {
            "load_chains": f"{key}, '', NULL, 5, '{{a}}'",
            "load_segments": f"{key}, '{{1,2,3}}'",
            "list_namespace": f"{key}, '', NULL, 100",
            "list_namespace_below": f"{key}, '', int8send(9000), NULL, 100",
            "list_checkpoint": f"{key}, '', int8send(3), NULL",
            "save_writes": f"{key}, 't', 5, '', 'x', 3::smallint, NULL, '', NULL",
            "save": f"{key}, 't', 5, '', '', '', 1, '{{}}', '', 1, false, false, 2, '{{}}', '{{}}', '{{}}', '{{}}',"
            " '', NULL, NULL, NULL",
        }.items():
            await connection.execute(f"PREPARE probe AS {text[name]}")
            plans = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE probe ({arguments})"))
            await connection.execute("DEALLOCATE probe")
            scanned = [node for node in nodes(plans[0]["Plan"]) if node["Node Type"] == "Seq Scan"]
            assert not scanned, (name, scanned)


async def test_only_the_partition_of_the_thread_is_read(empty_database_dsn: str) -> None:
    from deltastore.postgres.migrations import schema_folder
    from deltastore.postgres.naming import render

    connection = await asyncpg.connect(empty_database_dsn)
    variant = schema_folder().joinpath("variants", "partitioned.sql").read_text(encoding="utf-8")
    await connection.execute(render("CREATE SCHEMA {schema};" + variant, SCHEMA))
    await connection.execute("PREPARE probe AS " + statements(SCHEMA)["load_chains"])
    plans = json.loads(
        await connection.fetchval("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE probe ('\\x00112233', '', NULL, NULL, '{}')")
    )
    touched = {node["Relation Name"] for node in nodes(plans[0]["Plan"]) if "Relation Name" in node}
    assert len({name.rpartition("_")[2] for name in touched}) == 1, touched
    assert {name.rpartition("_")[0] for name in touched} == {
        "delta_threads", "delta_checkpoints", "delta_segments", "delta_metadata"
    }  # fmt: skip
    await connection.close()
