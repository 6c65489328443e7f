"""What an observer is told, and that nobody is told anything without one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from deltastore import DeltaSaver, StoredDataError, ThreadDeletedError
from deltastore.archive import archive_threads
from deltastore.observing import METRICS, Subject, extra
from tests.faults.stories import Story, assert_reads_as, config_of
from tests.faults.test_lines import kill_backends


@dataclass
class Notes:
    """An observer that notes everything."""

    spans: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    measures: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @contextmanager
    def span(self, name: str, attributes: Any) -> Iterator[None]:
        self.spans.append((name, dict(attributes)))
        try:
            yield
        except Exception as error:
            self.errors.append(f"{name}: {type(error).__name__}")
            raise

    def count(self, name: str, amount: int, attributes: Any) -> None:
        assert METRICS[name].kind == "count"
        self.counts[name, " ".join(map(str, attributes.values()))] += amount

    def measure(self, name: str, value: float, attributes: Any) -> None:
        assert METRICS[name].kind == "measure"
        assert value >= 0
        self.measures.setdefault(name, []).append(value)

    def names(self) -> list[str]:
        names = [name.removeprefix("deltastore.") for name, _ in self.spans]
        self.spans.clear()
        return names


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture(params=["memory", "postgres"])
async def saver(request: pytest.FixtureRequest, notes: Notes) -> AsyncIterator[DeltaSaver]:
    if request.param == "memory":
        yield DeltaSaver.in_memory(snapshot_frequency=4, observer=notes)
        return
    dsn = request.getfixturevalue("database_dsn")
    async with DeltaSaver.from_conn_string(dsn, snapshot_frequency=4, observer=notes) as saver:
        yield saver


async def test_every_call_and_what_the_storage_does_for_it(saver: DeltaSaver, notes: Notes) -> None:
    told = Story(saver, words_max=2000)
    await told.grow(1)
    assert notes.names() == ["put", "storage.save"]
    await told.grow(1)
    assert notes.names() == ["put_writes", "storage.save_writes", "put", "storage.save"]
    await assert_reads_as(saver, told.steps[-1])
    assert notes.names() == ["get_tuple", "storage.load_chains", "history"]
    [*_] = [each async for each in saver.alist(config_of("story"))]
    assert notes.names() == ["storage.list_checkpoints", "storage.load_chains"]
    await saver.aprune(["story"])
    assert notes.names() == ["prune", "storage.edit"]
    await saver.adelete_thread("story")
    assert notes.names() == ["delete_thread", "storage.delete_thread"]


async def test_spans_name_their_subject(saver: DeltaSaver, notes: Notes) -> None:
    told = Story(saver)
    step = await told.grow(2)
    calls = [attributes for name, attributes in notes.spans if name == "deltastore.put"]
    assert calls[-1] == {
        "deltastore.thread_id": "story",
        "deltastore.checkpoint_ns": "",
        "deltastore.checkpoint_id": step.id,
    }
    notes.spans.clear()
    await saver.aget_tuple({"configurable": {"thread_id": "story"}})
    assert notes.spans[0] == ("deltastore.get_tuple", {"deltastore.thread_id": "story"})
    await saver.adelete_thread("story")
    assert notes.spans[-2] == ("deltastore.delete_thread", {"deltastore.thread_id": "story"})


async def test_chains_bytes_and_the_cache(saver: DeltaSaver, notes: Notes) -> None:
    told = Story(saver, words_max=2000)
    await told.grow(7)
    written = {key: amount for key, amount in notes.counts.items() if key[0] == "deltastore.storage.written"}
    assert set(written) == {("deltastore.storage.written", name) for name in ("save", "save_writes")}
    assert min(written.values()) > 500
    notes.measures.clear()
    await assert_reads_as(saver, told.steps[-1])
    assert notes.measures["deltastore.chain.length"] == [3]
    assert notes.measures["deltastore.chain.rows_read"] == [1]
    assert {name: amount for (name, _), amount in notes.counts.items() if "cache" in name} == {
        "deltastore.cache.hits": 1
    }
    await saver.acall(_forget)
    notes.measures.clear()
    await assert_reads_as(saver, told.steps[-1])
    assert notes.measures["deltastore.chain.length"] == [3]
    assert notes.measures["deltastore.chain.rows_read"] == [3]
    assert notes.counts["deltastore.cache.misses", ""] == 1
    assert notes.counts["deltastore.storage.read", "load_chains"] > 100


async def _forget(engine: Any, *_: Any) -> None:
    engine.cache.forget(next(iter(engine.cache._threads)))


async def test_refusals_and_removed_rows(saver: DeltaSaver, notes: Notes) -> None:
    told = Story(saver)
    step = await told.grow(6)
    await saver.aput_writes(step.config, [("words", ["x"])], "late")
    assert not [key for key in notes.counts if "refusals" in key[0]]
    again = {**step.checkpoint, "channel_values": {**step.checkpoint["channel_values"], "text": "other"}}
    await saver.aput(step.parent.config, again, {"source": "loop", "step": 5}, {"text": 9})  # type: ignore[union-attr,arg-type]
    assert notes.counts["deltastore.save.refusals", "save exists"] == 1
    await saver.aprune(["story"])
    assert notes.counts["deltastore.sweep.removed", "checkpoints"] == 5


async def test_whole_threads_that_are_removed(saver: DeltaSaver, notes: Notes, tmp_path: Path) -> None:
    await Story(saver).grow(2)
    await archive_threads(saver, ["story"], tmp_path.as_uri())
    assert notes.counts["deltastore.sweep.removed", "threads"] == 1


async def test_errors_end_spans_and_are_named(database_dsn: str, notes: Notes) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, observer=notes) as saver:
        step = await Story(saver).grow(2)
        connection = await asyncpg.connect(database_dsn)
        await connection.execute("UPDATE deltastore.delta_checkpoints SET payload = substr(payload, 1, 8)")
        await connection.close()
        await saver.acall(_forget)
        with pytest.raises(StoredDataError):
            await saver.aget_tuple(step.config)
    assert "deltastore.get_tuple: CorruptPayloadError" in notes.errors


async def test_retries_and_waits_for_connections(
    database_dsn: str, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, observer=notes, max_size=2) as saver:
        told = Story(saver)
        step = await told.grow(2)
        waits = len(notes.measures["deltastore.pool.wait"])
        assert waits >= 3
        assert kill_backends(database_dsn) >= 1
        with caplog.at_level(logging.WARNING, "deltastore"):
            await saver.aget_tuple(step.config)
        assert sum(amount for (name, _), amount in notes.counts.items() if name == "deltastore.retries") >= 1
        assert len(notes.measures["deltastore.pool.wait"]) > waits + 1
    [record] = caplog.records
    assert "load_chains succeeded at attempt 2" in record.getMessage()
    assert (record.thread_id, record.checkpoint_ns, record.checkpoint_id) == ("story", "", step.id)  # type: ignore[attr-defined]


async def test_removals_and_refusals_are_logged(database_dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=4) as saver:
        told = Story(saver)
        step = await told.grow(6)
        caplog.set_level(logging.DEBUG, "deltastore")
        await saver.aprune(["story"])
        await saver.aput(
            told.steps[-2].config,
            step.checkpoint,
            {"source": "loop", "step": 5},
            step.checkpoint["channel_versions"],
        )
        await saver.adelete_thread("story")
        with pytest.raises(ThreadDeletedError):
            await saver.aput_writes(step.config, [("words", ["late"])], "late")
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines[0][0] == "INFO"
    assert lines[0][1].startswith("removed 5 checkpoints, ")
    assert ("DEBUG", "save refused: exists") in lines
    assert ("INFO", "save_writes refused: deleted") in lines
    assert {record.thread_id for record in caplog.records} == {"story"}  # type: ignore[attr-defined]
    assert caplog.records[-1].checkpoint_id == step.id  # type: ignore[attr-defined]


async def test_without_an_observer_there_is_no_layer(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        name = await saver.acall(_name_of_storage)
    assert name == "PostgresStorage"
    assert await DeltaSaver.in_memory().acall(_name_of_storage) == "MemoryStorage"


async def _name_of_storage(engine: Any, *_: Any) -> str:
    return type(engine.storage).__name__


def test_subjects_of_what_callers_give() -> None:
    assert Subject.of({"configurable": {"thread_id": 7}}) == Subject("7")
    assert Subject.of({"configurable": None}) == Subject.of({}) == Subject.of(None) == Subject.of(["a"]) == Subject()
    assert Subject.of("thread") == Subject("thread")
    assert extra(attempt=2) == {"thread_id": None, "checkpoint_ns": None, "checkpoint_id": None, "attempt": 2}
