"""Damaged, cut and foreign files write nothing; what lands lands whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deltastore import CorruptPayloadError, DeltaSaver, InvalidConfigError, StoredDataError
from deltastore.archive import archive_threads, open_archive, read_header, restore_archives
from deltastore.archive.files import prove
from tests.archive.rows import files_in, rows_of
from tests.faults.stories import Story, assert_reads_as, config_of


@pytest.fixture
async def told(folder: Path) -> Story:
    """A thread that is in a file."""
    saver = DeltaSaver.in_memory(snapshot_frequency=4)
    story = Story(saver, words_max=900)
    await story.grow(9)
    await archive_threads(saver, ["story"], folder.as_uri())
    return story


async def test_damage_anywhere_writes_nothing(saver: DeltaSaver, told: Story, folder: Path) -> None:
    [file] = files_in(folder)
    data = file.read_bytes()
    chance = random.Random(3)
    bad = folder / "bad"
    for _ in range(25):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        bad.write_bytes(damaged)
        with pytest.raises(StoredDataError, match="bad: "):
            await restore_archives(saver, [str(bad)])
    for length in (0, 5, 30, len(data) // 2, len(data) - 40, len(data) - 1):
        bad.write_bytes(data[:length])
        with pytest.raises(CorruptPayloadError, match="bad: "):
            await restore_archives(saver, [str(bad)])
    assert await rows_of(saver, "story") is None
    assert await saver.aget_tuple(config_of("story")) is None
    await restore_archives(saver, [str(file)])
    for step in told.steps:
        await assert_reads_as(saver, step)


async def test_a_file_that_changes_between_the_two_readings(
    saver: DeltaSaver, told: Story, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [file] = files_in(folder)
    data = file.read_bytes()

    def proving(*given):
        header = prove(*given)
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        return header

    with monkeypatch.context() as patch:
        patch.setattr("deltastore.archive.restoring.prove", proving)
        with pytest.raises(CorruptPayloadError):
            await restore_archives(saver, [str(file)])
    assert await rows_of(saver, "story") is None
    file.write_bytes(data)
    await restore_archives(saver, [str(file)])
    for step in told.steps:
        await assert_reads_as(saver, step)


async def test_files_that_are_not_there_or_not_archives(saver: DeltaSaver, folder: Path) -> None:
    with pytest.raises(InvalidConfigError, match="cannot be read"):
        await restore_archives(saver, [str(folder / "nothing")])
    with pytest.raises(CorruptPayloadError, match=r"README.md: the file is not an archive of deltastore"):
        await open_archive("README.md")
    with pytest.raises(CorruptPayloadError, match="not an archive"):
        read_header("README.md")


async def test_a_thread_goes_on_in_the_opened_archive_and_the_file_stays(told: Story, folder: Path) -> None:
    [file] = files_in(folder)
    data = file.read_bytes()
    told.saver = await open_archive(file.as_uri())
    await assert_reads_as(told.saver, await told.grow(3))
    assert file.read_bytes() == data
    assert read_header(str(file)).thread_id == "story"
