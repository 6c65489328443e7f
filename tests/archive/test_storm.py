"""Threads that come and go while runs write to them: every acknowledged checkpoint is there in the end, and right."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deltastore import BrokenChainError, DeltaSaver, InvalidConfigError
from deltastore.archive import Status, archive_threads, restore_archives
from tests.archive.rows import files_in
from tests.faults.stories import config_of
from tests.support.puts import uuid_of

THREADS, CHECKPOINTS = 8, 40


def checkpoint_of(thread: int, number: int) -> Any:
    return {
        "v": 4,
        "id": uuid_of(number + 1),
        "ts": f"2026-01-01T00:00:{number:02}+00:00",
        "channel_values": {"log": [f"{thread} {each} " * (each * 37 % 50) for each in range(number + 1)]},
        "channel_versions": {"log": number + 1},
        "versions_seen": {},
        "updated_channels": ["log"],
    }


class Storm:
    """Writers and archivers with savers of their own, as processes have."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self.writing = THREADS
        self.counts: Counter[str] = Counter()

    async def write(self, thread: int) -> None:
        """One run. What is refused because the thread is away is tried again until it is back."""
        chance = random.Random(thread)
        async with DeltaSaver.from_conn_string(self.dsn, snapshot_frequency=7, max_size=2) as saver:
            at: Any = config_of(f"thread {thread}")
            for number in range(CHECKPOINTS):
                await asyncio.sleep(chance.random() * 0.3)  # the model thinks
                while True:
                    try:
                        if number:
                            await saver.aput_writes(at, [("log", f"{number}")], f"task {number}")
                        checkpoint = checkpoint_of(thread, number)
                        at = await saver.aput(at, checkpoint, {"source": "loop", "step": number}, {"log": number + 1})
                        break
                    except BrokenChainError:
                        self.counts["refused"] += 1
                        await asyncio.sleep(0.005)
        self.writing -= 1

    async def move(self, seed: int) -> None:
        """Archives threads by chance, and brings each back at once."""
        chance = random.Random(seed)
        async with DeltaSaver.from_conn_string(self.dsn, max_size=2) as saver:
            while self.writing:
                name = f"thread {chance.randrange(THREADS)}"
                report = await archive_threads(saver, [name], self.folder.as_uri())
                [outcome] = report.outcomes
                self.counts[outcome.status] += 1
                if outcome.status is Status.ARCHIVED:
                    await restore_archives(saver, [outcome.file])


@pytest.mark.slow
async def test_threads_come_and_go_under_their_runs(database_dsn: str, folder: Path) -> None:
    storm = Storm(database_dsn, folder)
    async with asyncio.TaskGroup() as group:
        for thread in range(THREADS):
            group.create_task(storm.write(thread))
        for seed in range(2):
            group.create_task(storm.move(seed))
    assert storm.counts[Status.ARCHIVED] >= 5, storm.counts
    assert storm.counts[Status.CHANGED] >= 1, storm.counts
    assert not storm.counts[Status.FAILED], storm.counts
    assert not [file for file in files_in(folder) if file.name.startswith(".partial")]
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        for thread in range(THREADS):
            found = [each async for each in saver.alist(config_of(f"thread {thread}"))]
            assert [each.checkpoint for each in found] == [
                checkpoint_of(thread, number) for number in reversed(range(CHECKPOINTS))
            ]
            for each in found[1:]:
                number = each.metadata["step"] + 1
                assert each.pending_writes == [(f"task {number}", "log", f"{number}")]
        with pytest.raises(InvalidConfigError):
            await restore_archives(saver, [files_in(folder)[0].as_uri()])
