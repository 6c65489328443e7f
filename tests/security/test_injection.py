"""F18: filters, names and arguments that look like SQL are values and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from deltastore import DeltaSaver, InvalidConfigError
from tests.bridge.savers import config, echo_graph
from tests.faults.stories import Story, assert_reads_as, config_of

HOSTILE = (
    "' OR '1'='1",
    "'; DROP TABLE deltastore.delta_threads; --",
    '"',
    "a.b",
    "$.a",
    "$1",
    "{schema}",
    "[0]",
    "a->>'b'",
    "\u2019 OR \u20191\u2019=\u20191",
    "\\",
    "%",
    "_",
    "a\\u0000b",
    "x" * 10_000,
    "",
)


async def rows(dsn: str) -> dict[str, int]:
    connection = await asyncpg.connect(dsn)
    tables = ("delta_threads", "delta_checkpoints", "delta_segments", "delta_metadata")
    counts = {table: await connection.fetchval(f"SELECT count(*) FROM deltastore.{table}") for table in tables}
    await connection.close()
    return counts


async def test_filters_with_hostile_keys_and_values_find_nothing_else(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        await Story(saver, "mine").grow(2, owner="me")
        await Story(saver, "other").grow(2, owner="other")
        before = await rows(database_dsn)
        for text in HOSTILE:
            for conditions in (
                {text: 1},
                {text: text},
                {"owner": text},
                {"owner": {"$ne": text}},
                {"owner": {"$gt": ""}},
                {"owner": [text]},
                {"owner": {"==": "me"}},
                {"source": text},
                {"step": {"$gte": 0}},
                {"parents": {text: text}},
            ):
                assert [each async for each in saver.alist(config_of("mine"), filter=conditions)] == []
                assert [each async for each in saver.alist(None, filter=conditions)] == []
        assert await rows(database_dsn) == before


@pytest.mark.parametrize("text", HOSTILE)
async def test_metadata_with_hostile_keys_and_values_is_found_by_them(database_dsn: str, text: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        await Story(saver, "mine").grow(2, None, **{text: text, "nested": {text: [text]}})
        await Story(saver, "other").grow(2)
        for conditions in ({text: text}, {"nested": {text: [text]}}):
            found = [each async for each in saver.alist(None, filter=conditions)]
            assert [each.config["configurable"]["thread_id"] for each in found] == ["mine", "mine"]
            assert found[0].metadata[text] == text  # type: ignore[literal-required]


@pytest.mark.parametrize("text", [text for text in HOSTILE if text])
async def test_hostile_names_everywhere(database_dsn: str, text: str) -> None:
    """Thread, namespace, channel, task, path, node and run are named so; nothing else changes."""
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        bystander = Story(saver, "bystander")
        await bystander.grow(3, run_id="bystander")
        name = text[:1000]
        at: Any = {"configurable": {"thread_id": name, "checkpoint_ns": name}}
        checkpoint: Any = {
            "v": 4, "id": "1f000000-0000-6000-8000-000000000001", "ts": name, "channel_values": {name: [name]},
            "channel_versions": {name: name}, "versions_seen": {name: {name: name}}, "updated_channels": [name],
        }  # fmt: skip
        stored = await saver.aput(at, checkpoint, {"run_id": name}, {name: name})
        await saver.aput_writes(stored, [(name, name)], name, name)
        found = await saver.aget_tuple(stored)
        assert found is not None
        assert found.checkpoint == checkpoint
        assert found.pending_writes == [(name, name, name)]
        assert len([each async for each in saver.alist(None)]) == 4
        await saver.acopy_thread(name, f"{name} copy")
        await saver.aprune([name, f"{name} copy"])
        await saver.adelete_for_runs([name])
        assert await saver.aget_tuple(stored) is None
        await saver.adelete_thread(name)
        await saver.adelete_thread(f"{name} copy")
        for step in bystander.steps:
            await assert_reads_as(saver, step)
        assert (await rows(database_dsn))["delta_threads"] == 1


@pytest.mark.parametrize("limit", ["1", "1; DROP TABLE x", 1.5, True, [1]])
async def test_a_limit_is_a_number(database_dsn: str, limit: Any) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        with pytest.raises(InvalidConfigError, match="limit"):
            _ = [each async for each in saver.alist(config(), limit=limit)]


SCHEMAS = ["a", "b-ü", "Select", 'a"; DROP SCHEMA deltastore CASCADE; --', "it's {schema}"]


async def test_savers_of_many_schemas_over_one_pool(database_dsn: str) -> None:
    """F38: each finds its own rows only, whatever the name of its schema; nothing is written elsewhere."""
    async with asyncpg.create_pool(database_dsn, min_size=2, max_size=4) as pool:
        savers = {schema: DeltaSaver(pool, schema=schema) for schema in SCHEMAS}
        for saver in savers.values():
            await saver.setup()
        await asyncio.gather(
            *(
                echo_graph(savers[schema]).ainvoke({"words": [f"{schema} {number}"]}, config(f"t{number}"))
                for number in range(12)
                for schema in SCHEMAS
            )
        )
        for schema, saver in savers.items():
            for number in range(12):
                state = await echo_graph(saver).aget_state(config(f"t{number}"))
                assert state.values["words"] == [f"{schema} {number}", f"{schema} {number}".upper()]
            assert len([each async for each in saver.alist(None)]) == 36
        found = await pool.fetch("SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information)' ORDER BY 1")
        assert sorted(each["nspname"] for each in found) == sorted([*SCHEMAS, "deltastore", "public"])
        assert await pool.fetchval("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace") == 0
        assert await pool.fetchval("SELECT count(*) FROM deltastore.delta_checkpoints") == 0
