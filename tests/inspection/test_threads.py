"""The list of threads."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from langgraph.checkpoint.base.id import uuid6

from deltastore import DeltaSaver
from deltastore.errors import InvalidConfigError
from deltastore.inspection import NamespaceSummary, ThreadSummary, find_thread, namespaces, threads
from deltastore.inspection.moments import moment_of
from tests.inspection.many import checkpoint_id, fill
from tests.support.puts import Puts, uuid_of


def listed(saver: DeltaSaver, **options: Any) -> list[ThreadSummary]:
    async def collect() -> list[ThreadSummary]:
        return [each async for each in threads(saver, **options)]

    return asyncio.run(collect())


def test_newest_first_with_step_source_and_metadata(saver: DeltaSaver) -> None:
    for number in (3, 1, 2):
        puts = Puts(saver, f"t{number}")
        first = puts.put(None, {"log": []}, checkpoint_id=uuid_of(number * 10), metadata={"user": "u", "first": number})
        newest = {"source": "update", "step": number, "user": "u"}
        puts.put(first, {"log": [1]}, checkpoint_id=uuid_of(number * 10 + 1), metadata=newest)
    found = listed(saver)
    assert [each.thread_id for each in found] == ["t3", "t2", "t1"]
    assert (found[0].checkpoint_id, found[0].step, found[0].source) == (uuid_of(31), 3, "update")
    assert found[0].metadata == {"user": "u", "parents": {}}
    assert found[0].saved_at is None
    assert datetime.now(UTC) - found[0].created_at < timedelta(seconds=60)
    saver.pin("t2")
    assert [each.pinned for each in listed(saver)] == [False, True, False]
    assert [each.thread_id for each in listed(saver, filter={"user": "u"}, limit=2)] == ["t3", "t2"]
    assert [each.thread_id for each in listed(saver, filter={"first": 2})] == ["t2"]
    assert [each.thread_id for each in listed(saver, after=found[0].cursor)] == ["t2", "t1"]
    assert listed(saver, filter={"user": "nobody"}) == listed(saver, limit=0) == []


def test_the_time_in_an_id(saver: DeltaSaver) -> None:
    before = datetime.now(UTC)
    Puts(saver).put(None, {}, checkpoint_id=str(uuid6()))
    [found] = listed(saver)
    assert found.saved_at is not None
    assert abs(found.saved_at - before) < timedelta(seconds=60)
    assert moment_of("1ec9414c-232a-6b00-b3c8-9f6bdeced846") == datetime(
        2022, 2, 22, 19, 22, 22, tzinfo=UTC
    )  # RFC 9562
    assert moment_of("c232ab00-9414-11ec-b3c8-9f6bdeced846") == datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)
    assert moment_of("017f22e2-79b0-7cc3-98c4-dc0c0c07398f") == datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)
    assert moment_of("ffffffff-ffff-7fff-8fff-ffffffffffff") is None
    assert moment_of(uuid_of(1)) is moment_of("step 1") is None


def test_a_thread_of_writes_only(saver: DeltaSaver) -> None:
    Puts(saver).write(uuid_of(1), [("log", 1)])
    [found] = listed(saver)
    assert (found.thread_id, found.checkpoint_id, found.step, found.metadata) == ("t", None, None, {})


@pytest.mark.parametrize(
    "options",
    [{"filter": {"step": 1}}, {"filter": {"source": "loop"}}, {"after": "x"}, {"after": "1.x"}, {"limit": -1}],
)
def test_wrong_arguments_are_refused_before_any_statement(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError):
        listed(DeltaSaver.from_conn_string("postgresql://localhost:1/x"), **options)


def test_namespaces(saver: DeltaSaver) -> None:
    for namespace in ("", "child:2", "child:1"):
        puts = Puts(saver, namespace=namespace)
        puts.put(puts.put(None, {}, checkpoint_id=uuid_of(1)), {}, checkpoint_id=uuid_of(2))

    async def collect(**options: Any) -> list[NamespaceSummary]:
        return [each async for each in namespaces(saver, "t", **options)]

    assert [(each.namespace, each.checkpoint_id) for each in asyncio.run(collect())] == [
        ("", uuid_of(2)),
        ("child:1", uuid_of(2)),
        ("child:2", uuid_of(2)),
    ]
    assert len(asyncio.run(collect(limit=2))) == 2


def test_a_thread_that_is_not_there(saver: DeltaSaver) -> None:
    with pytest.raises(InvalidConfigError, match="there is no thread 'x'"):
        asyncio.run(find_thread(saver, "x"))


@pytest.mark.slow
async def test_very_many_threads(database_dsn: str, record_property: Any) -> None:
    """One page of a hundred thousand threads: no state, two descents for each thread at most, well under a second."""
    connection = await asyncpg.connect(database_dsn)
    await fill(connection, 100_000, older=4)
    await connection.execute("VACUUM")
    await connection.close()
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        options: dict[str, dict[str, Any]] = {
            "newest": {},
            "tenant": {"filter": {"tenant": "tenant 3"}},
            "user": {"filter": {"user": "user 3"}},
        }
        seconds = {}
        for name, more in options.items():
            await anext(threads(saver, **more))
            started = time.perf_counter()
            found = [each async for each in threads(saver, limit=50, **more)]
            seconds[name] = time.perf_counter() - started
            assert len(found) == 50
            record_property(name, seconds[name])
            if name == "newest":
                assert [each.thread_id for each in found] == [f"thread {99_999 - number}" for number in range(50)]
                assert found[0].checkpoint_id == checkpoint_id(99_999)
                assert found[0].metadata == {"user": "user 999", "tenant": "tenant 9"}
        print({name: f"{each * 1000:.0f} ms" for name, each in seconds.items()})
        assert max(seconds.values()) < 1
