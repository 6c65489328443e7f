"""The way in: what went on in the target is never overwritten, and an unproved copy does not stay."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from deltastore.conversion.convert import codec_of
from deltastore.errors import DatabaseUnavailableError, InvalidConfigError
from deltastore.importer import Options, PartLimits, Report, Status, migrate
from deltastore.importer.reading import Reading
from deltastore.importer.report import Outcome, summary
from deltastore.importer.tables import TablesSource
from deltastore.importer.verify import Verifier
from deltastore.reading import Reader
from tests.importer.sources import assert_same, delta, stock
from tests.importer.test_parts import StoppedError, stopping
from tests.importer.trees import Tree

AGAIN = Options(verify="full", since_last=True)


async def test_special_writes_are_compared_with_their_keys(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        tree = Tree(old, "t", 1)
        await tree.grow(4)
        config = tree.heads[next(iter(tree.heads))]
        await old.aput_writes(config, [("__resume__", {"approve": True})], "task")
        assert (await migrate(dsn, dsn, AGAIN)).counts == {Status.IMPORTED: 1}
        await old.aput_writes(config, [("__resume__", {"reject": True})], "task")
        assert (await migrate(dsn, dsn, AGAIN)).counts == {Status.CAUGHT_UP: 1}
        assert await assert_same(old, new, "t") == 4


async def test_parts_whose_special_write_got_another_key_are_made_anew(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    limits = PartLimits(from_bytes=0, part_checkpoints=1)
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        tree = Tree(old, "t", 1)
        await tree.grow(3)
        for config in tree.heads.values():
            await old.aput_writes(config, [("__resume__", {"approve": True})], "task")
        options = Options(verify="full", limits=limits)
        stopped = await migrate(dsn, dsn, options, advance=stopping(2))
        assert StoppedError.__name__ in stopped.unsettled[0].reason
        for config in tree.heads.values():
            await old.aput_writes(config, [("__resume__", {"reject": True})], "task")
        report = await migrate(dsn, dsn, options)
        assert report.counts == {Status.IMPORTED: 1}
        assert "made anew" in report.noted[0].notes[0]
        assert await assert_same(old, new, "t") == 3


async def test_a_special_write_that_was_written_again_in_the_target_stays(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        tree = Tree(old, "t", 1)
        await tree.grow(4)
        config = tree.heads[next(iter(tree.heads))]
        await old.aput_writes(config, [("__resume__", ["old"])], "task")
        await migrate(dsn, dsn, AGAIN)
        await new.aput_writes(config, [("__resume__", ["new"])], "task")
        await tree.grow(2)
        report = await migrate(dsn, dsn, AGAIN)
        assert report.counts == {Status.DIVERGED: 1}
        assert "was written again in the target" in report.unsettled[0].reason
        found: Any = await new.aget_tuple(config)
        assert ("task", "__resume__", ["new"]) in found.pending_writes


@pytest.mark.parametrize("error", [TypeError("unknown"), DatabaseUnavailableError("gone")])
async def test_a_comparison_that_fails_leaves_no_copy(
    error: Exception, empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = empty_database_dsn

    async def fail(*_: Any, **__: Any) -> None:
        raise error

    async with stock(dsn) as old, delta(dsn) as new:
        await old.setup()
        await Tree(old, "t", 1).grow(4)
        monkeypatch.setattr(Verifier, "verify", fail)
        if isinstance(error, DatabaseUnavailableError):
            with pytest.raises(DatabaseUnavailableError):
                await migrate(dsn, dsn, AGAIN)
        else:
            report = await migrate(dsn, dsn, AGAIN)
            assert "the target's copy was removed: TypeError: unknown" in report.unsettled[0].reason
        assert [each async for each in new.alist(None)] == []
        monkeypatch.undo()
        assert (await migrate(dsn, dsn, AGAIN)).counts == {Status.IMPORTED: 1}


async def test_a_copy_that_cannot_be_read_is_named(empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dsn, verify = empty_database_dsn, Verifier.verify

    async def damage(*given: Any, **more: Any) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("UPDATE deltastore.delta_segments SET payload = 'x'")
        await verify(*given, **more)

    async with stock(dsn) as old:
        await old.setup()
        await Tree(old, "t", 1).grow(4)
        monkeypatch.setattr(Verifier, "verify", damage)
        report = await migrate(dsn, dsn, AGAIN)
    assert report.counts == {Status.FAILED: 1}
    assert "delete it in the target" in report.unsettled[0].reason


def test_keys_of_many_kinds_are_compared() -> None:
    verifier = Verifier(None, None, None)  # type: ignore[arg-type]
    left = {1: "one", "a": {2: 3, None: 4}, 1.5: 5}
    assert verifier._differing_key(left, dict(reversed(left.items()))) is None
    assert verifier._differing_key({1: "one", "a": 2}, {True: "one", "a": 2}) is not None
    assert verifier._differing_key({"a": {1: 2}}, {"a": {1.0: 2}}) == "'a'"


async def test_a_thread_whose_delta_history_differs_is_not_proved(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, old, read = empty_database_dsn, InMemorySaver(), Reader.history

    async def shorter(*given: Any) -> Any:
        found = await read(*given)
        return {name: replace(each, writes=each.writes[:-1]) for name, each in found.items()}

    await Tree(old, "t", 5).grow(20)
    for options in (Options(verify="full"), Options(verify="full", latest_only=True)):
        monkeypatch.setattr(Reader, "history", shorter)
        report = await migrate(old, dsn, options)
        assert report.counts == {Status.FAILED: 1}
        assert "the history of the DeltaChannel 'delta'" in report.unsettled[0].reason
        monkeypatch.undo()
        report = await migrate(old, dsn, options)
        assert report.unsettled == []
        async with delta(dsn) as new:
            await new.adelete_thread("t")


async def test_listing_threads_holds_no_transaction_open(empty_database_dsn: str) -> None:
    dsn = empty_database_dsn
    async with stock(dsn) as old:
        await old.setup()
        for thread_id in ("a", "b"):
            await Tree(old, thread_id, 1).grow(1)
    source = await TablesSource.connect(dsn, Reading(*codec_of(JsonPlusSerializer())))
    try:
        async for _ in source.threads():
            with psycopg.connect(dsn) as connection:
                found = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' "
                    "AND datname = current_database()"
                ).fetchone()
            assert found == (0,)
    finally:
        await source.close()


async def test_a_synchronous_saver_whose_asynchronous_methods_are_not_implemented(
    tmp_path: Path, empty_database_dsn: str
) -> None:
    connection = sqlite3.connect(tmp_path / "t.sqlite", check_same_thread=False)
    saver = SqliteSaver(connection)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    checkpoint: Any = {
        "v": 4, "id": "1", "ts": "", "channel_values": {"a": [1]}, "channel_versions": {"a": 1}, "versions_seen": {},
    }  # fmt: skip
    saver.put(config, checkpoint, {"source": "loop", "step": 1}, {"a": 1})
    report = await migrate(saver, empty_database_dsn, Options(verify="full"))
    connection.close()
    assert report.counts == {Status.IMPORTED: 1}


async def test_a_saver_that_cannot_list_is_named(empty_database_dsn: str) -> None:
    class Failing(InMemorySaver):
        def alist(self, *_: Any, **__: Any) -> Any:
            raise OSError("the disk is gone")

    with pytest.raises(InvalidConfigError, match=r"cannot list its threads.*the disk is gone"):
        await migrate(Failing(), empty_database_dsn)


def test_a_report_says_only_what_was_done() -> None:
    dry, back = Report(dry_run=True), Report()
    dry.add(Outcome("t", Status.COUNTED, checkpoints=3))
    back.add(Outcome("t", Status.IMPORTED, checkpoints=3, verified=2, target_bytes=5000))
    assert summary(dry).splitlines() == ["1 thread counted", "3 checkpoints", "nothing was written"]
    lines = summary(back).splitlines()[:3]
    assert lines == ["1 thread imported", "3 checkpoints, 2 of them compared on both sides", "5.0 kB in the target"]
