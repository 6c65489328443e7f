"""The contract on dicts, and what only they promise."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from deltastore.core.model import Refusal, Save, Saved
from deltastore.memory import MemoryStorage
from deltastore.storage import Storage
from tests.contract.calls import OTHER, T, row, structure
from tests.contract.storage_contract import StorageContract


@pytest.fixture
def storage() -> Storage:
    return MemoryStorage()


class TestMemoryStorage(StorageContract):
    pass


def test_any_thread_and_any_loop_may_call() -> None:
    storage = MemoryStorage()

    async def work(start: int) -> list[Saved | Refusal]:
        calls = []
        for number in range(start, start + 50):
            async with storage.edit(T.key):
                await asyncio.sleep(0)
            calls.append(await storage.save(Save(T, row(number))))
        return calls

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda start: asyncio.run(work(start)), range(0, 200, 50)))
    assert all(isinstance(answer, Saved) for part in answers for answer in part)
    checkpoints, _, _ = asyncio.run(structure(storage))
    assert len(checkpoints) == 200


async def test_a_call_cancelled_while_it_waits_for_an_edit_harms_nobody() -> None:
    storage = MemoryStorage()
    async with storage.edit(T.key):
        calls = [asyncio.create_task(storage.save(Save(T, row(number)))) for number in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.sleep(0)
        assert isinstance(await storage.save(Save(OTHER, row(1))), Saved)
    assert [isinstance(each, Saved) for each in await asyncio.gather(*calls, return_exceptions=True)] == [
        False,
        True,
        True,
    ]
