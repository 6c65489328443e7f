"""What tombstones, pins, views, outlines and bounded edits promise."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.core.edits import LockBounds, ThreadOutline
from deltastore.core.model import NewSegment, Refusal, Save, Saved, SaveWrites
from deltastore.errors import ThreadBusyError
from deltastore.storage import Storage
from tests.contract.calls import (
    METADATA,
    OTHER,
    PAGES,
    VALUES,
    WRITES,
    T,
    apply,
    hide,
    key,
    load,
    row,
    save,
    save_writes,
    stays_pending,
    structure,
    thread,
)


def writes(number: int, held: int | None = None) -> SaveWrites:
    return SaveWrites(T, "", key(number), NewSegment(WRITES, b"w"), held_id=None if held is None else key(held))


class DeletingContract:
    async def deleted(self, storage: Storage) -> None:
        """A thread with the ids 1 to 5 that was deleted; the last is only one of pending writes."""
        await save(storage, row(1))
        await save(storage, row(4, namespace="sub"))
        await save_writes(storage, 5)
        await storage.delete_thread(T.key)

    async def test_a_save_behind_a_deleted_checkpoint_is_refused(self, storage: Storage) -> None:
        await self.deleted(storage)
        for late in (row(6, 1), row(6, 1, 1), row(6, 7), row(6, 5, namespace="new")):
            assert await storage.save(Save(T, late, metadata=METADATA)) is Refusal.DELETED
            assert await storage.save(Save(T, late, metadata=METADATA, epoch=1)) is Refusal.DELETED
        assert await structure(storage) is None

    async def test_a_save_inside_of_a_deleted_checkpoint_is_refused(self, storage: Storage) -> None:
        await self.deleted(storage)
        inside = Save(T, row(9, namespace="sub"), metadata=METADATA, held_id=key(5))
        assert await storage.save(inside) is Refusal.DELETED
        assert await structure(storage) is None

    async def test_a_save_behind_a_deleted_checkpoint_is_refused_also_under_an_id_that_is_taken(
        self, storage: Storage
    ) -> None:
        await self.deleted(storage)
        await save(storage, row(8))
        assert await storage.save(Save(T, row(8, 4), metadata=METADATA)) is Refusal.DELETED
        assert await storage.save(Save(T, row(8), metadata=METADATA)) is Refusal.EXISTS

    async def test_writes_to_a_deleted_checkpoint_are_refused(self, storage: Storage) -> None:
        await self.deleted(storage)
        for number, held in ((1, 1), (3, 3), (5, 5), (9, 5)):
            assert await storage.save_writes(writes(number, held)) is Refusal.DELETED
        assert await structure(storage) is None

    async def test_a_thread_begins_anew_with_a_save_that_names_nothing(self, storage: Storage) -> None:
        await self.deleted(storage)
        await save(storage, row(3))
        await save(storage, row(6, 3, 1))
        assert isinstance(await storage.save_writes(writes(1, 1)), Saved), "the thread is there"
        assert await storage.save(Save(T, row(7, 1), metadata=METADATA)) is Refusal.DELETED
        assert isinstance(await storage.save(Save(T, row(7, 66), metadata=METADATA)), Saved), "it was never stored"
        await storage.delete_thread(T.key)
        assert await storage.save(Save(T, row(8, 66), metadata=METADATA)) is Refusal.DELETED

    async def test_other_threads_and_threads_that_never_were_are_not_deleted(self, storage: Storage) -> None:
        await self.deleted(storage)
        await save(storage, row(6, 1), thread=OTHER, held_id=key(1))
        never = thread("never")
        await storage.delete_thread(never.key)
        await save(storage, row(6, 1), thread=never, held_id=key(1))

    async def test_deleted_again_it_is_deleted_through_the_largest_of_both(self, storage: Storage) -> None:
        await self.deleted(storage)
        await save(storage, row(2))
        await storage.delete_thread(T.key)
        assert await storage.save_writes(writes(5, 5)) is Refusal.DELETED

    async def test_a_save_that_waited_for_the_deletion_is_refused(self, storage: Storage) -> None:
        await save(storage, row(1))
        async with storage.edit(T.key) as edit:
            late = asyncio.create_task(storage.save(Save(T, row(2, 1), metadata=METADATA)))
            late_writes = asyncio.create_task(storage.save_writes(writes(1, 1)))
            assert await stays_pending(late)
            assert await stays_pending(late_writes)
            await edit.remove()
        assert await late_writes is Refusal.DELETED
        assert await late is Refusal.DELETED
        assert await structure(storage) is None

    async def test_what_may_be_of_a_new_run_is_early(self, storage: Storage) -> None:
        await self.deleted(storage)
        inside = Save(T, row(9, namespace="sub"), metadata=METADATA, held_id=key(6))
        for _ in range(2):
            assert await storage.save_writes(writes(6, 6)) is Refusal.EARLY
            assert await storage.save(inside) is Refusal.EARLY
        assert await structure(storage) is None
        await save(storage, row(6))
        assert isinstance(await storage.save_writes(writes(6, 6)), Saved)
        assert isinstance(await storage.save(inside), Saved)

    async def test_what_was_refused_counts_as_deleted(self, storage: Storage) -> None:
        assert not await storage.extend_deletion(T.key, key(6))
        await self.deleted(storage)
        assert await storage.extend_deletion(T.key, key(6))
        assert await storage.extend_deletion(T.key, key(2))
        assert await storage.save_writes(writes(6, 6)) is Refusal.DELETED
        assert await storage.save_writes(writes(7, 7)) is Refusal.EARLY
        await save(storage, row(8))
        assert not await storage.extend_deletion(T.key, key(7)), "it has begun anew"

    async def test_a_deletion_can_be_forgotten(self, storage: Storage) -> None:
        assert not await storage.forget_deletion(T.key)
        await self.deleted(storage)
        await storage.forget_deletions(3600)
        assert await storage.save_writes(writes(1, 1)) is Refusal.DELETED
        assert await storage.forget_deletion(T.key)
        await save(storage, row(6, 1))
        await storage.delete_thread(T.key)
        await storage.forget_deletions(-1)
        assert not await storage.forget_deletion(T.key)

    async def test_a_thread_that_is_written_as_a_whole_leaves_no_tombstone_and_keeps_its_pin(
        self, storage: Storage
    ) -> None:
        await save(storage, row(1))
        await storage.pin(T.key, True)
        async with storage.edit(T.key) as edit:
            await edit.restart(T)
        assert not await storage.forget_deletion(T.key)
        async with storage.view(T.key) as view:
            rows = await view.rows()
        assert rows is not None
        assert rows.pinned

    async def test_pins(self, storage: Storage) -> None:
        assert not await storage.pin(T.key, True)
        await save(storage, row(1))
        for pinned in (True, True, False):
            assert await storage.pin(T.key, pinned)
            [outline] = await storage.outline_threads(b"", 10)
            assert outline.pinned is pinned
            async with storage.edit(T.key) as edit:
                rows = await edit.rows()
            assert rows is not None
            assert rows.pinned is pinned
        await storage.pin(T.key, True)
        await storage.copy_thread(T.key, OTHER)
        assert [each.pinned for each in await storage.outline_threads(b"", 10)] == [True, False]

    async def test_outlines(self, storage: Storage) -> None:
        refs = sorted((thread(f"thread {number}") for number in range(4)), key=lambda ref: ref.key)
        for ref in refs[:3]:
            await save(storage, row(1, namespace="ü"), thread=ref)
        await save(storage, row(2), thread=refs[0])
        await save_writes(storage, 5, thread=refs[3])
        async with storage.edit(refs[0].key) as edit:
            await edit.apply(hide(2))
        outlines = await storage.outline_threads(b"", 10)
        assert [each.thread for each in outlines] == refs
        assert sorted(outlines[0].checkpoints) == [("", key(2), True), ("ü", key(1), False)]
        assert outlines[3].checkpoints == ()
        assert outlines[0].created_seconds > 1_700_000_000
        pages: list[ThreadOutline] = []
        while page := await storage.outline_threads(pages[-1].thread.key if pages else b"", 3):
            pages += page
        assert [each.thread for each in pages] == refs

    async def test_a_view_is_of_one_moment_and_holds_nobody_off(self, storage: Storage) -> None:
        one = await save(storage, row(1), NewSegment(VALUES, b"value"), NewSegment(PAGES, b"page"))
        async with storage.view(T.key) as view:
            rows = await view.rows()
            await save(storage, row(2))
            await apply(storage, hide(1))
            assert await view.rows() == rows
            assert len(await view.segments(one.segment_ids)) == 2
            size = await view.payload_bytes(one.segment_ids, (METADATA.metadata_id,))
            assert size == len(b"value" + b"page" + METADATA.payload)
            assert await view.payload_bytes((), ()) == 0
        async with storage.view(OTHER.key) as view:
            assert await view.rows() is None

    async def test_an_edit_says_whether_the_thread_is_what_it_was(self, storage: Storage) -> None:
        await save(storage, row(1))

        async def is_still_after(change) -> bool:
            async with storage.view(T.key) as view:
                rows = await view.rows()
            assert rows is not None
            await change
            async with storage.edit(T.key) as edit:
                return await edit.is_still(rows)

        assert await is_still_after(asyncio.sleep(0))
        assert await is_still_after(load(storage, 1))
        assert not await is_still_after(save(storage, row(2)))
        assert not await is_still_after(save_writes(storage, 1))
        assert not await is_still_after(apply(storage, hide(1)))
        assert not await is_still_after(storage.pin(T.key, True))

        async def deleted_and_made_again() -> None:
            await storage.delete_thread(T.key)
            await save(storage, row(1))
            await save(storage, row(2))
            await save_writes(storage, 1)

        assert not await is_still_after(deleted_and_made_again())
        assert not await is_still_after(storage.delete_thread(T.key))

    async def test_a_bounded_edit_does_not_wait_for_ever(self, storage: Storage) -> None:
        await save(storage, row(1))
        bounds = LockBounds(wait_ms=50, statement_ms=5000)
        async with storage.edit(T.key):
            with pytest.raises(ThreadBusyError):
                async with storage.edit(T.key, bounds):
                    pass
            async with storage.edit(OTHER.key, bounds):
                pass
        async with storage.edit(T.key, bounds) as edit:
            await edit.apply(hide(1))
        assert (await load(storage)).targets == ()

    async def test_an_edit_that_deletes_and_fails_deletes_nothing(self, storage: Storage) -> None:
        await save(storage, row(1))
        before = await structure(storage)

        async def fail() -> None:
            async with storage.edit(T.key) as edit:
                await edit.remove()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await structure(storage) == before
        assert not await storage.forget_deletion(T.key)
