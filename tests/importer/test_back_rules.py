"""The way back: what the tables cannot hold is refused, and what is there is never lost."""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
import pytest
from click.testing import CliRunner
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.cli.migrate import migrate as command
from deltastore.connect import DeltaSaver
from deltastore.errors import InvalidConfigError
from deltastore.importer import Options, Report, Status
from deltastore.importer.source import SkipThread
from deltastore.importer.stock import _Back, move_back
from deltastore.importer.stock_rows import StockRows
from deltastore.importer.verify import Verifier
from tests.importer.sources import delta, stock

AGAIN = Options(verify="full", since_last=True)


def checkpoint(number: int, values: dict[str, Any], **versions: Any) -> Any:
    return {
        "v": 4,
        "id": f"1f1ed167-7afc-6548-8001-{number:012}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": {**dict.fromkeys(values, number + 1), **versions},
        "versions_seen": {},
    }


async def put(saver: Any, config: Any, put: Any, **metadata: Any) -> Any:
    return await saver.aput(config, put, {"source": "loop", "step": 1, **metadata}, put["channel_versions"])


async def thread(saver: DeltaSaver, thread_id: str = "t", steps: int = 2) -> Any:
    """A thread with a DeltaChannel and pending writes; the config of its head."""
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    for number in range(steps):
        values: dict[str, Any] = {"log": [number]} | ({} if number else {"delta": _DeltaSnapshot(["first"])})
        counters = {"delta": [number, number]} if number else {}
        config = await put(
            saver,
            config,
            checkpoint(number, values, delta=number + 1),
            **({"counters_since_delta_snapshot": counters} if counters else {}),
        )
        await saver.aput_writes(config, [("delta", [f"write {number}"])], f"task {number}")
    return config


async def back(dsn: str, options: Options | None = None, **more: Any) -> Report:
    return await move_back(dsn, f"stock-{dsn}", options or Options(verify="full"), **more)


async def rows(dsn: str) -> list[Any]:
    """All rows of the tables."""
    connection = await asyncpg.connect(dsn)
    try:
        return [
            sorted(map(tuple, await connection.fetch(f"SELECT * FROM {table}")), key=repr)
            for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
        ]
    finally:
        await connection.close()


