"""The named statements: complete, qualified, counted, and one round trip where one is promised."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator
from importlib.resources import files

import asyncpg
import pytest

from deltastore.core.edits import ThreadChanges
from deltastore.core.model import ListQuery, NewSegment, Save
from deltastore.errors import InvalidConfigError
from deltastore.postgres.migrations import schema_folder
from deltastore.postgres.naming import quote_schema
from deltastore.postgres.pool import PoolOptions
from deltastore.postgres.queries import Queries, statements
from deltastore.postgres.repair import RepairQueries
from deltastore.postgres.staging import StagingQueries
from deltastore.postgres.statistics import StatisticsQueries
from deltastore.postgres.storage import PostgresStorage
from deltastore.postgres.survey import SurveyQueries
from tests.contract.calls import METADATA, OTHER, PAGES, VALUES, T, apply, key, load, row, save, save_writes
from tests.support.proxies import proxy_to

TEXTS = {
    file.name: file.read_text(encoding="utf-8")
    for file in files("deltastore.postgres").iterdir()
    if file.name.endswith(".sql")
}
ONE_EACH = {
    "queries.sql": Queries,
    "survey.sql": SurveyQueries,
    "repair.sql": RepairQueries,
    "statistics.sql": StatisticsQueries,
    "staging.sql": StagingQueries,
}
"""Files with one function for each statement; `overview.sql` has tests of its own."""


@pytest.mark.parametrize("file_name", ONE_EACH)
def test_statements_and_functions_have_the_same_names_in_the_same_order(file_name: str) -> None:
    functions = [name for name, each in vars(ONE_EACH[file_name]).items() if inspect.iscoroutinefunction(each)]
    assert list(statements("x", file_name)) == functions


@pytest.mark.parametrize("file_name", ONE_EACH)
def test_every_function_uses_its_own_statement(file_name: str) -> None:
    for name, function in vars(ONE_EACH[file_name]).items():
        if inspect.iscoroutinefunction(function):
            assert re.findall(r'self\.text\["(\w+)"\]', inspect.getsource(function)) == [name]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_statement_says_what_it_is_for(text: str) -> None:
    for name, body in re.findall(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", text, re.MULTILINE | re.DOTALL):
        assert body.startswith("-- "), name
        assert body.rstrip().endswith(";"), name
        assert body.count(";\n") == 1, f"{name} is more than one statement"


def test_every_table_is_qualified_and_nothing_outlives_a_transaction() -> None:
    migrations = list(schema_folder().joinpath("migrations").iterdir())
    scripts = [schema_folder().joinpath("schema.sql"), *migrations]
    for text in (*TEXTS.values(), *(script.read_text(encoding="utf-8") for script in scripts)):
        sql = re.sub(r"--.*|'delta_\w+'", "", text)
        tables = r"\bdelta_(?:threads|checkpoints|segments|metadata|migrations|numbers|quarantine|staging|tombstones)\b"
        assert re.search(r"\{schema\}\." + tables, sql)
        assert not re.search(r"(?<!\{schema\}\.)" + tables, sql)
        assert not re.search(r"\b(SET SESSION|LISTEN|TEMP|search_path|pg_advisory_lock|CONCURRENTLY)\b", sql)


@pytest.mark.parametrize("name", ["deltastore", "b-ü", "Select", 'x"; DROP TABLE y; --', "it's", "{schema}", "x" * 63])
def test_any_identifier_can_be_the_schema(name: str) -> None:
    assert quote_schema(name) == '"' + name.replace('"', '""') + '"'
    assert all("{" not in text.replace("'{}'", "") or name == "{schema}" for text in statements(name).values())


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, "ü" * 32, "\ud800", None, 5, b"bytes"])
async def test_a_name_that_cannot_be_an_identifier_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfigError, match="schema name"):
        statements(name)
    with pytest.raises(InvalidConfigError, match="schema name"):
        await PostgresStorage.open("postgresql://nobody@127.0.0.1:1/never-reached", name)


@pytest.fixture
async def storage(database_dsn: str) -> AsyncIterator[PostgresStorage]:
    storage = await PostgresStorage.open(database_dsn, options=PoolOptions(max_size=1))
    await save(storage, row(1), NewSegment(VALUES, b"v"))
    yield storage
    await storage.close()


async def test_how_many_statements_each_call_takes(storage: PostgresStorage) -> None:
    seen: list[str] = []
    async with storage._pool.acquire() as connection:
        connection.add_query_logger(lambda record: seen.append(record.query))
    names = {text: name for name, text in storage._queries.text.items()}

    async def run(call) -> list[str]:
        seen.clear()
        await call
        await asyncio.sleep(0)
        return [names.get(text, text.split()[0].rstrip(";")) for text in seen]

    assert await run(save(storage, row(2, 1, 1), NewSegment(VALUES, b"v"))) == ["save"]
    assert await run(storage.save(Save(T, row(2)))) == ["save"]
    assert await run(save_writes(storage, 2)) == ["save_writes"]
    assert await run(load(storage)) == ["load_chains"]
    assert await run(load(storage, 1, 2)) == ["load_chains"]
    assert await run(storage.load_segments(T.key, [1, 2])) == ["load_segments"]
    for query, name in (
        (ListQuery(), "list_all"),
        (ListQuery(T.key), "list_thread"),
        (ListQuery(T.key, ""), "list_namespace"),
        (ListQuery(T.key, "", before=key(3)), "list_namespace_below"),
        (ListQuery(T.key, "", key(1)), "list_checkpoint"),
    ):
        assert await run(storage.list_checkpoints(query)) == [name]
    assert await run(storage.find_runs(["r"])) == ["find_runs"]
    assert await run(apply(storage, ThreadChanges(delete_metadata=(5,)))) == [
        "BEGIN", "lock_thread", "delete_metadata", "renew_epoch", "COMMIT"
    ]  # fmt: skip
    assert await run(storage.delete_thread(OTHER.key)) == [
        "BEGIN", "lock_thread", "bury_thread", "delete_thread", "COMMIT"
    ]  # fmt: skip
    assert len(await run(storage.copy_thread(T.key, OTHER))) == 7


async def test_a_save_and_a_load_are_one_round_trip_on_the_wire(database_dsn: str) -> None:
    async with proxy_to(database_dsn) as proxy:
        storage = await PostgresStorage.open(proxy.dsn, options=PoolOptions(max_size=1))
        for number in range(1, 4):
            before = proxy.answered
            await save(storage, row(number, number - 1 or None, number - 1), NewSegment(VALUES, b"v"))
            saved = proxy.answered
            await load(storage)
            loaded = proxy.answered
        assert (saved - before, loaded - saved) == (1, 1)
        await storage.close()


async def test_hostile_values_are_only_values(storage: PostgresStorage) -> None:
    hostile = "'; DROP TABLE deltastore.delta_threads; -- $1 \\ \" %s"
    before = await storage.list_checkpoints(ListQuery())
    for namespace in (hostile, hostile * 200):
        assert (await load(storage, namespace=namespace)).targets == ()
        assert await storage.list_checkpoints(ListQuery(T.key, namespace)) == []
        assert await storage.find_runs([namespace, "' OR true --"]) == []
        await save(storage, row(1, namespace=namespace), metadata=METADATA)
        assert len(await storage.list_checkpoints(ListQuery(T.key, namespace))) == 1
    assert await storage.list_checkpoints(ListQuery(T.key, "")) == before
    query = ListQuery(document='{"source": {"$ne": 1}, "a\'b\\"]": 1, "$.step": 1}')
    assert await storage.list_checkpoints(query) == []


async def test_the_driver_asks_the_server_about_no_type(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would do so with statements that change the session, and cost round trips on each new connection."""
    asked: list[object] = []

    async def refuse(_: object, types: object, __: object) -> None:
        asked.append(types)
        raise AssertionError(f"asked about types {types}")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", refuse)
    storage = await PostgresStorage.open(database_dsn, options=PoolOptions(statement_cache_size=0))
    one = await save(storage, row(1), NewSegment(VALUES, b"1", (5,)), NewSegment(PAGES, b"p"))
    await save_writes(storage, 1)
    await save(storage, row(2, 1, 1, segments=one.segment_ids))
    chains = await load(storage, 2)
    assert {each.references for each in chains.segments} == {(5,), ()}
    await storage.load_segments(T.key, one.segment_ids)
    await apply(storage, ThreadChanges(delete_segments=one.segment_ids[:1], marks=(("", key(1), True, False),)))
    await storage.close()
    assert not asked
