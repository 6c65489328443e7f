"""The schema: its steps, who may run them, and what happens between versions."""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from deltastore.core.model import ListQuery, NewSegment, Save, SaveWrites
from deltastore.errors import DatabaseRefusedError, SchemaVersionError
from deltastore.postgres.migrations import Migration, Migrator, plan, read_migrations, schema_folder
from deltastore.postgres.naming import quote_schema, render
from deltastore.postgres.pool import PoolOptions
from deltastore.postgres.storage import PostgresStorage
from tests.contract.calls import METADATA, OTHER, WRITES, T, apply, hide, key, load, row, save, structure
from tests.support.poolers import pgbouncer
from tests.support.setups import set_up_rounds

NEWEST = Migrator().expected
CATALOG = {
    "relations": "SELECT relname, relkind, relpersistence, reloptions, obj_description(c.oid, 'pg_class')"
    " FROM pg_class AS c WHERE relnamespace = $1::text::regnamespace ORDER BY relname",
    "columns": "SELECT c.relname, attname, attnum, format_type(atttypid, atttypmod), attnotnull, attstorage,"
    " attcompression, (SELECT collname FROM pg_collation AS l WHERE l.oid = attcollation), pg_get_expr(adbin, adrelid),"
    " col_description(attrelid, attnum) FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid"
    " LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
    " WHERE relnamespace = $1::text::regnamespace AND attnum > 0 AND relkind IN ('r', 'p') ORDER BY 1, attnum",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes"
    " WHERE quote_ident(schemaname)::regnamespace = $1::text::regnamespace ORDER BY 1",
    "constraints": "SELECT conname, contype, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = $1::text::regnamespace ORDER BY 1",
    "sequences": "SELECT sequencename, data_type::text, start_value, increment_by, cycle, cache_size FROM pg_sequences"
    " WHERE quote_ident(schemaname)::regnamespace = $1::text::regnamespace",
    "triggers": "SELECT tgname FROM pg_trigger JOIN pg_class AS c ON c.oid = tgrelid"
    " WHERE relnamespace = $1::text::regnamespace",
}


