from __future__ import annotations

from collections.abc import Iterator

import pytest

from deltastore import DeltaSaver


@pytest.fixture(params=["memory", "postgresql"])
def saver(request: pytest.FixtureRequest) -> Iterator[DeltaSaver]:
    """A saver on each storage, with an anchor every third step."""
    if request.param == "memory":
        yield DeltaSaver.in_memory(snapshot_frequency=3)
    else:
        dsn = request.getfixturevalue("database_dsn")
        with DeltaSaver.from_conn_string(dsn, snapshot_frequency=3) as opened:
            yield opened


@pytest.fixture
def forget(saver: DeltaSaver) -> Iterator[object]:
    """Call it to make the saver forget all that it knows, as a new process does."""
    return saver._bridge.engine.cache._threads.clear  # type: ignore[return-value]
