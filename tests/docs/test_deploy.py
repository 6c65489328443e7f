"""What `docs/howto/deploy.md` tells an administrator to do, done."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import asyncpg
import pytest

from deltastore import DatabaseRefusedError, DeltaSaver
from deltastore.postgres.migrations import Migrator, schema_folder
from tests.docs.pages import ROOT, blocks_of
from tests.support.servers import execute

PAGE = ROOT / "docs" / "howto" / "deploy.md"
[GRANTS] = [block.text for block in blocks_of(PAGE) if block.language == "sql"]
CONFIG = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@pytest.fixture
def role(server_dsn: str) -> Iterator[str]:
    name = f"app_{uuid.uuid4().hex}"
    execute(server_dsn, "CREATE ROLE {}", name)
    yield name
    execute(server_dsn, "DROP ROLE {}", name)


async def exercise(saver: DeltaSaver) -> None:
    """Every kind of call that writes."""
    checkpoint = {
        "v": 4,
        "id": "1",
        "ts": "",
        "channel_values": {"c": 1},
        "channel_versions": {"c": 1},
        "versions_seen": {},
    }
    stored = await saver.aput(CONFIG, checkpoint, {"run_id": "r"}, {"c": 1})  # type: ignore[arg-type]
    await saver.aput_writes(stored, [("c", 2)], "task")
    assert (await saver.aget_tuple(CONFIG)) is not None  # type: ignore[arg-type]
    await saver.acopy_thread("t", "copy")
    await saver.aprune(["t"])
    await saver.adelete_for_runs(["r"])
    await saver.adelete_thread("copy")
    assert [each async for each in saver.alist(None)] == []


async def test_a_role_with_the_grants_can_do_all_but_ddl(database_dsn: str, role: str) -> None:
    connection = await asyncpg.connect(database_dsn)
    await connection.execute(GRANTS.replace("TO app;", f"TO {role};"))
    async with DeltaSaver.from_conn_string(database_dsn, server_settings={"role": role}) as saver:
        await saver.setup()
        await exercise(saver)
    await connection.execute("DELETE FROM deltastore.delta_migrations")
    async with DeltaSaver.from_conn_string(database_dsn, server_settings={"role": role}) as saver:
        with pytest.raises(DatabaseRefusedError, match="deltastore schema sql"):
            await saver.setup()
    await connection.execute(f"DROP OWNED BY {role}")
    await connection.close()


async def test_the_partitioned_variant_as_it_is_told(empty_database_dsn: str) -> None:
    text = schema_folder().joinpath("variants", "partitioned.sql").read_text(encoding="utf-8")
    assert "sed 's/{schema}/deltastore/g'" in PAGE.read_text(encoding="utf-8")
    connection = await asyncpg.connect(empty_database_dsn)
    await connection.execute("CREATE SCHEMA deltastore")
    async with connection.transaction():
        await connection.execute(text.replace("{schema}", "deltastore"))
    status = await Migrator().status(connection)
    assert status.found == status.expected
    await connection.close()
    async with DeltaSaver.from_conn_string(empty_database_dsn) as saver:
        await exercise(saver)


async def test_setup_inside_of_a_transaction(empty_database_dsn: str) -> None:
    connection = await asyncpg.connect(empty_database_dsn)
    transaction = connection.transaction()
    await transaction.start()
    assert await Migrator().up(connection)
    await transaction.rollback()
    assert (await Migrator().status(connection)).found == 0
    await connection.close()
