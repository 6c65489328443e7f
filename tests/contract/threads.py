"""What deletions, copies and the search for runs promise."""

from __future__ import annotations

import asyncio

from deltastore.core.model import (
    MetadataRow,
    NewSegment,
    Refusal,
    Save,
)
from deltastore.storage import Storage
from tests.contract.calls import OTHER, PAGES, VALUES, T, apply, hide, row, save, save_writes, structure, thread


class ThreadsContract:
    async def test_delete_removes_all_of_the_thread_and_nothing_else(self, storage: Storage) -> None:
        for ref in (T, OTHER, thread("t%"), thread("t_")):
            for namespace in ("", "sub", "sub|sub"):
                await save(storage, row(1, namespace=namespace), NewSegment(VALUES, b"v"), thread=ref)
            await save_writes(storage, 99, thread=ref)
        others = [await structure(storage, ref) for ref in (OTHER, thread("t%"), thread("t_"))]
        await storage.delete_thread(T.key)
        assert await storage.load_chains(T.key, "", None) is None
        assert await structure(storage) is None
        await storage.delete_thread(T.key)
        assert [await structure(storage, ref) for ref in (OTHER, thread("t%"), thread("t_"))] == others

    async def test_a_thread_made_again_has_another_epoch(self, storage: Storage) -> None:
        old = await save(storage, row(1), NewSegment(VALUES, b"v"))
        await storage.delete_thread(T.key)
        new = await save(storage, row(1), NewSegment(VALUES, b"v"))
        assert new.epoch != old.epoch
        assert new.segment_ids > old.segment_ids
        assert await storage.save(Save(T, row(2), epoch=old.epoch)) is Refusal.STALE

    async def test_copy(self, storage: Storage) -> None:
        one = await save(storage, row(1), NewSegment(PAGES, b"p", (3,)), NewSegment(VALUES, b"v"))
        await save(storage, row(2, 1, 0, namespace="sub", orphaned=True))
        await save_writes(storage, 9)
        await apply(storage, hide(1))
        assert await storage.copy_thread(T.key, OTHER)
        assert await structure(storage, OTHER) == await structure(storage)
        chains = await storage.load_chains(OTHER.key, "sub", None)
        assert chains is not None
        assert chains.thread == OTHER
        assert chains.epoch != one.epoch
        new = await save(storage, row(5), NewSegment(VALUES, b"n"), thread=OTHER, epoch=chains.epoch)
        assert new.segment_ids > one.segment_ids
        before = await structure(storage, OTHER)
        await storage.delete_thread(T.key)
        assert await structure(storage, OTHER) == before

    async def test_copy_does_not_touch_a_target_that_has_rows(self, storage: Storage) -> None:
        await save(storage, row(1))
        await save_writes(storage, 1, thread=OTHER)
        before = await structure(storage, OTHER)
        assert not await storage.copy_thread(T.key, OTHER)
        assert not await storage.copy_thread(T.key, T)
        assert await structure(storage, OTHER) == before

    async def test_copy_of_nothing(self, storage: Storage) -> None:
        assert await storage.copy_thread(T.key, OTHER)
        assert await storage.load_chains(OTHER.key, "", None) is None

    async def test_copies_at_the_same_moment(self, storage: Storage) -> None:
        await save(storage, row(1), NewSegment(VALUES, b"v"))
        answers = await asyncio.gather(*(storage.copy_thread(T.key, OTHER) for _ in range(6)))
        assert sorted(answers) == [False] * 5 + [True]
        assert await structure(storage, OTHER) == await structure(storage)

    async def test_threads_of_runs(self, storage: Storage) -> None:
        for ref, number, document in (
            (T, 1, '{"run_id": "r1"}'),
            (T, 2, '{"run_id": "r2"}'),
            (OTHER, 1, '{"run_id": "r1", "source": "loop"}'),
            (thread("z"), 1, '{"source": "r1", "nested": {"run_id": "r1"}}'),
        ):
            metadata = MetadataRow(number, document, b"")
            await save(storage, row(number, metadata_id=number), thread=ref, metadata=metadata)
        assert sorted(await storage.find_runs(["r1", "r3"])) == sorted([T.key, OTHER.key])
        assert await storage.find_runs(["r2", "r2"]) == [T.key]
        assert await storage.find_runs(["r"]) == await storage.find_runs([]) == []

    async def test_all_threads_are_listed_by_pages(self, storage: Storage) -> None:
        assert await storage.list_threads(b"", 10) == []
        refs = sorted((thread(f"thread {number}") for number in range(5)), key=lambda ref: ref.key)
        for ref in refs:
            await save(storage, row(1), thread=ref)
        assert await storage.list_threads(b"", 10) == refs
        assert await storage.list_threads(b"", 2) == refs[:2]
        assert await storage.list_threads(refs[1].key, 2) == refs[2:4]
        assert await storage.list_threads(refs[-1].key, 2) == []
