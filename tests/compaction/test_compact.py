"""What compaction does to threads, and everything that meets a compacted one afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore import (
    CorruptPayloadError,
    DeltaSaver,
    InvalidConfigError,
    RetentionPolicy,
    RetentionRule,
    ThreadBusyError,
    UnreadableValueError,
)
from deltastore.archive import archive_threads, restore_archives
from deltastore.compaction import CompactedThread, Compaction, compact_by_policy, compact_threads
from deltastore.conversion.validate import thread
from deltastore.core.model import SegmentKind, SegmentRow
from deltastore.inspection import history
from deltastore.statistics import thread_statistics
from deltastore.storage import ThreadEdit
from deltastore.verification import verify_threads
from tests.faults.stories import Story, assert_reads_as

pytestmark = pytest.mark.usefixtures("_small_packs")


async def stored(saver: DeltaSaver, thread_id: str = "story") -> list[SegmentRow]:
    """The segments and packs of a thread as they are stored."""
    async with saver._bridge.engine.storage.view(thread(thread_id).key) as view:
        rows = await view.rows()
        assert rows is not None
        return sorted(rows.segments, key=lambda row: row.segment_id)


def kinds(rows: list[SegmentRow]) -> set[SegmentKind]:
    return {row.kind for row in rows}


async def assert_all_read(saver: DeltaSaver, story: Story, **renamed: str) -> None:
    """Every step reads as it did, with nothing remembered; nothing is found by verification."""
    for step in story.steps:
        saver._bridge.engine.cache.forget(thread(story.thread_id).key)
        await assert_reads_as(saver, step)
    report = await verify_threads(saver, [story.thread_id])
    assert report.is_sound, [outcome.found.findings for outcome in report.damaged]


async def test_a_thread_in_packs_reads_goes_on_and_is_packed_again(saver: DeltaSaver) -> None:
    story = Story(saver, words_max=600)
    await story.grow(20)
    before = await stored(saver)
    outcome = await saver.acompact_thread("story")
    after = await stored(saver)
    assert outcome == CompactedThread(
        "story",
        Compaction.COMPACTED,
        "",
        len(before),
        len(after),
        outcome.before_bytes,
        sum(len(row.payload) for row in after),
    )
    assert kinds(after) == {SegmentKind.PACK}
    assert 1 < len(after) < len(before) / 4
    assert outcome.after_bytes < outcome.before_bytes
    await assert_all_read(saver, story)
    assert (await saver.acompact_thread("story")).status is Compaction.UNCHANGED
    assert await stored(saver) == after
    await story.grow(3)
    await story.grow(2, story.steps[4])
    grown = await stored(saver)
    assert grown[: len(after)] == after
    assert kinds(grown[len(after) :]) <= {SegmentKind.VALUES, SegmentKind.PAGES, SegmentKind.WRITES}
    await assert_all_read(saver, story)
    assert (await saver.acompact_thread("story")).status is Compaction.COMPACTED
    assert kinds(await stored(saver)) == {SegmentKind.PACK}
    assert (await stored(saver))[: len(after) - 1] == after[:-1], "only the last pack was made anew"
    await assert_all_read(saver, story)


async def test_a_run_that_knows_the_thread_goes_on(saver: DeltaSaver) -> None:
    """What it knew of pending writes is proved anew: the writes are in a pack now."""
    story = Story(saver)
    head = await story.grow(6)
    for number in range(2):
        await saver.aput_writes(head.config, [("words", ["w"])], f"task {number}")
        head.pending.append((f"task {number}", "words", ["w"]))
    await saver.acompact_thread("story")
    await story.grow(2)
    await saver.aput_writes(head.config, [("words", ["later"])], "task 9")
    head.pending.append(("task 9", "words", ["later"]))
    await story.grow(2, head)
    await assert_all_read(saver, story)


async def test_threads_are_pruned_thinned_copied_and_deleted_as_before(saver: DeltaSaver) -> None:
    story = Story(saver, words_max=600)
    await story.grow(8, run_id="first")
    await story.grow(8, run_id="second")
    await saver.acompact_thread("story")
    await saver.acopy_thread("story", "copy")
    await saver.adelete_for_runs(["first"])
    del story.steps[:8]
    found = [each async for each in saver.alist(story.steps[0].config | {"configurable": {"thread_id": "story"}})]
    assert len(found) == 8
    for step in story.steps[1:]:
        await assert_reads_as(saver, step)
    assert SegmentKind.PACK in kinds(await stored(saver)), "support rows need what is in them"
    await saver.aprune(["story"])
    head = story.steps[-1]
    await assert_head(saver, "story", head)
    left = await stored(saver)
    assert (await saver.aretain(RetentionPolicy((RetentionRule("all", keep_last=1),)))).failures == ()
    await assert_head(saver, "story", head)
    await assert_head(saver, "copy", head)
    assert len(await stored(saver, "copy")) <= len(left)
    assert (await verify_threads(saver)).is_sound
    await saver.adelete_thread("copy")
    assert await saver.aget_tuple({"configurable": {"thread_id": "copy"}}) is None


async def assert_head(saver: DeltaSaver, thread_id: str, step: Any) -> None:
    found = await saver.aget_tuple({"configurable": {"thread_id": thread_id}})
    assert found is not None
    assert found.checkpoint == step.checkpoint


async def test_an_archive_of_a_compacted_thread_is_that_of_the_thread(saver: DeltaSaver, tmp_path: Path) -> None:
    story = Story(saver, words_max=600)
    await story.grow(12)
    await archive_threads(saver, ["story"], (tmp_path / "before").as_uri(), keep=True)
    await saver.acompact_thread("story")
    report = await archive_threads(saver, ["story"], (tmp_path / "after").as_uri())
    [before], [after] = (list((tmp_path / name).iterdir()) for name in ("before", "after"))
    [outcome] = report.outcomes
    assert outcome.file_bytes == after.stat().st_size
    assert abs(after.stat().st_size - before.stat().st_size) <= 16
    await restore_archives(saver, [str(after)])
    assert SegmentKind.PACK not in kinds(await stored(saver))
    await assert_all_read(saver, story)


async def test_inspection_and_statistics_of_a_compacted_thread(saver: DeltaSaver) -> None:
    story = Story(saver, words_max=600)
    await story.grow(12)
    entries = [each async for each in history(saver, "story")]
    weight = await thread_statistics(saver, "story")
    await saver.acompact_thread("story")
    assert [each async for each in history(saver, "story")] == entries
    packed = await thread_statistics(saver, "story")
    assert weight is not None
    assert packed is not None
    assert packed.volumes["packs"].rows == len(await stored(saver))
    assert "writes" not in packed.volumes
    assert (packed.channels, packed.stock_bytes) == (weight.channels, weight.stock_bytes)
    assert packed.payload_bytes < weight.payload_bytes
    assert sum(packed.plain_bytes.values()) == sum(weight.plain_bytes.values())


async def test_many_threads_and_what_becomes_of_each(saver: DeltaSaver) -> None:
    for number in range(3):
        await Story(saver, f"thread {number}", seed=number).grow(6)
    told: list[CompactedThread] = []
    report = await compact_threads(saver, ["thread 0", "nobody"], dry_run=True, progress=told.append)
    assert [each.status for each in told] == [Compaction.COUNTED, Compaction.MISSING]
    assert report.exit_code == 4
    assert SegmentKind.PACK not in kinds(await stored(saver, "thread 0"))
    done = await compact_threads(saver, ["thread 0"])
    assert (done.before_bytes, done.after_bytes, done.exit_code) == (report.before_bytes, report.after_bytes, 0)
    report = await compact_threads(saver)
    assert report.counts == {Compaction.COMPACTED: 2, Compaction.UNCHANGED: 1}
    with pytest.raises(InvalidConfigError, match="there is no thread 'nobody'"):
        await saver.acompact_thread("nobody")


async def test_a_policy_chooses_threads(saver: DeltaSaver) -> None:
    for number in range(2):
        await Story(saver, f"thread {number}", seed=number).grow(6)
    await saver.apin("thread 1")
    policy = RetentionPolicy((RetentionRule("idle", idle_seconds=3600),))
    assert not (await compact_by_policy(saver, policy)).threads
    later = datetime.now(UTC) + timedelta(hours=2)
    report = await compact_by_policy(saver, policy, now=later)
    assert [each.thread_id for each in report.threads] == ["thread 0"]
    assert report.counts == {Compaction.COMPACTED: 1}
    report = await compact_by_policy(saver, policy, now=later)
    assert report.counts == {Compaction.UNCHANGED: 1}
    with pytest.raises(InvalidConfigError, match="time zone"):
        await compact_by_policy(saver, policy, now=datetime(2026, 1, 1))  # noqa: DTZ001 - the error is about that


async def test_a_thread_that_is_written_to_all_the_time_is_left_alone(
    saver: DeltaSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(saver)
    await story.grow(6)
    storage: Any = saver._bridge.engine.storage
    edit = storage.edit

    @asynccontextmanager
    async def after_a_save(*given: Any) -> AsyncIterator[ThreadEdit]:
        """A checkpoint comes between the look at the thread and its lock."""
        await story.grow(1)
        async with edit(*given) as opened:
            yield opened

    monkeypatch.setattr(storage, "edit", after_a_save)
    with pytest.raises(ThreadBusyError, match="was written to during each of 4 attempts"):
        await saver.acompact_thread("story")
    report = await compact_threads(saver, ["story"])
    assert (report.counts, report.exit_code) == ({Compaction.BUSY: 1}, 0)
    monkeypatch.undo()
    assert SegmentKind.PACK not in kinds(await stored(saver))
    await assert_all_read(saver, story)


async def test_large_threads_take_several_rounds(saver: DeltaSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.repacking.ROUND_BYTES", 4000)
    monkeypatch.setattr("deltastore.repacking.BATCH_SEGMENTS", 4)
    rounds = 0
    story = Story(saver, words_max=600)
    await story.grow(20)
    before = await stored(saver)
    original = type(saver._bridge.engine.repacking)._round

    async def counted(*given: Any) -> Any:
        nonlocal rounds
        rounds += 1
        return await original(*given)

    monkeypatch.setattr(type(saver._bridge.engine.repacking), "_round", counted)
    outcome = await saver.acompact_thread("story")
    assert rounds > 3
    assert outcome.segments >= len(before)
    assert kinds(await stored(saver)) == {SegmentKind.PACK}
    await assert_all_read(saver, story)


async def test_a_damaged_thread_is_left_as_it_is(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        story = Story(saver, words_max=600)
        await story.grow(6)
        pool = saver._bridge.engine.storage._pool  # type: ignore[attr-defined]
        await pool.execute("UPDATE deltastore.delta_segments SET payload = payload || '\\x00' WHERE kind = 3")
        before = await stored(saver)
        with pytest.raises(CorruptPayloadError, match=r"segment .* of thread 'story'"):
            await saver.acompact_thread("story")
        report = await compact_threads(saver, ["story"])
        assert (report.counts, report.exit_code) == ({Compaction.FAILED: 1}, 4)
        assert await stored(saver) == before


async def test_a_flipped_byte_in_a_pack_is_named_with_the_checkpoints_that_it_hurts(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
        story = Story(saver, words_max=600)
        await story.grow(20)
        await saver.acompact_thread("story")
        packs = await stored(saver)
        damaged = packs[len(packs) // 2]
        pool = saver._bridge.engine.storage._pool  # type: ignore[attr-defined]
        await pool.execute(
            "UPDATE deltastore.delta_segments SET payload = set_byte(payload, 40, get_byte(payload, 40) # 1)"
            " WHERE segment_id = $1",
            damaged.segment_id,
        )
        report = await verify_threads(saver, ["story"])
        [outcome] = report.damaged
        [finding] = outcome.found.findings
        assert finding.row == f"pack {damaged.segment_id}"
        hurt = {place.checkpoint_id for place in finding.hurt}
        assert 0 < len(hurt) < len(story.steps)
        for step in story.steps:
            saver._bridge.engine.cache.forget(thread("story").key)
            if step.id in hurt:
                with pytest.raises(CorruptPayloadError, match=f"pack {damaged.segment_id} of thread 'story'"):
                    await saver.aget_tuple(step.config)
            else:
                await assert_reads_as(saver, step)
        assert (await verify_threads(saver, ["story"], repair=True)).is_sound
        left = [each async for each in saver.alist(story.steps[0].config | {"configurable": {"thread_id": "story"}})]
        assert 0 < len(left) < len(story.steps)


async def test_a_wrong_range_of_a_pack_is_found(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
        await Story(saver, words_max=600).grow(12)
        await saver.acompact_thread("story")
        pool = saver._bridge.engine.storage._pool  # type: ignore[attr-defined]
        await pool.execute("UPDATE deltastore.delta_segments SET first_checkpoint_id = checkpoint_id")
        [outcome] = (await verify_threads(saver, ["story"])).damaged
        assert all("its row says that it begins with checkpoint key" in each.detail for each in outcome.found.findings)


class Forgetful:
    """A cipher that loses the last byte of what it encrypts."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "forgetful", plaintext[:-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "forgetful"
        return ciphertext


async def test_packs_are_read_back_before_anything_goes(saver: DeltaSaver) -> None:
    story = Story(saver, words_max=600)
    await story.grow(20)
    before, serde = await stored(saver), saver.serde
    saver.serde = EncryptedSerializer(Forgetful(), JsonPlusSerializer())
    with pytest.raises(UnreadableValueError, match="cannot be decrypted"):
        await saver.acompact_thread("story")
    saver.serde = serde
    assert await stored(saver) == before
    await assert_all_read(saver, story)
