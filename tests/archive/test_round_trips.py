"""Threads of every sort come back equal: every checkpoint, hidden rows, writes, metadata, histories."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore import DeltaSaver, InvalidConfigError, ThreadDeletedError, UnreadableValueError
from deltastore.archive import Status, archive_threads, open_archive, read_header, restore_archives
from deltastore.conversion import validate
from deltastore.core import archive as layout
from deltastore.core import pieces
from tests.archive.rows import files_in, rows_of
from tests.faults.stories import Story, assert_reads_as, config_of
from tests.security.test_encryption import serializer
from tests.support.exact import exact_tuple
from tests.twins.running import Run, described_history, perform
from tests.twins.scenarios import CASES
from tests.twins.test_exact import case_id


async def listed(saver: DeltaSaver, thread_id: str) -> list[Any]:
    return [exact_tuple(each) async for each in saver.alist({"configurable": {"thread_id": thread_id}})]


async def archive(saver: DeltaSaver, thread_id: str, folder: Path) -> str:
    outcomes: list[Any] = []
    report = await archive_threads(saver, [thread_id], folder.as_uri(), progress=outcomes.append)
    [outcome] = outcomes
    assert outcome.status is Status.ARCHIVED, outcome
    assert report.exit_code == 0
    assert await rows_of(saver, thread_id) is None
    assert await saver.aget_tuple(config_of(thread_id)) is None
    file: str = outcome.file
    return file


async def story(saver: DeltaSaver, **metadata: Any) -> Story:
    """A thread with anchors, deltas, pages, large and small items, forks, pending and orphan writes."""
    story = Story(saver, seed=7, words_max=1500)
    await story.grow(9, run_id="first")
    await story.grow(7, run_id="second", **metadata)
    await story.grow(3, story.steps[6], run_id="third")
    head = await story.grow(1, story.steps[15])
    await saver.aput_writes(head.config, [("words", ["pending"]), ("log", "pending")], "late", "~0")
    head.pending.extend([("late", "words", ["pending"]), ("late", "log", "pending")])
    await saver.aput_writes(config_of("story", "not there yet"), [("words", ["orphan"])], "early")
    return story


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PAGE_PIECES", 4)
    monkeypatch.setattr(layout, "BLOCK_BYTES", 3000)


async def test_a_thread_of_every_sort_of_rows(saver: DeltaSaver, folder: Path) -> None:
    told = await story(saver)
    await saver.adelete_for_runs(["second"])
    hidden = {step.id for step in told.steps if step.metadata.get("run_id") == "second"}
    before, states = await rows_of(saver, "story"), await listed(saver, "story")
    assert before is not None
    assert {getattr(row, "kind", None) for row in before} == {None, 1, 2, 3}
    assert any(getattr(row, "hidden", False) for row in before)
    file = await archive(saver, "story", folder)
    for thread_id, again in (("story", None), ("other", "other")):
        report = await restore_archives(saver, [file], thread_id=again)
        assert report.counts == {Status.RESTORED: 1}
        assert await rows_of(saver, thread_id) == before
    assert await listed(saver, "story") == states
    for step in told.steps:
        if step.id not in hidden and (step.parent is None or step.parent.id not in hidden):
            await assert_reads_as(saver, step)
    told.steps = [step for step in told.steps if step.id not in hidden]
    await assert_reads_as(saver, await told.grow(7))


async def test_into_a_new_database_whose_numbers_are_small(database_dsn: str, folder: Path) -> None:
    memory = DeltaSaver.in_memory(snapshot_frequency=5)
    for number in range(3):
        await Story(memory, f"before {number}").grow(40)
    told = await story(memory)
    before = await rows_of(memory, "story")
    file = await archive(memory, "story", folder)
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        await restore_archives(saver, [file])
        assert await rows_of(saver, "story") == before
        told.saver = saver
        await told.grow(12)
        for step in told.steps:
            await assert_reads_as(saver, step)
        again = await archive(saver, "story", folder)
        assert again != file
    opened = await open_archive(again)
    for step in told.steps:
        await assert_reads_as(opened, step)
    assert read_header(again).checkpoints == len(told.steps)


@pytest.mark.parametrize(("script", "delta"), CASES, ids=case_id)
def test_graphs_of_every_sort(script: Any, delta: bool, folder: Path) -> None:
    saver = DeltaSaver.in_memory(snapshot_frequency=4)
    graph = perform(script, Run(saver, False, "sync", delta, "thread"))
    history = described_history(graph, saver, "thread")

    async def there_and_back() -> None:
        before = await rows_of(saver, "thread")
        file = await archive(saver, "thread", folder)
        await restore_archives(saver, [file])
        assert await rows_of(saver, "thread") == before

    asyncio.run(there_and_back())
    assert described_history(graph, saver, "thread") == history


async def payloads(engine: Any, *_: Any) -> list[bytes]:
    [thread] = engine.storage._threads.values()
    return [row.payload for rows in (thread.checkpoints, thread.segments, thread.metadata) for row in rows.values()]


async def test_a_ciphered_thread_stays_ciphered(folder: Path) -> None:
    saver = DeltaSaver.in_memory(snapshot_frequency=5, serde=serializer())
    told = await story(saver, secret="tell nobody")
    before = await rows_of(saver, "story")
    file = await archive(saver, "story", folder)
    stored = await asyncio.to_thread(Path(file.removeprefix("file://")).read_bytes)
    assert b'"thread_id": "story"' in stored
    for plain in (b"tell nobody", b"pending", b"words", *(step.checkpoint["channel_values"]["words"][-1].encode()
                                                         for step in told.steps)):  # fmt: skip
        assert len(plain) < 5 or plain not in stored
    for wrong in (None, serializer(b"fedcba9876543210")):
        other = DeltaSaver.in_memory(serde=wrong)
        with pytest.raises(UnreadableValueError, match="story"):
            await restore_archives(other, [file])
        assert await rows_of(other, "story") is None
    await restore_archives(saver, [file])
    assert await rows_of(saver, "story") == before
    for step in told.steps:
        await assert_reads_as(saver, step)
    assert all(payload[1] & 0x80 for payload in await saver.acall(payloads))


async def test_a_thread_that_was_ciphered_from_some_day_on(folder: Path) -> None:
    plain, ciphered = DeltaSaver.in_memory(snapshot_frequency=5), serializer()
    told = Story(plain)
    await told.grow(6)
    plain.serde = ciphered
    await told.grow(6)
    plain.serde = ciphered.serde
    report = await archive_threads(plain, ["story"], folder.as_uri())
    assert report.exit_code == 4
    assert "encrypted and no cipher" in report.outcomes[0].reason
    assert files_in(folder) == []
    plain.serde = EncryptedSerializer(ciphered.cipher, ciphered.serde)
    file = await archive(plain, "story", folder)
    await restore_archives(plain, [file])
    assert all(payload[1] & 0x80 for payload in await plain.acall(payloads)), "a restored thread is sealed anew"
    for step in told.steps:
        await assert_reads_as(plain, step)


async def test_what_is_there_is_not_overwritten_unless_asked(saver: DeltaSaver, folder: Path) -> None:
    told = Story(saver)
    await told.grow(3)
    file = await archive(saver, "story", folder)
    new = Story(saver, seed=9)
    await new.grow(2)
    with pytest.raises(InvalidConfigError, match="'story' is there already"):
        await restore_archives(saver, [file])
    for step in new.steps:
        await assert_reads_as(saver, step)
    await restore_archives(saver, [file], replace=True)
    for step in told.steps:
        await assert_reads_as(saver, step)
    assert [step.id for step in told.steps[::-1]] == [
        each.checkpoint["id"] async for each in saver.alist(config_of("story"))
    ]


async def test_a_run_that_holds_a_checkpoint_goes_on_when_its_thread_is_back(saver: DeltaSaver, folder: Path) -> None:
    told = Story(saver)
    head = await told.grow(6)
    file = await archive(saver, "story", folder)
    with pytest.raises(ThreadDeletedError):
        await saver.aput_writes(head.config, [("words", ["late"])], "late")
    assert await rows_of(saver, "story") is None
    await restore_archives(saver, [file])
    await told.grow(2)
    for step in told.steps:
        await assert_reads_as(saver, step)


async def test_a_pinned_thread_is_pinned_again(saver: DeltaSaver, folder: Path) -> None:
    async def pinned(engine: Any, *_: Any) -> bool:
        async with engine.storage.view(validate.thread("story").key) as view:
            rows = await view.rows()
        return bool(rows.pinned)

    told = Story(saver)
    await told.grow(2)
    await saver.apin("story")
    file = await archive(saver, "story", folder)
    await restore_archives(saver, [file])
    assert await saver.acall(pinned)
    await saver.aunpin("story")
    file = await archive(saver, "story", folder)
    await restore_archives(saver, [file])
    assert not await saver.acall(pinned)


@pytest.mark.parametrize("thread_id", ["a/../b c", "ü" * 300, "x" * 70_000, ".", "-", "\U0001f600", "a%2Fb"])
async def test_any_thread_id_makes_a_file(thread_id: str, folder: Path) -> None:
    saver = DeltaSaver.in_memory()
    told = Story(saver, thread_id)
    await told.grow(2)
    file = await archive(saver, thread_id, folder)
    assert [each.as_uri() for each in files_in(folder)] == [file]
    await restore_archives(saver, [file])
    for step in told.steps:
        await assert_reads_as(saver, step)
