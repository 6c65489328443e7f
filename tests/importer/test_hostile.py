"""Sources that nobody should have: each thread is reported with its reason, and the others are moved."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import ormsgpack
import psycopg
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Send

from deltastore.errors import DatabaseRefusedError, InvalidConfigError
from deltastore.importer import Options, Report, Status, migrate
from deltastore.importer.source import SkipThread
from deltastore.importer.verify import Verifier
from tests.importer.sources import assert_same, delta, stock

FULL = Options(verify="full")


def checkpoint(number: int, values: dict[str, Any], **more: Any) -> Any:
    return {
        "v": 4,
        "id": f"1f1ed167-7afc-6548-800{number}-6c9d1b05920a",
        "ts": "2025-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, f"{number + 1:032}.5"),
        "versions_seen": {},
        "updated_channels": sorted(values),
        **more,
    }


async def fill(saver: Any, thread_id: str, steps: int = 3) -> Any:
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    for number in range(steps):
        put = checkpoint(number, {"log": list(range(number + 1)), "facts": {"n": number}})
        config = await saver.aput(config, put, {"source": "loop", "step": number}, put["channel_versions"])
        await saver.aput_writes(config, [("log", [number])], f"task-{number}")
    return config


SQL = {
    "a blob that does not decode": """UPDATE checkpoint_blobs SET blob = '\\x92c1'
        WHERE thread_id = 'bad' AND channel = 'log'""",
    "a blob that is cut off": "UPDATE checkpoint_blobs SET blob = substring(blob for 2) WHERE thread_id = 'bad'",
    "an object that does not decode": "UPDATE checkpoint_blobs SET blob = '\\x91c70205c1c1' WHERE thread_id = 'bad'",
    "a missing blob": """DELETE FROM checkpoint_blobs
        WHERE thread_id = 'bad' AND channel = 'log' AND version LIKE '%2.5'""",
    "a blob of NULL": "UPDATE checkpoint_blobs SET blob = NULL WHERE thread_id = 'bad'",
    "an unknown type": "UPDATE checkpoint_blobs SET type = 'yaml' WHERE thread_id = 'bad'",
    "an encrypted value": "UPDATE checkpoint_blobs SET type = 'msgpack+aes' WHERE thread_id = 'bad'",
    "a write that does not decode": "UPDATE checkpoint_writes SET blob = '\\xc1' WHERE thread_id = 'bad'",
    "no versions": "UPDATE checkpoints SET checkpoint = checkpoint - 'channel_versions' WHERE thread_id = 'bad'",
    "a value without a version": """UPDATE checkpoints SET thread_id = 'bad',
        checkpoint = jsonb_set(checkpoint, '{channel_values,new}', '5') WHERE thread_id = 'bad'""",
    "a cycle of parents": """UPDATE checkpoints SET parent_checkpoint_id = (SELECT max(checkpoint_id) FROM checkpoints)
        WHERE thread_id = 'bad' AND parent_checkpoint_id IS NULL""",
    "its own parent": "UPDATE checkpoints SET parent_checkpoint_id = checkpoint_id WHERE thread_id = 'bad'",
    "a DeltaChannel of JavaScript": """UPDATE checkpoints SET metadata = metadata || '{"delta_writes_versioned": true}'
        WHERE thread_id = 'bad'""",
    "a Set of JavaScript": """UPDATE checkpoint_blobs SET type = 'json',
        blob = '[{"lc":2,"type":"constructor","id":["Set"],"method":null,"arguments":[[1]]}]'
        WHERE thread_id = 'bad'""",
    "a Send of JavaScript": """UPDATE checkpoint_writes SET type = 'json',
        blob = '{"lg_name":"Send","node":"n","args":1}' WHERE thread_id = 'bad'""",
    "a snapshot that is gone": """UPDATE checkpoints
        SET checkpoint = jsonb_set(checkpoint, '{channel_values,log}', 'true'),
        metadata = metadata || '{"counters_since_delta_snapshot": {"log": [0, 0]}}' WHERE thread_id = 'bad';
        DELETE FROM checkpoint_blobs WHERE thread_id = 'bad' AND channel = 'log'""",
    "a huge version": """UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_versions,log}',
        '99999999999999999999999999') WHERE thread_id = 'bad'""",
}


@pytest.mark.parametrize("what", SQL)
async def test_a_thread_that_cannot_be_read_is_left_out(what: str, empty_database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old:
        await old.setup()
        for thread_id in ("a", "bad", "c"):
            await fill(old, thread_id)
        with psycopg.connect(empty_database_dsn, autocommit=True) as connection:
            connection.execute(SQL[what])
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.counts == {Status.IMPORTED: 2, Status.FAILED: 1}
        assert report.exit_code == 4
        [outcome] = report.unsettled
        assert outcome.thread_id == "bad"
        assert len(outcome.reason) > 20, outcome.reason
        async with delta(empty_database_dsn) as new:
            assert await new.aget_tuple({"configurable": {"thread_id": "bad"}}) is None
            for thread_id in ("a", "c"):
                assert await assert_same(old, new, thread_id) == 3


async def test_orphaned_writes_and_missing_parents_are_moved(empty_database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new:
        await old.setup()
        await fill(old, "t", 4)
        with psycopg.connect(empty_database_dsn, autocommit=True) as connection:
            connection.execute("DELETE FROM checkpoints WHERE checkpoint_id LIKE '%-8001-%'")
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.counts == {Status.IMPORTED: 1}
        assert "1 pending writes to checkpoint '1f1ed167-7afc-6548-8001-6c9d1b05920a'" in report.noted[0].notes[0]
        assert await assert_same(old, new, "t") == 3
        again = await migrate(empty_database_dsn, empty_database_dsn, Options(since_last=True))
        assert again.counts == {Status.PRESENT: 1}


async def test_classes_that_this_process_does_not_have_are_moved_as_they_are(empty_database_dsn: str) -> None:
    """What strict loading refuses is not loaded: the bytes are moved, and decide nothing until a graph reads them."""
    stored = ormsgpack.packb(
        [ormsgpack.Ext(5, ormsgpack.packb(("no_such_module", "Model", {"x": 1}, "model_validate_json")))]
    )
    async with stock(empty_database_dsn) as old:
        await old.setup()
        await fill(old, "t")
        with psycopg.connect(empty_database_dsn, autocommit=True) as connection:
            connection.execute("UPDATE checkpoint_blobs SET blob = %s WHERE channel = 'log'", [stored])
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
    assert report.counts == {Status.IMPORTED: 1}


@pytest.mark.parametrize(
    "checkpoint_id", ["plain", "ümläut-🎉", "1F1ED167-7AFC-6548-8001-6C9D1B05920A", "~", "x" * 500]
)
async def test_ids_of_any_form(checkpoint_id: str, empty_database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new:
        await old.setup()
        config: Any = {"configurable": {"thread_id": "thread 'x' %", "checkpoint_ns": "a|b:c"}}
        put = checkpoint(1, {"log": [1], "one": 1, "none": None, "text": "\\ 'x' %s {}"}, id=checkpoint_id)
        await old.aput(config, put, {"source": "loop", "step": 1}, put["channel_versions"])
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.unsettled == []
        assert await assert_same(old, new, "thread 'x' %") == 1


async def test_nul_and_other_ids_that_postgresql_cannot_hold(tmp_path: Path, empty_database_dsn: str) -> None:
    path = tmp_path / "t.sqlite"
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    for thread_id in ("good", "with\0nul", "x" * 3000):
        put = checkpoint(1, {"log": ["with\0nul"]})
        saver.put(
            {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}},
            put,
            {"source": "loop", "step": 1},
            put["channel_versions"],
        )
    bad = checkpoint(1, {"log": [1]}, id="with\0nul")
    saver.put({"configurable": {"thread_id": "id", "checkpoint_ns": ""}}, bad, {"source": "loop", "step": 1}, {})
    connection.commit()
    connection.execute("UPDATE checkpoints SET checkpoint = x'c1' WHERE thread_id = 'broken'")
    connection.close()
    report = await migrate(f"sqlite:///{path}", empty_database_dsn, FULL)
    assert report.counts == {Status.IMPORTED: 2, Status.FAILED: 2}
    assert sorted(each.thread_id for each in report.unsettled) == ["id", "with\0nul"]
    assert all("NUL" in each.reason for each in report.unsettled)


async def test_encrypted_threads_need_the_key_and_stay_encrypted(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "0123456789abcdef")
    serde = EncryptedSerializer.from_pycryptodome_aes()
    async with stock(empty_database_dsn) as old:
        old.serde = serde
        await old.setup()
        await fill(old, "t")
        without = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert without.counts == {Status.FAILED: 1}
        assert "encrypted" in without.unsettled[0].reason
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL, serde=serde)
        assert report.unsettled == []
        async with delta(empty_database_dsn) as new:
            new.serde = serde
            assert await assert_same(old, new, "t") == 3


async def test_a_saver_that_fails_on_one_thread(empty_database_dsn: str) -> None:
    class Failing(InMemorySaver):
        async def aget_tuple(self, config: Any) -> Any:
            if config["configurable"]["thread_id"] == "bad":
                raise OSError("the disk is gone")
            return await super().aget_tuple(config)

    saver = Failing()
    for thread_id in ("a", "bad", "c"):
        await fill(saver, thread_id)
    report = await migrate(saver, empty_database_dsn, FULL)
    assert report.counts == {Status.IMPORTED: 2, Status.FAILED: 1}
    assert "the disk is gone" in report.unsettled[0].reason


async def test_json_values_of_javascript_are_read_as_langgraphs_saver_reads_them(empty_database_dsn: str) -> None:
    message = (
        '{"lc":1,"type":"constructor","id":["langchain_core","messages","HumanMessage"],'
        '"kwargs":{"content":"hi","id":"h1","additional_kwargs":{},"response_metadata":{}}}'
    )
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new:
        await old.setup()
        await fill(old, "t")
        with psycopg.connect(empty_database_dsn, autocommit=True) as connection:
            update = "UPDATE checkpoint_blobs SET type = 'json', blob = convert_to(%s, 'UTF8') WHERE channel = 'log'"
            connection.execute(update, [f'[{message} , 1, "x" ,null,[2]]'])
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.unsettled == []
        assert await assert_same(old, new, "t") == 3
        found: Any = await new.aget_tuple({"configurable": {"thread_id": "t"}})
        assert found.checkpoint["channel_values"]["log"][0].content == "hi"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("nonsense", InvalidConfigError),
        ("mysql://x/y", InvalidConfigError),
        ("no_such_module:make", InvalidConfigError),
        ("os:getcwd", InvalidConfigError),
        ("sqlite:////no/such/file", InvalidConfigError),
    ],
)
async def test_sources_that_are_none(source: str, error: type[Exception], empty_database_dsn: str) -> None:
    with pytest.raises(error):
        await migrate(source, empty_database_dsn)


async def test_a_database_without_the_tables(empty_database_dsn: str) -> None:
    with pytest.raises(InvalidConfigError, match="no tables of LangGraph's saver"):
        await migrate(empty_database_dsn, empty_database_dsn)
    with pytest.raises(DatabaseRefusedError):
        await migrate(
            f"{empty_database_dsn.partition('?')[0]}x?{empty_database_dsn.partition('?')[2]}", empty_database_dsn
        )


def reported(report: Report) -> list[str]:
    return [each.reason for each in report.unsettled]


async def test_queued_sends_of_json_and_msgpack(empty_database_dsn: str) -> None:
    """A checkpoint of an old format gets the sends of its parent as a channel."""
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new:
        await old.setup()
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        first = checkpoint(1, {"log": [1]}, v=2, pending_sends=[])
        config = await old.aput(config, first, {"source": "loop", "step": 1}, first["channel_versions"])
        await old.aput_writes(config, [("__pregel_tasks", Send("work", {"n": 1}))], "task-b", "~2")
        await old.aput_writes(config, [("__pregel_tasks", Send("work", {"n": 2}))], "task-a", "~1")
        second = checkpoint(2, {"log": [1, 2]}, v=2, pending_sends=[])
        await old.aput(config, second, {"source": "loop", "step": 2}, second["channel_versions"])
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert reported(report) == []
        assert await assert_same(old, new, "t") == 2
        found: Any = await new.aget_tuple({"configurable": {"thread_id": "t"}})
        assert [send.arg["n"] for send in found.checkpoint["channel_values"]["__pregel_tasks"]] == [2, 1]


async def test_a_thread_that_postgresql_itself_cannot_read(empty_database_dsn: str) -> None:
    async with stock(empty_database_dsn) as old:
        await old.setup()
        for thread_id in ("a", "bad", "c"):
            await fill(old, thread_id)
    with psycopg.connect(empty_database_dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE checkpoint_blobs RENAME TO stored")
        connection.execute(
            "CREATE VIEW checkpoint_blobs AS SELECT thread_id, checkpoint_ns, channel, version, type,"
            " CASE WHEN thread_id = 'bad' THEN substring(blob for -length(channel)) ELSE blob END AS blob FROM stored"
        )
    report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
    assert report.counts == {Status.IMPORTED: 2, Status.FAILED: 1}
    assert "negative substring length" in report.unsettled[0].reason


async def test_a_copy_that_differs_is_removed_but_never_one_that_went_on(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stock(empty_database_dsn) as old, delta(empty_database_dsn) as new:
        await old.setup()
        config = await fill(old, "t")

        async def differ(*_: Any, **__: Any) -> None:
            raise SkipThread("something differs")

        monkeypatch.setattr(Verifier, "verify", differ)
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.counts == {Status.FAILED: 1}
        assert await new.aget_tuple(config) is None

        async def go_on(*_: Any, **__: Any) -> None:
            await new.aput_writes(config, [("log", ["new"])], "new task")
            raise SkipThread("something differs")

        monkeypatch.setattr(Verifier, "verify", go_on)
        report = await migrate(empty_database_dsn, empty_database_dsn, FULL)
        assert report.counts == {Status.FAILED: 1}
        assert await new.aget_tuple(config) is not None
