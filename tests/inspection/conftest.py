"""A saver on a real server, and checkpoints put through it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deltastore import DeltaSaver
from tests.support.puts import Puts


@pytest.fixture
def saver(database_dsn: str) -> Iterator[DeltaSaver]:
    with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
        yield saver


@pytest.fixture
def puts(saver: DeltaSaver) -> Puts:
    return Puts(saver)