@pytest.fixture
async def connection(empty_database_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(empty_database_dsn)
    yield connection
    await connection.close()


async def catalog(connection: asyncpg.Connection, schema: str = "deltastore") -> dict[str, list[tuple]]:
    """What PostgreSQL knows of the schema's objects."""
    found = {}
    for part, query in CATALOG.items():
        found[part] = [tuple(record) for record in await connection.fetch(query, quote_schema(schema))]
    return found


async def objects(connection: asyncpg.Connection) -> int:
    return await connection.fetchval(  # type: ignore[no-any-return]
        "SELECT count(*) FROM pg_class WHERE relnamespace NOT IN"
        " ('pg_catalog'::regnamespace, 'information_schema'::regnamespace, 'pg_toast'::regnamespace)"
    )


def test_steps_are_numbered_without_gaps() -> None:
    migrations = read_migrations()
    assert [migration.version for migration in migrations] == list(range(1, len(migrations) + 1))
    assert migrations[0].name == "initial"
    for migration in migrations:
        assert "-- For the operator: " in migration.sql


def test_a_plan_is_what_is_missing() -> None:
    steps = tuple(Migration(version, f"step{version}", "") for version in (1, 2, 3))
    assert plan(steps, 0) == steps
    assert plan(steps, 2) == steps[2:]
    assert plan(steps, 3) == plan(steps, 9) == ()


async def test_whole_schema_and_migrations_and_printed_sql_give_the_same_catalog(
    connection: asyncpg.Connection,
) -> None:
    found = []
    whole = schema_folder().joinpath("schema.sql").read_text(encoding="utf-8")
    for build in (
        lambda: Migrator().up(connection),
        lambda: connection.execute(render("CREATE SCHEMA {schema};\n" + whole, "deltastore")),
        lambda: connection.execute(Migrator().sql()),
    ):
        await build()
        await Migrator().check(connection)
        rows = await connection.fetch("SELECT version, name FROM deltastore.delta_migrations")
        found.append((await catalog(connection), [tuple(each) for each in rows]))
        await connection.execute("DROP SCHEMA deltastore CASCADE")
    assert found[0] == found[1] == found[2]
    tables = [name for name, kind, *_ in found[0][0]["relations"] if kind == b"r"]
    assert tables == ["delta_checkpoints", "delta_metadata", "delta_migrations", "delta_quarantine", "delta_segments",
                      "delta_staging", "delta_threads", "delta_tombstones"]  # fmt: skip
    assert not found[0][0]["triggers"]


async def test_everything_has_a_comment_and_keys_start_with_the_thread(connection: asyncpg.Connection) -> None:
    await Migrator().up(connection)
    found = await catalog(connection)
    assert all(column[-1] for column in found["columns"]), [column[:2] for column in found["columns"] if not column[-1]]
    for name, kind, _, _, comment in found["relations"]:
        assert comment or (kind == b"i" and name.endswith("_pkey")), name
    for name, _, definition in found["constraints"]:
        if not name.startswith("delta_migrations") and "PRIMARY KEY" in definition:
            assert definition.startswith("PRIMARY KEY (thread_key"), name
        assert "FOREIGN" not in definition


async def test_the_partitioned_variant_has_the_same_columns(connection: asyncpg.Connection) -> None:
    await Migrator().up(connection)
    plain = await catalog(connection)
    variant = schema_folder().joinpath("variants", "partitioned.sql").read_text(encoding="utf-8")
    await connection.execute(render("CREATE SCHEMA {schema};\n" + variant, "parts"))
    await Migrator("parts").check(connection)
    parts = await catalog(connection, "parts")
    columns = [[str(each).replace("parts.", "deltastore.") for each in column] for column in parts["columns"]]
    parents = {name for name, *_ in plain["columns"]}
    assert [column for column in columns if column[0] in parents] == [list(map(str, each)) for each in plain["columns"]]
    whole = {"delta_migrations", "delta_quarantine", "delta_staging", "delta_tombstones"}
    leaves = {name for name, kind, *_ in parts["relations"] if kind == b"r"} - whole
    assert len(leaves) == 4 * 16
    assert all(column[5] == b"e" for column in parts["columns"] if column[1] == "payload")


async def test_up_twice_does_nothing_the_second_time(connection: asyncpg.Connection) -> None:
    migrator = Migrator()
    assert (await migrator.status(connection)).found == 0
    assert await migrator.up(connection) == read_migrations()
    before = await catalog(connection)
    assert await migrator.up(connection) == ()
    status = await migrator.status(connection)
    assert (status.schema, status.found, status.expected, status.pending) == ("deltastore", NEWEST, NEWEST, ())
    assert await catalog(connection) == before
    assert migrator.sql(status.found) == ""


@pytest.mark.parametrize("commits", [True, False])
async def test_inside_a_transaction_of_the_callers(connection: asyncpg.Connection, commits: bool) -> None:
    before = await objects(connection)
    transaction = connection.transaction()
    await transaction.start()
    await Migrator().up(connection)
    await (transaction.commit() if commits else transaction.rollback())
    assert (await objects(connection) > before) is commits
    assert bool(await connection.fetchval("SELECT to_regnamespace('deltastore') IS NOT NULL")) is commits


async def test_a_step_that_fails_leaves_nothing(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrator = Migrator()
    broken = Migration(NEWEST + 1, "broken", "CREATE TABLE {schema}.half (); SELECT 1 / 0")
    monkeypatch.setattr(migrator, "_migrations", (*read_migrations(), broken))
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrator.up(connection)
    assert (await migrator.status(connection)).found == NEWEST
    assert await connection.fetchval("SELECT to_regclass('deltastore.half')") is None


async def test_twelve_processes_set_up_at_once(empty_database_dsn: str, connection: asyncpg.Connection) -> None:
    rounds = 20
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.setups"])
    barrier = context.Barrier(12)
    processes = [context.Process(target=set_up_rounds, args=(empty_database_dsn, rounds, barrier)) for _ in range(12)]
    for process in processes:
        process.start()
    for process in processes:
        await asyncio.to_thread(process.join)
    assert [process.exitcode for process in processes] == [0] * 12
    await Migrator().up(connection)
    single = await catalog(connection)
    for number in range(rounds):
        query = f'SELECT version FROM "round {number}".delta_migrations ORDER BY version'
        versions = await connection.fetch(query)
        assert [tuple(each) for each in versions] == [(version,) for version in range(1, NEWEST + 1)]
        several = await catalog(connection, f"round {number}")
        assert {part: len(rows) for part, rows in several.items()} == {part: len(rows) for part, rows in single.items()}


async def test_the_others_finish_when_one_is_killed_in_the_middle(empty_database_dsn: str) -> None:
    killed = await asyncpg.connect(empty_database_dsn)
    await killed.execute("BEGIN")  # also shows that a transaction may be one that the driver does not know of
    await Migrator().up(killed)
    storages = [await PostgresStorage.open(empty_database_dsn) for _ in range(4)]
    tasks = [asyncio.create_task(storage.setup()) for storage in storages]
    await asyncio.wait(tasks, timeout=0.3)
    assert not any(task.done() for task in tasks)
    killed.terminate()
    await asyncio.gather(*tasks)
    await save(storages[0], row(1))
    for storage in storages:
        await storage.close()


async def test_through_a_pooler(empty_database_dsn: str) -> None:
    with pgbouncer(empty_database_dsn, server_connections=2) as dsn:
        options = PoolOptions(max_size=3, statement_cache_size=0)
        storages = [await PostgresStorage.open(dsn, options=options) for _ in range(6)]
        await asyncio.gather(*(storage.setup() for storage in storages))
        await save(storages[5], row(1))
        for storage in storages:
            await storage.close()


@pytest.fixture
async def storage(database_dsn: str) -> AsyncIterator[PostgresStorage]:
    storage = await PostgresStorage.open(database_dsn)
    yield storage
    await storage.close()


CALLS = {
    "save": lambda storage: storage.save(Save(T, row(1), metadata=METADATA)),
    "save_writes": lambda storage: storage.save_writes(SaveWrites(T, "", key(1), NewSegment(WRITES, b"w"))),
    "load_chains": load,
    "load_segments": lambda storage: storage.load_segments(T.key, [1]),
    "list_checkpoints": lambda storage: storage.list_checkpoints(ListQuery()),
    "delete_thread": lambda storage: storage.delete_thread(T.key),
    "copy_thread": lambda storage: storage.copy_thread(T.key, OTHER),
    "find_runs": lambda storage: storage.find_runs(["r"]),
    "edit": lambda storage: apply(storage, hide(1)),
}


@pytest.mark.parametrize("verb", CALLS)
async def test_a_newer_schema_is_not_touched(storage: PostgresStorage, verb: str) -> None:
    await storage._pool.execute(
        "INSERT INTO deltastore.delta_migrations (version, name) VALUES ($1, 'later')", NEWEST + 1
    )
    expected = rf"newer than this code.*found version {NEWEST + 1}, expected {NEWEST}.*upgrade"
    for call in (CALLS[verb](storage), storage.setup()):
        with pytest.raises(SchemaVersionError, match=expected):
            await call
    assert await storage._pool.fetchval("SELECT count(*) FROM deltastore.delta_threads") == 0


@pytest.mark.parametrize("verb", CALLS)
async def test_a_missing_or_older_schema_asks_for_setup(storage: PostgresStorage, verb: str) -> None:
    await storage._pool.execute("DELETE FROM deltastore.delta_migrations")
    expected = rf"not set up.*found version 0, expected {NEWEST}.*deltastore schema up"
    with pytest.raises(SchemaVersionError, match=expected):
        await CALLS[verb](storage)
    await storage._pool.execute("DROP SCHEMA deltastore CASCADE")
    with pytest.raises(SchemaVersionError, match=expected):
        await CALLS[verb](storage)
    await storage.setup()
    await save(storage, row(1))
    await storage._pool.execute("DROP TABLE deltastore.delta_checkpoints, deltastore.delta_segments")
    if verb != "find_runs":
        with pytest.raises(SchemaVersionError, match=r"missing or incomplete.*deltastore schema up"):
            await CALLS[verb](storage)


async def test_an_older_schema_says_so(storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage._attempts._migrator, "expected", 9)
    with pytest.raises(SchemaVersionError, match=f"older than this code; found version {NEWEST}, expected 9"):
        await load(storage)


async def test_the_version_is_looked_up_once(storage: PostgresStorage) -> None:
    await save(storage, row(1))
    await storage._pool.execute("DELETE FROM deltastore.delta_migrations")
    await save(storage, row(2))


@asynccontextmanager
async def role(dsn: str, *grants: str) -> AsyncIterator[str]:
    """A DSN of a new role that has only these rights."""
    name = f"role_{secrets.token_hex(4)}"
    owner = await asyncpg.connect(dsn)
    await owner.execute(f"CREATE ROLE {name} LOGIN")
    for grant in grants:
        await owner.execute(f"GRANT {grant} TO {name}")
    try:
        yield dsn.replace("//postgres", f"//{name}")
    finally:
        await owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
        await owner.close()


USAGE = ("USAGE ON SCHEMA deltastore", "USAGE ON ALL SEQUENCES IN SCHEMA deltastore")


async def test_a_role_with_rights_on_rows_only(database_dsn: str) -> None:
    rights = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA deltastore"
    async with role(database_dsn, *USAGE, rights) as dsn:
        storage = await PostgresStorage.open(dsn)
        await storage.setup()
        await save(storage, row(1))
        for call in CALLS.values():
            await call(storage)
        await storage.close()


async def test_a_role_that_may_not_create_the_schema(empty_database_dsn: str, connection: asyncpg.Connection) -> None:
    before = await objects(connection)
    async with role(empty_database_dsn) as dsn:
        storage = await PostgresStorage.open(dsn)
        with pytest.raises(DatabaseRefusedError, match=r"may not bring schema 'deltastore' up.*deltastore schema sql"):
            await storage.setup()
        await storage.close()
    assert await objects(connection) == before


async def test_a_role_that_may_create_in_a_schema_made_for_it(
    empty_database_dsn: str, connection: asyncpg.Connection
) -> None:
    await connection.execute('CREATE SCHEMA "b-ü"')
    async with role(empty_database_dsn, 'CREATE, USAGE ON SCHEMA "b-ü"') as dsn:
        storage = await PostgresStorage.open(dsn, "b-ü", create_schema=False)
        await storage.setup()
        await save(storage, row(1))
        await storage.close()
        missing = await PostgresStorage.open(dsn, "Select", create_schema=False)
        with pytest.raises(SchemaVersionError, match=r'does not exist.*CREATE SCHEMA "Select"'):
            await missing.setup()
        await missing.close()


async def test_rights_that_are_missing_are_named(database_dsn: str) -> None:
    async with role(database_dsn) as dsn:
        storage = await PostgresStorage.open(dsn)
        with pytest.raises(DatabaseRefusedError, match=r"permission denied for schema.*grant the role USAGE"):
            await load(storage)
        await storage.close()
    async with role(database_dsn, *USAGE, "SELECT ON ALL TABLES IN SCHEMA deltastore") as dsn:
        storage = await PostgresStorage.open(dsn)
        with pytest.raises(DatabaseRefusedError, match=r"permission denied.*SELECT, INSERT, UPDATE, DELETE"):
            await save(storage, row(1))
        await storage.close()


async def test_a_read_only_database_is_named(database_dsn: str) -> None:
    options = PoolOptions(server_settings={"default_transaction_read_only": "on"})
    storage = await PostgresStorage.open(database_dsn, options=options)
    await storage.setup()
    with pytest.raises(DatabaseRefusedError, match="primary server"):
        await save(storage, row(1))
    assert await storage.load_chains(T.key, "", None) is None
    await storage.close()


async def test_three_schemas_over_one_pool(empty_database_dsn: str) -> None:
    pool = await asyncpg.create_pool(empty_database_dsn, min_size=1, max_size=4)
    storages = {name: PostgresStorage(pool, name) for name in ("a", "b-ü", "Select")}
    for storage in storages.values():
        await storage.setup()
    before = await pool.fetchval("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")

    async def work(name: str, storage: PostgresStorage, number: int) -> None:
        await save(storage, row(number, payload=name.encode()))
        chains = await load(storage, number)
        assert [each.payload for each in chains.rows] == [name.encode()]

    await asyncio.gather(*(work(name, storage, number) for number in range(160) for name, storage in storages.items()))
    for name in storages:
        stored = await pool.fetch(f"SELECT DISTINCT payload FROM {quote_schema(name)}.delta_checkpoints")
        assert [each["payload"] for each in stored] == [name.encode()]
    await storages["a"].delete_thread(T.key)
    assert len((await structure(storages["Select"]))[0]) == 160
    assert await pool.fetchval("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace") == before
    await pool.close()


async def test_the_stock_savers_tables_may_be_in_the_same_schema(empty_database_dsn: str) -> None:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    storage = await PostgresStorage.open(empty_database_dsn, "public")
    async with AsyncPostgresSaver.from_conn_string(empty_database_dsn) as stock:
        await stock.setup()
        await storage.setup()
        await save(storage, row(1))
        assert [each async for each in stock.alist(None)] == []
        await stock.setup()
    await storage.delete_thread(T.key)
    await storage.close()
