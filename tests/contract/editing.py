"""What edits promise, and everything that meets one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from deltastore.core.edits import NewRows, RowUpdate, ThreadChanges
from deltastore.core.model import ListQuery, MetadataRow, NewSegment, Refusal, Save, Saved, SaveWrites, SegmentRow
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
    numbers_of,
    row,
    rows_of,
    save,
    save_writes,
    segments_of,
    stays_pending,
    structure,
)


class EditingContract:
    async def test_a_thread_that_is_not_there(self, storage: Storage) -> None:
        async with storage.edit(T.key) as edit:
            assert await edit.rows() is None
            assert await edit.segments([1]) == []
            await edit.apply(ThreadChanges())
        assert await storage.load_chains(T.key, "", None) is None

    async def test_the_structure_has_payloads_of_pages_only(self, storage: Storage) -> None:
        document = '{"run_id": "r"}'
        saved = await save(
            storage, row(1), NewSegment(VALUES, b"v"), NewSegment(PAGES, b"p", (7,)),
            metadata=MetadataRow(METADATA.metadata_id, document, b""),
        )  # fmt: skip
        await save(storage, row(2, 1, 0, namespace="sub", metadata_id=5), metadata=MetadataRow(5, "{}", b""))
        write = await save_writes(storage, 9)
        async with storage.edit(T.key) as edit:
            rows = await edit.rows()
            segments = await edit.segments([write, saved.segment_ids[0], 10**9])
        assert rows is not None
        assert (rows.thread, rows.epoch) == (T, saved.epoch)
        assert sorted(rows.checkpoints, key=lambda each: each.checkpoint_id) == [
            row(1, segments=saved.segment_ids),
            row(2, 1, 0, namespace="sub", metadata_id=5),
        ]
        assert sorted((each.segment_id, each.kind, each.payload, each.references) for each in rows.segments) == [
            (saved.segment_ids[0], VALUES, b"", ()),
            (saved.segment_ids[1], PAGES, b"p", (7,)),
            (write, WRITES, b"", ()),
        ]
        assert sorted(rows.metadata) == [(METADATA.metadata_id, "r"), (5, None)]
        assert sorted((each.segment_id, each.payload) for each in segments) == [
            (saved.segment_ids[0], b"v"),
            (write, b"writes"),
        ]

    async def test_changes_of_every_sort(self, storage: Storage) -> None:
        one = await save(storage, row(1), NewSegment(VALUES, b"v"))
        for number in (2, 3, 4):
            await save(storage, row(number, number - 1, number - 1))
        await save(storage, row(3, namespace="sub"))
        rewritten = row(3, None, 0, payload=b"anchor", segments=one.segment_ids, metadata_id=8, orphaned=True)
        changes = ThreadChanges(
            updates=(
                RowUpdate(rewritten, (NewSegment(PAGES, b"p", (1,)), NewSegment(VALUES, b"n"))),
                RowUpdate(row(77), (NewSegment(VALUES, b"nobody's"),)),
            ),
            delete_checkpoints=(("", key(1)), ("", key(2)), ("sub", key(1))),
            delete_segments=(10**12,),
            delete_metadata=(10**12,),
            new_metadata=(MetadataRow(8, "{}", b"8"), replace(METADATA, payload=b"unused")),
            marks=(("", key(4), True, True), ("", key(88), True, True)),
        )
        async with storage.edit(T.key) as edit:
            await edit.apply(changes)
            seen = await edit.rows()
        assert seen is not None
        assert len(seen.checkpoints) == 3
        chains = await load(storage, 3)
        assert chains.epoch != one.epoch
        new_ids = chains.rows[0].segments[:2]
        assert chains.rows == (replace(rewritten, segments=new_ids + one.segment_ids),)
        assert one.segment_ids < new_ids == tuple(sorted(new_ids))
        assert [each.payload for each in chains.metadata] == [b"8"]
        found = {each.segment_id: each for each in chains.segments}
        assert [(found[number].payload, found[number].references) for number in new_ids] == [(b"p", (1,)), (b"n", ())]
        checkpoints, _, metadata = await structure(storage)
        assert [each.key for each in checkpoints] == [("", key(3)), ("", key(4)), ("sub", key(3))]
        assert (checkpoints[1].hidden, checkpoints[1].orphaned) == (True, True)
        assert metadata == [(METADATA.metadata_id, None), (8, None)]
        await apply(storage, ThreadChanges(delete_segments=new_ids, delete_metadata=(8,)))
        assert (await load(storage, 3)).metadata == ()
        assert segments_of(await load(storage, 3)) == list(one.segment_ids)

    async def test_the_epoch_moves_when_something_is_removed_or_rewritten(self, storage: Storage) -> None:
        epochs = [(await save(storage, row(1))).epoch]
        for changes, moves in (
            (hide(1), False),
            (ThreadChanges(new_metadata=(MetadataRow(5, "{}", b""),)), False),
            (ThreadChanges(), False),
            (ThreadChanges(delete_metadata=(5,)), True),
            (ThreadChanges(delete_segments=(5,)), True),
            (ThreadChanges(updates=(RowUpdate(row(1)),)), True),
            (ThreadChanges(delete_checkpoints=(("", key(1)),)), True),
        ):
            await apply(storage, changes)
            epochs.append((await load(storage)).epoch)
            assert (epochs[-1] not in epochs[:-1]) is moves, changes

    @pytest.mark.parametrize("is_new", [True, False])
    async def test_a_whole_thread_is_written_at_once(self, storage: Storage, is_new: bool) -> None:
        before = None if is_new else await save(storage, row(9), NewSegment(VALUES, b"old"))
        await save(storage, row(9), thread=OTHER)
        async with storage.edit(T.key) as edit:
            await edit.restart(T)
            one, two, three = await edit.numbers(3)
            assert (before.segment_ids[-1] if before else 0) < one < two < three
            values = SegmentRow(one, VALUES, "", key(1), b"v")
            pages = SegmentRow(two, PAGES, "", key(1), b"p", (one,))
            await edit.insert(NewRows((row(1, segments=(one, two)),), (values, pages), (METADATA,)))
            writes = SegmentRow(three, WRITES, "", key(2), b"w")
            await edit.insert(NewRows((row(2, 1, 1, orphaned=True), row(3, namespace="sub")), (writes,), (METADATA,)))
            others = await storage.list_checkpoints(ListQuery(T.key))
            assert numbers_of([each.row.checkpoint_id for each in others]) == ([] if is_new else [9])
        chains = await load(storage, 2)
        assert before is None or chains.epoch != before.epoch
        assert chains.thread == T
        assert rows_of(chains) == [1, 2]
        found = {each.segment_id: each for each in chains.segments}
        assert found == {one: values, two: pages, three: writes}
        assert chains.metadata == (METADATA,) or json.loads(chains.metadata[0].document)["step"] == 1
        checkpoints, _, _ = await structure(storage)
        assert [each.key for each in checkpoints] == [("", key(1)), ("", key(2)), ("sub", key(3))]
        saved = await save(storage, row(4, 2, 2), NewSegment(VALUES, b"n"), epoch=chains.epoch)
        assert saved.segment_ids[0] > three

    async def test_documents_are_found_by_their_ids(self, storage: Storage) -> None:
        other = MetadataRow(5, '{"user": "ann"}', b"other")
        await save(storage, row(1))
        await save(storage, row(2, metadata_id=5), metadata=other)
        async with storage.edit(T.key) as edit:
            found = await edit.documents([5, METADATA.metadata_id, 10**9])
        assert sorted((each.metadata_id, each.payload) for each in found) == [
            (METADATA.metadata_id, METADATA.payload),
            (5, b"other"),
        ]
        assert [json.loads(each.document) for each in found if each.metadata_id == 5] == [{"user": "ann"}]
        async with storage.edit(OTHER.key) as edit:
            assert await edit.documents([5]) == []

    async def test_a_thread_is_removed_when_the_edit_ends(self, storage: Storage) -> None:
        await save(storage, row(1), NewSegment(VALUES, b"v"))
        await save_writes(storage, 9)
        await save(storage, row(1), thread=OTHER)
        before = await structure(storage)

        async def fail() -> None:
            async with storage.edit(T.key) as edit:
                await edit.remove()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await structure(storage) == before
        async with storage.edit(T.key) as edit:
            await edit.remove()
            assert rows_of(await load(storage, 1)) == [1]
            task = asyncio.create_task(storage.save(Save(T, row(2, 1, 1))))
            assert await stays_pending(task)
        assert await task is Refusal.DELETED
        assert await structure(storage) is None
        async with storage.edit(T.key) as edit:
            await edit.remove()
        assert await structure(storage, OTHER) is not None

    async def test_a_save_waits_for_a_thread_that_is_being_written(self, storage: Storage) -> None:
        async with storage.edit(T.key) as edit:
            await edit.restart(T)
            task = asyncio.create_task(storage.save(Save(T, row(2), metadata=METADATA)))
            assert await stays_pending(task)
            await edit.insert(NewRows((row(1),), (), (METADATA,)))
        assert isinstance(await task, Saved)
        assert rows_of(await load(storage, 1, 2)) == [1, 2]

    async def test_an_edit_that_fails_changes_nothing(self, storage: Storage) -> None:
        saved = await save(storage, row(1), NewSegment(VALUES, b"v"))
        before = await structure(storage)

        async def fail() -> None:
            async with storage.edit(T.key) as edit:
                await edit.apply(ThreadChanges(delete_checkpoints=(("", key(1)),), delete_segments=saved.segment_ids))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await structure(storage) == before
        await save(storage, row(2), epoch=saved.epoch)

    async def test_saves_wait_for_an_edit_and_are_refused_after_a_removal(self, storage: Storage) -> None:
        saved = await save(storage, row(1), NewSegment(VALUES, b"v"))
        async with storage.edit(T.key) as edit:
            task = asyncio.create_task(storage.save(Save(T, row(2, 1, 1), epoch=saved.epoch)))
            writes = SaveWrites(T, "", key(1), NewSegment(WRITES, b"w"), epoch=saved.epoch)
            writes_task = asyncio.create_task(storage.save_writes(writes))
            assert await stays_pending(task)
            assert await stays_pending(writes_task)
            await save(storage, row(1), thread=OTHER)
            await edit.apply(ThreadChanges(delete_segments=saved.segment_ids))
        assert await task is Refusal.STALE
        assert await writes_task is Refusal.STALE

    async def test_a_save_that_waited_sees_what_the_edit_did(self, storage: Storage) -> None:
        await save(storage, row(1))
        await save(storage, row(2, 1, 1))
        async with storage.edit(T.key) as edit:
            child = asyncio.create_task(storage.save(Save(T, row(3, 2, 2))))
            again = asyncio.create_task(storage.save(Save(T, row(1, payload=b"new"))))
            assert await stays_pending(child)
            assert await stays_pending(again)
            await edit.apply(hide(2))
            await edit.apply(ThreadChanges(delete_checkpoints=(("", key(1)),)))
        assert isinstance(await child, Saved)
        assert isinstance(await again, Saved)
        rows = {each.checkpoint_id: each for each in (await load(storage, 1, 3)).rows}
        assert rows[key(3)].orphaned, "its parent was hidden while it waited"
        assert rows[key(1)].payload == b"new", "its twin was deleted while it waited"

    async def test_deletions_and_edits_wait_for_an_edit(self, storage: Storage) -> None:
        await save(storage, row(1))
        async with storage.edit(T.key) as edit:
            deletion = asyncio.create_task(storage.delete_thread(T.key))
            assert await stays_pending(deletion)
            await edit.apply(hide(1))
        await deletion
        assert await storage.load_chains(T.key, "", None) is None
        await save(storage, row(1))
        async with storage.edit(T.key) as edit:
            second = asyncio.create_task(apply(storage, ThreadChanges(marks=(("", key(1), True, True),))))
            assert await stays_pending(second)
            await edit.apply(hide(1))
        await second
        assert (await structure(storage))[0] == [row(1, hidden=True, orphaned=True)]

    async def test_reads_do_not_wait_and_see_the_thread_as_it_was(self, storage: Storage) -> None:
        await save(storage, row(1))
        async with storage.edit(T.key) as edit:
            await edit.apply(ThreadChanges(delete_checkpoints=(("", key(1)),)))
            assert (await load(storage)).targets == (key(1),)
            assert len(await storage.list_checkpoints(ListQuery())) == 1
            assert await storage.copy_thread(T.key, OTHER)
        assert (await load(storage)).targets == ()
        assert len(await storage.list_checkpoints(ListQuery(OTHER.key))) == 1