@pytest.mark.parametrize("is_checked", [True, False], ids=["refused", "compared"])
async def test_a_delta_channel_without_its_past_is_refused(
    is_checked: bool, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with delta(database_dsn) as new:
        await thread(new, steps=3)
        assert (await back(database_dsn)).counts == {Status.IMPORTED: 1}
        await new.adelete_thread("t")
        await thread(new, "pruned", steps=3)
        await new.aprune(["pruned"], strategy="keep_latest")
        history = await new.aget_delta_channel_history(
            config={"configurable": {"thread_id": "pruned", "checkpoint_ns": ""}}, channels=["delta"]
        )
        assert len(history["delta"]["writes"]) == 2
        if not is_checked:
            monkeypatch.setattr(StockRows, "_refuse_lost_history", lambda *_: None)
        before = await rows(database_dsn)
        report = await back(database_dsn)
        assert report.counts == {Status.FAILED: 1}
        expected = "checkpoints that were removed" if is_checked else "the history of the DeltaChannel 'delta'"
        assert expected in report.unsettled[0].reason
        assert await rows(database_dsn) == before


async def test_pending_writes_of_the_same_head_are_seen_and_taken_back(database_dsn: str) -> None:
    async with delta(database_dsn) as new, stock(database_dsn) as old:
        config = await thread(new)
        await back(database_dsn)
        await new.aput_writes(config, [("log", ["late"])], "late task")
        report = await back(database_dsn)
        assert report.counts == {Status.DIVERGED: 1}
        assert "lack 1 of its pending writes" in report.unsettled[0].reason
        assert (await back(database_dsn, AGAIN)).counts == {Status.CAUGHT_UP: 1}
        assert (await back(database_dsn)).counts == {Status.PRESENT: 1}
        found: Any = await old.aget_tuple(config)
        assert ("late task", "log", ["late"]) in found.pending_writes
        await old.aput_writes(config, [("log", ["there"])], "their task")
        await new.aput_writes(config, [("log", ["later"])], "later task")
        before = await rows(database_dsn)
        report = await back(database_dsn, AGAIN)
        assert report.counts == {Status.DIVERGED: 1}
        assert "and have 1 others of the pending writes" in report.unsettled[0].reason
        assert await rows(database_dsn) == before


async def test_special_writes_that_were_written_again(database_dsn: str) -> None:
    async with delta(database_dsn) as new, stock(database_dsn) as old:
        config = await thread(new)
        await new.aput_writes(config, [("__resume__", {"approve": True})], "task")
        await back(database_dsn)
        await new.aput_writes(config, [("__resume__", {"reject": True})], "task")
        assert (await back(database_dsn)).counts == {Status.DIVERGED: 1}
        assert (await back(database_dsn, AGAIN)).counts == {Status.CAUGHT_UP: 1}
        found: Any = await old.aget_tuple(config)
        assert ("task", "__resume__", {"reject": True}) in found.pending_writes
        await old.aput_writes(config, [("__resume__", {"their": True})], "task")
        report = await back(database_dsn, AGAIN)
        assert report.counts == {Status.DIVERGED: 1}
        assert "never here" in report.unsettled[0].reason
        found = await old.aget_tuple(config)
        assert ("task", "__resume__", {"their": True}) in found.pending_writes


@pytest.mark.parametrize("what", ["it differs", "it fails", "it changes here", "it is written to there"])
async def test_a_copy_that_is_not_proved_is_rolled_back(
    what: str, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with delta(database_dsn) as new:
        config = await thread(new)
        await thread(new, "other")
        await back(database_dsn, Options(thread_ids=["t"]))
        await new.aput_writes(config, [("log", ["late"])], "late task")
        before, verify = await rows(database_dsn), Verifier.verify

        async def instead(*given: Any, **more: Any) -> None:
            if what == "it differs":
                raise SkipThread("something differs")
            if what == "it fails":
                raise TypeError("something fails")
            if what == "it changes here":
                for name in ("t", "other"):
                    place: Any = {"configurable": {**config["configurable"], "thread_id": name}}
                    await new.aput_writes(place, [("log", ["new"])], f"new task {id(given[2])}")
            if what == "it is written to there" and given[1].thread_id == "t":
                async with await psycopg.AsyncConnection.connect(database_dsn, autocommit=True) as other:
                    await other.execute("SET lock_timeout = 1")
                    await other.execute("DELETE FROM checkpoint_writes")
            await verify(*given, **more)

        monkeypatch.setattr(Verifier, "verify", instead)
        report = await back(database_dsn, AGAIN)
        assert report.counts == (
            {Status.FAILED: 1, Status.IMPORTED: 1} if what == "it is written to there" else {Status.FAILED: 2}
        )
        if what != "it is written to there":
            assert await rows(database_dsn) == before
        else:
            assert "lock timeout" in report.unsettled[0].reason
        monkeypatch.undo()
        assert (await back(database_dsn, AGAIN)).unsettled == []


async def test_what_comes_between_the_look_and_the_writing_stays(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with delta(database_dsn) as new, stock(database_dsn) as old:
        await old.setup()
        await thread(new)
        theirs: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        write = _Back._write

        async def late(*given: Any) -> Any:
            await old.aput(theirs, checkpoint(9, {"log": [9]}), {"source": "loop", "step": 1}, {"log": "9"})
            return await write(*given)

        monkeypatch.setattr(_Back, "_write", late)
        report = await back(database_dsn, AGAIN)
        assert report.counts == {Status.FAILED: 1}
        assert "have 1 others" in report.unsettled[0].reason
        assert len((await rows(database_dsn))[0]) == 1


async def test_metadata_with_nul_and_with_what_looks_like_it(database_dsn: str) -> None:
    async with delta(database_dsn) as new, stock(database_dsn) as old:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        config = await put(new, config, checkpoint(0, {"log": [1]}), note="a\\u0000b", nested={"of": ["c\0d"]})
        report = await back(database_dsn)
        assert report.unsettled == []
        found: Any = await old.aget_tuple(config)
        assert found.metadata["note"] == "a\\u0000b"
        assert found.metadata["nested"] == {"of": ["cd"]}


async def test_numbers_that_json_does_not_keep(database_dsn: str) -> None:
    values = {"large": 1e16, "huge": -1e300, "zero": -0.0, "below": 9999999999999998.0, "small": 5e-324, "one": 1.0}
    async with delta(database_dsn) as new, stock(database_dsn) as old:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        config = await put(new, config, checkpoint(0, {**values, "whole": 10**16}))
        report = await back(database_dsn)
        assert report.unsettled == []
        found: Any = await old.aget_tuple(config)
        loaded = found.checkpoint["channel_values"]
        assert {name: loaded[name].hex() for name in values} == {name: value.hex() for name, value in values.items()}
        assert type(loaded["whole"]) is int


@pytest.mark.parametrize("other", [{"log": [2]}, {}], ids=["two values", "a value and none"])
async def test_two_values_with_one_version_are_refused(other: dict[str, Any], database_dsn: str) -> None:
    async with delta(database_dsn) as new:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        await put(new, config, checkpoint(0, {"log": [1]}, log=7))
        await put(new, config, checkpoint(1, other, log=7))
        report = await back(database_dsn, Options(verify="none"))
        assert report.counts == {Status.FAILED: 1}
        assert "LangGraph's tables keep one" in report.unsettled[0].reason
        assert await rows(database_dsn) == [[], [], []]


async def test_one_bad_thread_does_not_end_the_run(database_dsn: str) -> None:
    async with delta(database_dsn) as new:
        for thread_id in ("a", "b", "c"):
            await thread(new, thread_id)
        with psycopg.connect(database_dsn, autocommit=True) as connection:
            connection.execute(
                """UPDATE deltastore.delta_checkpoints SET payload = 'x' WHERE thread_key =
                (SELECT thread_key FROM deltastore.delta_threads WHERE thread_id = 'b')"""
            )
        options = Options(verify="full", thread_ids=["a", "b", "typo", "", "c"])
        report = await back(database_dsn, options)
        assert report.counts == {Status.IMPORTED: 2, Status.FAILED: 3}
        reasons = {each.thread_id: each.reason for each in report.unsettled}
        assert reasons["typo"] == "deltastore has no checkpoint of this thread"


async def test_pending_writes_without_a_checkpoint_are_taken_over(database_dsn: str) -> None:
    async with delta(database_dsn) as new:
        config = await thread(new)
        nowhere: Any = {"configurable": {**config["configurable"], "checkpoint_id": "nowhere"}}
        await new.aput_writes(nowhere, [("log", ["x" * 3000])], "task")
        report = await back(database_dsn)
        assert report.counts == {Status.IMPORTED: 1}
        assert "1 pending writes to checkpoint 'nowhere'" in report.noted[0].notes[0]
        assert (await back(database_dsn, AGAIN)).counts == {Status.PRESENT: 1}
        assert len((await rows(database_dsn))[2]) == 3


@pytest.mark.parametrize("options", [Options(newer_than="2026"), Options(latest_only=True)])
async def test_options_that_are_not_done_are_refused(options: Options, database_dsn: str) -> None:
    with pytest.raises(InvalidConfigError, match="not possible on the way back"):
        await back(database_dsn, options)


@pytest.mark.parametrize("option", ["--workers", "--snapshot-frequency", "--parts-from"])
def test_options_of_the_command_that_say_nothing_are_refused(option: str) -> None:
    arguments = ["--from", "postgresql://nowhere", "--to", "stock-postgresql://nowhere", option, "3"]
    result = CliRunner().invoke(command, arguments)
    assert isinstance(result.exception, InvalidConfigError)
    assert f"{option} says nothing" in str(result.exception)


async def test_encrypted_threads_in_a_schema_of_their_own(database_dsn: str) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "Old tables"')
    async with DeltaSaver.from_conn_string(database_dsn, serde=serde) as new:
        config = await thread(new, steps=4)
        await new.aput_writes(config, [("__resume__", {"a": 1})], "task")
        place: dict[str, Any] = {"target_schema": "Old tables", "serde": serde}
        assert (await back(database_dsn, **place)).counts == {Status.IMPORTED: 1}
        assert (await back(database_dsn, AGAIN, **place)).counts == {Status.PRESENT: 1}
        await new.aput_writes(config, [("__resume__", {"b": 1})], "task")
        assert (await back(database_dsn, dry_run=True, **place)).counts == {Status.DIVERGED: 1}
        assert (await back(database_dsn, AGAIN, **place)).counts == {Status.CAUGHT_UP: 1}
