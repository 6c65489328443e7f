from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from deltastore import DeltaSaver
from tests.support.servers import database

TABLES = (
    "delta_threads",
    "delta_checkpoints",
    "delta_segments",
    "delta_metadata",
    "delta_quarantine",
    "delta_staging",
    "delta_tombstones",
)
EMPTY_ALL = "TRUNCATE " + ", ".join(f"deltastore.{table}" for table in TABLES)


@pytest.fixture(scope="module")
def module_dsn(server_dsn: str, _template: str) -> Iterator[str]:
    """A database for all tests of a module, which leave nothing in it: cheaper than one for each."""
    with database(server_dsn, _template) as dsn:
        yield dsn


@pytest.fixture(params=["memory", "postgresql"])
def saver(request: pytest.FixtureRequest) -> Iterator[DeltaSaver]:
    """A saver on each storage, with an anchor every third step."""
    if request.param == "memory":
        yield DeltaSaver.in_memory(snapshot_frequency=3)
        return
    dsn = request.getfixturevalue("module_dsn")
    with DeltaSaver.from_conn_string(dsn, snapshot_frequency=3) as opened:
        yield opened
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(EMPTY_ALL.encode())


@pytest.fixture
def forget(saver: DeltaSaver) -> Callable[[], None]:
    """Call it to make the saver forget all that it knows, as a new process does."""

    def clear() -> None:
        saver._bridge.engine.cache._threads.clear()
        saver._memos._memos.clear()

    return clear
