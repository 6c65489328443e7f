"""What staging promises: parts in a row, seen by nothing else, gone with the edit that makes the thread."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.core.edits import NewRows
from deltastore.core.model import ListQuery
from deltastore.core.overview import ThreadsQuery
from deltastore.storage import Storage
from tests.contract.calls import OTHER, T, row, save


class StagingContract:
    async def test_parts_follow_each_other(self, storage: Storage) -> None:
        staging = storage.staging()
        assert not await staging.add(T, 1, b"without the one before")
        assert await staging.add(T, 0, b"zero")
        assert await staging.add(T, 0, b"zero")
        assert not await staging.add(T, 0, b"another")
        assert not await staging.add(T, 2, b"with a gap")
        assert await staging.add(T, 1, b"one")
        assert [await staging.load(T.key, part) for part in range(3)] == [b"zero", b"one", None]
        assert await staging.load(OTHER.key, 0) is None
        await staging.drop(T.key, 1)
        assert [await staging.load(T.key, part) for part in range(2)] == [b"zero", None]
        await staging.drop(T.key)
        assert await staging.threads() == []
        await staging.drop(T.key)

    async def test_one_of_many_adds_a_part(self, storage: Storage) -> None:
        staging = storage.staging()
        added = await asyncio.gather(*(staging.add(T, 0, b"%d" % number) for number in range(8)))
        assert sorted(added) == [False] * 7 + [True]
        assert await staging.load(T.key, 0) == b"%d" % added.index(True)

    async def test_nothing_else_sees_parts(self, storage: Storage) -> None:
        staging = storage.staging()
        await staging.add(T, 0, b"zero")
        await staging.add(T, 1, b"one")
        await staging.add(OTHER, 0, b"zero")
        found = await staging.threads()
        assert sorted((each.thread.thread_id, each.parts) for each in found) == sorted(
            [(T.thread_id, 2), (OTHER.thread_id, 1)]
        )
        assert [each.thread.key for each in found] == sorted([T.key, OTHER.key])
        assert all(0 <= each.idle_seconds < 60 for each in found)
        assert await storage.load_chains(T.key, "", None) is None
        assert await storage.list_checkpoints(ListQuery()) == []
        assert await storage.list_threads(b"", 9) == []
        assert await storage.survey_keys(b"", 9) == []
        assert await storage.newest_threads(ThreadsQuery()) == []
        assert await storage.outline_threads(b"", 9) == []
        assert (await storage.count([], 9)).threads == 0
        await storage.delete_thread(T.key)
        assert await staging.load(T.key, 0) == b"zero"

    async def test_an_edit_makes_the_thread_and_removes_the_parts(self, storage: Storage) -> None:
        staging = storage.staging()
        await staging.add(T, 0, b"zero")
        await staging.add(OTHER, 0, b"zero")
        with pytest.raises(ZeroDivisionError):
            await self._unstage_and_fail(storage)
        assert await staging.load(T.key, 0) == b"zero"
        async with storage.edit(T.key) as edit:
            await edit.restart(T)
            await edit.insert(NewRows((row(1),)))
            assert await staging.load(T.key, 0) == b"zero"
            await edit.unstage()
        assert [each.thread for each in await staging.threads()] == [OTHER]
        async with storage.view(T.key) as view:
            rows = await view.rows()
        assert rows is not None
        assert [each.key for each in rows.checkpoints] == [row(1).key]

    async def _unstage_and_fail(self, storage: Storage) -> None:
        async with storage.edit(T.key) as edit:
            await edit.unstage()
            raise ZeroDivisionError

    async def test_a_restarted_thread_has_rows_in_the_same_edit(self, storage: Storage) -> None:
        await save(storage, row(1))
        await storage.pin(T.key, True)
        async with storage.edit(T.key) as edit:
            await edit.restart(T)
            await edit.insert(NewRows((row(2),)))
            rows = await edit.rows()
        async with storage.view(T.key) as view:
            assert await view.rows() == rows
        assert rows is not None
        assert rows.pinned
        assert [each.key for each in rows.checkpoints] == [row(2).key]
