"""A thread leaves the database only as it is in its file, whatever comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from deltastore import DeltaSaver, InvalidConfigError
from deltastore.archive import Outcome, Status, archive_threads, archiver, open_archive, restore_archives
from deltastore.archive.files import prove
from deltastore.archive.places import Draft
from deltastore.memory import MemoryStorage
from deltastore.verification import verify_threads
from tests.archive.rows import files_in, rows_of
from tests.faults.stories import Story, assert_reads_as, config_of

Change = Callable[[DeltaSaver, Story], Awaitable[Any]]


async def archive(saver: DeltaSaver, folder: Path, **options: Any) -> Outcome:
    outcomes: list[Outcome] = []
    await archive_threads(saver, ["story"], folder.as_uri(), progress=outcomes.append, **options)
    return outcomes[0]


async def story(saver: DeltaSaver, seed: int = 0) -> Story:
    told = Story(saver, seed=seed, words_max=1200)
    await told.grow(7, run_id="first")
    await told.grow(5, run_id="second")
    return told


CHANGES: dict[str, Change] = {
    "a checkpoint": lambda _, told: told.grow(1),
    "a fork": lambda _, told: told.grow(1, told.steps[3]),
    "writes": lambda saver, told: saver.aput_writes(told.steps[-1].config, [("words", ["more"])], "late"),
    "orphan writes": lambda saver, _: saver.aput_writes(config_of("story", "unknown"), [("words", ["more"])], "late"),
    "another namespace": lambda saver, _: saver.aput_writes(config_of("story", "x", "sub"), [("words", [])], "late"),
    "a deletion that only hides": lambda saver, _: saver.adelete_for_runs(["first"]),
    "a deletion that removes": lambda saver, _: saver.adelete_for_runs(["second"]),
    "a prune": lambda saver, _: saver.aprune(["story"], strategy="keep_latest"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_thread_that_changed_stays(
    saver: DeltaSaver, folder: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await story(saver)
    loop = asyncio.get_running_loop()

    async def now() -> None:
        await change(saver, told)

    def proving(*given: Any) -> Any:
        asyncio.run_coroutine_threadsafe(now(), loop).result()
        return prove(*given)

    with monkeypatch.context() as patch:
        patch.setattr("deltastore.archive.archiver.prove", proving)
        outcome = await archive(saver, folder)
    assert outcome.status is Status.CHANGED
    assert outcome.reason == "it was written to or deleted meanwhile"
    assert files_in(folder) == []
    rows = await rows_of(saver, "story")
    outcome = await archive(saver, folder)
    assert outcome.status is Status.ARCHIVED
    await restore_archives(saver, [outcome.file])
    assert await rows_of(saver, "story") == rows


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_thread_that_is_deleted_meanwhile(
    saver: DeltaSaver, folder: Path, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await story(saver)
    new: list[Story] = []
    loop = asyncio.get_running_loop()

    async def delete() -> None:
        await saver.adelete_thread("story")
        if is_new:
            new.append(await story(saver, seed=1))

    monkeypatch.setattr(
        "deltastore.archive.archiver.prove", lambda *_: asyncio.run_coroutine_threadsafe(delete(), loop).result()
    )
    outcome = await archive(saver, folder)
    assert outcome.status is Status.CHANGED
    assert files_in(folder) == []
    for step in [step for each in new for step in each.steps]:
        await assert_reads_as(saver, step)


async def test_rows_that_go_while_they_are_read(
    saver: DeltaSaver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await story(saver)
    storage = await saver.acall(lambda engine, *_: _given(engine.storage))
    load_segments = storage.load_segments
    calls = []

    async def loading(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            await saver.aprune(["story"], strategy="keep_latest")
        return await load_segments(*given)

    monkeypatch.setattr(archiver, "FIRST_BATCH_ROWS", 1)
    monkeypatch.setattr(archiver, "BATCH_ROWS_MAX", 1)
    monkeypatch.setattr(storage, "load_segments", loading)
    outcome = await archive(saver, folder)
    assert (outcome.status, outcome.reason) == (Status.CHANGED, "it was deleted or pruned meanwhile")
    assert files_in(folder) == []
    found = await saver.aget_tuple(told.steps[-1].config)
    assert found is not None
    assert found.checkpoint == told.steps[-1].checkpoint


async def _given(value: Any) -> Any:
    return value


async def test_a_file_made_while_a_run_goes_on_is_the_thread_of_one_moment(saver: DeltaSaver, folder: Path) -> None:
    told = await story(saver)
    growing = asyncio.create_task(told.grow(40))
    outcomes = []
    while not growing.done():
        outcomes.append(await archive(saver, folder, keep=True))
    await growing
    outcomes.append(await archive(saver, folder, keep=True))
    assert {outcome.status for outcome in outcomes} <= {Status.CHANGED, Status.COPIED}
    assert outcomes[-1].status is Status.COPIED
    assert outcomes[-1].checkpoints == len(told.steps)
    for file in {outcome.file for outcome in outcomes if outcome.file}:
        opened = await open_archive(file)
        found = [each.config["configurable"]["checkpoint_id"] async for each in opened.alist(config_of("story"))]
        assert found == [step.id for step in told.steps[: len(found)]][::-1]
    for step in told.steps:
        await assert_reads_as(saver, step)
        await assert_reads_as(opened, step)


async def test_many_at_once_make_one_file_and_lose_nothing(saver: DeltaSaver, folder: Path) -> None:
    told = await story(saver)
    outcomes = await asyncio.gather(*(archive(saver, folder) for _ in range(4)))
    assert sorted({outcome.status for outcome in outcomes} - {Status.CHANGED, Status.MISSING}) == [Status.ARCHIVED]
    assert [outcome.status for outcome in outcomes].count(Status.ARCHIVED) == 1
    [file] = files_in(folder)
    await restore_archives(saver, [file.as_uri()])
    for step in told.steps:
        await assert_reads_as(saver, step)


async def test_the_same_thread_id_again_gets_another_file(saver: DeltaSaver, folder: Path) -> None:
    stories = []
    for seed in (1, 2):
        stories.append(await story(saver, seed))
        assert (await archive(saver, folder)).status is Status.ARCHIVED
    assert len(files_in(folder)) == 2
    found = [await open_archive(str(file)) for file in files_in(folder)]
    heads = [await each.aget_tuple(config_of("story")) for each in found]
    assert {head.checkpoint["id"] for head in heads if head} == {told.steps[-1].id for told in stories}


async def test_a_copy_leaves_the_thread_and_is_made_once(saver: DeltaSaver, folder: Path) -> None:
    told = await story(saver)
    first, second = [await archive(saver, folder, keep=True) for _ in range(2)]
    assert (first.status, second.status) == (Status.COPIED, Status.COPIED)
    assert first.file == second.file == files_in(folder)[0].as_uri()
    assert 0 < first.file_bytes == len(files_in(folder)[0].read_bytes())
    for step in told.steps:
        await assert_reads_as(saver, step)


async def test_a_thread_that_is_not_there(saver: DeltaSaver, folder: Path) -> None:
    report = await archive_threads(saver, ["nothing"], folder.as_uri())
    assert report.exit_code == 4
    assert [outcome.status for outcome in report.outcomes] == [Status.MISSING]
    with pytest.raises(InvalidConfigError, match="thread_id is empty"):
        await archive_threads(saver, [""], folder.as_uri())


async def test_a_place_that_cannot_be_written_to(saver: DeltaSaver, folder: Path) -> None:
    told = await story(saver)
    files = folder.parent.parent / "a file"
    files.write_bytes(b"")
    for place in (f"{files}/threads", "nothing-like-this://x"):
        with pytest.raises(InvalidConfigError):
            await archive_threads(saver, ["story"], place)
    for step in told.steps:
        await assert_reads_as(saver, step)


async def test_a_file_that_is_not_what_was_written(
    saver: DeltaSaver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await story(saver)
    close = Draft.close

    def closing(draft: Draft) -> None:
        close(draft)
        path = Path(draft.url.removeprefix("file://"))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    monkeypatch.setattr(Draft, "close", closing)
    outcome = await archive(saver, folder)
    assert outcome.status is Status.FAILED
    assert "is damaged" in outcome.reason
    assert files_in(folder) == []
    for step in told.steps:
        await assert_reads_as(saver, step)


async def test_a_damaged_thread_is_left_as_it_is(database_dsn: str, folder: Path) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
        await story(saver)
        connection = await asyncpg.connect(database_dsn)
        try:
            for damage in (
                "UPDATE deltastore.delta_metadata SET payload = substr(payload, 1, 9)",
                (
                    "UPDATE deltastore.delta_segments SET payload = set_byte(payload, 4, 1) WHERE segment_id ="
                    " (SELECT max(segment_id) FROM deltastore.delta_segments)"
                ),
                (
                    "DELETE FROM deltastore.delta_segments WHERE segment_id ="
                    " (SELECT max(segments[1]) FROM deltastore.delta_checkpoints)"
                ),
                "UPDATE deltastore.delta_checkpoints SET depth = depth + 1",
            ):
                await connection.execute("CREATE SCHEMA backup")
                for table in ("threads", "checkpoints", "segments", "metadata"):
                    await connection.execute(f"CREATE TABLE backup.{table} AS TABLE deltastore.delta_{table}")
                await connection.execute(damage)
                outcome = await archive(saver, folder)
                assert outcome.status is Status.FAILED, damage
                assert "thread 'story'" in outcome.reason
                assert files_in(folder) == []
                for table in ("threads", "checkpoints", "segments", "metadata"):
                    await connection.execute(f"TRUNCATE deltastore.delta_{table}")
                    await connection.execute(f"INSERT INTO deltastore.delta_{table} TABLE backup.{table}")
                await connection.execute("DROP SCHEMA backup CASCADE")
        finally:
            await connection.close()
        assert (await archive(saver, folder)).status is Status.ARCHIVED


async def test_in_memory_of_fsspec() -> None:
    saver = DeltaSaver.in_memory(snapshot_frequency=5)
    told = await story(saver)
    outcomes: list[Outcome] = []
    await archive_threads(saver, ["story"], "memory://cold/", progress=outcomes.append)
    assert outcomes[0].file.startswith("memory://cold/story.")
    opened = await open_archive(outcomes[0].file)
    for step in told.steps:
        await assert_reads_as(opened, step)
    assert isinstance(await opened.acall(lambda engine, *_: _given(engine.storage)), MemoryStorage)


async def test_rows_in_quarantine_are_not_lost_with_their_thread(database_dsn: str, folder: Path) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
        await story(saver)
        connection = await asyncpg.connect(database_dsn)
        try:
            await connection.execute(
                "UPDATE deltastore.delta_checkpoints SET payload = substr(payload, 1, 8)"
                " WHERE checkpoint_id = (SELECT max(checkpoint_id) FROM deltastore.delta_checkpoints)"
            )
            assert (await archive(saver, folder)).status is Status.FAILED
            await verify_threads(saver, repair=True)
            outcome = await archive(saver, folder)
            assert outcome.status is Status.FAILED
            assert "in quarantine" in outcome.reason
            assert (await archive(saver, folder, keep=True)).status is Status.COPIED
            await connection.execute("DELETE FROM deltastore.delta_quarantine")
        finally:
            await connection.close()
        outcome = await archive(saver, folder)
        assert outcome.status is Status.ARCHIVED
        assert outcome.checkpoints == 11
