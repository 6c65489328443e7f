"""`setup()` in every form, awaited and not."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from deltastore import DeltaSaver, SchemaVersionError
from tests.bridge.savers import config


async def is_set_up(dsn: str) -> bool:
    connection = await asyncpg.connect(dsn)
    try:
        return bool(await connection.fetchval("SELECT to_regclass('deltastore.delta_threads')"))
    finally:
        await connection.close()


def test_synchronous(empty_database_dsn: str) -> None:
    with DeltaSaver.from_conn_string(empty_database_dsn) as saver:
        with pytest.raises(SchemaVersionError, match="setup"):
            saver.get_tuple(config())
        saver.setup()
        assert saver.get_tuple(config()) is None
        saver.setup()


async def test_awaited_on_the_savers_loop(empty_database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(empty_database_dsn) as saver:
        with pytest.raises(SchemaVersionError, match="setup"):
            await saver.aget_tuple(config())
        await saver.setup()
        assert await saver.aget_tuple(config()) is None


@pytest.mark.parametrize("awaited", [True, False])
async def test_in_a_notebook(empty_database_dsn: str, awaited: bool) -> None:
    """Opened by a plain `with` in a running loop: done when it returns, awaited or not."""
    with DeltaSaver.from_conn_string(empty_database_dsn) as saver:
        done = saver.setup()
        assert await is_set_up(empty_database_dsn)
        if awaited:
            await done


async def test_from_a_worker_thread(empty_database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(empty_database_dsn) as saver:
        await asyncio.to_thread(saver.setup)
        assert await saver.aget_tuple(config()) is None
