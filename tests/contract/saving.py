"""What saves promise."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import product

from deltastore.core.edits import ThreadChanges
from deltastore.core.model import MetadataRow, NewSegment, Refusal, Save, Saved, SaveWrites, ThreadRef
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
    segments_of,
    structure,
)


class SavingContract:
    async def test_a_saved_checkpoint_comes_back_whole(self, storage: Storage) -> None:
        await storage.setup()
        await save(storage, row(1, namespace="a|b:ü"), NewSegment(VALUES, b"old"), NewSegment(PAGES, b"", (1, 2**62)))
        older = (await load(storage, 1, namespace="a|b:ü")).rows[0].segments
        everything = bytes(range(256)) * 2000
        checkpoint = row(
            2, 1, 1, namespace="a|b:ü", segments=older, payload=everything, metadata_id=2**63 - 1, orphaned=True
        )
        document = '{"run_id": "r", "é\\n": [1.5, null, true, {"x": "\\\\u0000"}]}'
        metadata = MetadataRow(2**63 - 1, document, everything)
        saved = await save(
            storage, checkpoint, NewSegment(PAGES, b""), NewSegment(VALUES, everything, (5,)), metadata=metadata
        )

        chains = await load(storage, namespace="a|b:ü")
        assert chains.thread == T
        assert chains.epoch == saved.epoch
        assert chains.targets == (key(2),)
        assert {each.checkpoint_id: each for each in chains.rows}[key(2)] == replace(
            checkpoint, segments=saved.segment_ids + older
        )
        found = {segment.segment_id: segment for segment in chains.segments}
        assert [found[number].payload for number in (*older, *saved.segment_ids)] == [b"old", b"", b"", everything]
        assert [found[number].references for number in (*older, *saved.segment_ids)] == [(), (1, 2**62), (), (5,)]
        assert {(segment.kind, segment.namespace, segment.checkpoint_id) for segment in chains.segments} == {
            (kind, "a|b:ü", key(number)) for kind, number in product((VALUES, PAGES), (1, 2))
        }
        assert [(each.metadata_id, each.payload) for each in chains.metadata] == [(2**63 - 1, everything)]
        assert json.loads(chains.metadata[0].document) == json.loads(document)

    async def test_long_thread_ids_are_kept(self, storage: Storage) -> None:
        ref = ThreadRef(b"\0" * 16, "ü" * 10_000)
        await save(storage, row(1), thread=ref)
        chains = await storage.load_chains(ref.key, "", None)
        assert chains is not None
        assert chains.thread == ref

    async def test_segment_ids_grow(self, storage: Storage) -> None:
        first = await save(storage, row(1), *[NewSegment(VALUES, b"%d" % number) for number in range(20)])
        second = await save_writes(storage, 1)
        third = await save(storage, row(2), NewSegment(VALUES, b"v"))
        numbers = [*first.segment_ids, second, *third.segment_ids]
        assert numbers == sorted(set(numbers))
        chains = await load(storage, 1)
        payloads = {segment.segment_id: segment.payload for segment in chains.segments}
        assert [payloads[number] for number in first.segment_ids] == [b"%d" % number for number in range(20)]

    async def test_a_second_checkpoint_of_the_same_id_is_refused_and_stores_nothing(self, storage: Storage) -> None:
        saved = await save(storage, row(1))
        before = await structure(storage)
        again = Save(T, row(1, payload=b"other"), (NewSegment(VALUES, b"v"),), MetadataRow(9, "{}", b""), saved.epoch)
        assert await storage.save(again) is Refusal.EXISTS
        assert await storage.save(replace(again, epoch=None)) is Refusal.EXISTS
        assert await storage.save(replace(again, epoch=saved.epoch + 1)) is Refusal.EXISTS, "comes before STALE"
        assert await structure(storage) == before

    async def test_the_same_id_in_another_namespace_or_thread_is_another_checkpoint(self, storage: Storage) -> None:
        await save(storage, row(1))
        await save(storage, row(1, namespace="sub"))
        await save(storage, row(1), thread=OTHER)

    async def test_a_save_at_an_old_epoch_is_refused_and_stores_nothing(self, storage: Storage) -> None:
        saved = await save(storage, row(1), NewSegment(VALUES, b"v"))
        await apply(storage, ThreadChanges(delete_segments=saved.segment_ids))
        before = await structure(storage)
        stale = Save(T, row(2, 1, 1), (NewSegment(VALUES, b"v"),), MetadataRow(9, "{}", b""), epoch=saved.epoch)
        assert await storage.save(stale) is Refusal.STALE
        writes = SaveWrites(T, "", key(1), NewSegment(WRITES, b"w"), epoch=saved.epoch)
        assert await storage.save_writes(writes) is Refusal.STALE
        assert await structure(storage) == before
        current = await save(storage, row(2, 1, 1), NewSegment(VALUES, b"v"))
        assert current.epoch != saved.epoch
        await save(storage, row(3, 2, 2), epoch=current.epoch)
        await save_writes(storage, 3, epoch=current.epoch)

    async def test_a_refused_save_does_not_create_a_thread(self, storage: Storage) -> None:
        assert await storage.save(Save(T, row(1), metadata=METADATA, epoch=1)) is Refusal.STALE
        assert await storage.save_writes(SaveWrites(T, "", key(1), NewSegment(WRITES, b"w"), epoch=1)) is Refusal.STALE
        assert await storage.save(Save(T, row(2, 1, 1), metadata=METADATA, parent_writes=1)) is Refusal.STALE
        assert await storage.load_chains(T.key, "", None) is None

    async def test_the_parents_writes_are_counted(self, storage: Storage) -> None:
        await save(storage, row(1))
        await save_writes(storage, 1)
        await save_writes(storage, 1)
        await save_writes(storage, 2)
        await save_writes(storage, 1, namespace="sub")
        child = Save(T, row(3, 1, 1), (NewSegment(VALUES, b"v"),))
        for other in (0, 1, 3):
            assert await storage.save(replace(child, parent_writes=other)) is Refusal.STALE
        await save(storage, child.row, parent_writes=2)
        await save(storage, row(4, 3, 2), parent_writes=0)
        await save(storage, row(5), parent_writes=0)

    async def test_a_child_of_a_hidden_parent_is_orphaned(self, storage: Storage) -> None:
        await save(storage, row(1))
        await save(storage, row(1, namespace="sub"))
        await apply(storage, hide(1))
        await save(storage, row(2, 1, 1))
        await save(storage, row(2, 1, 1, namespace="sub"))
        await save(storage, row(3, 99))
        assert {each.checkpoint_id: each.orphaned for each in (await load(storage, 2, 3)).rows} == {
            key(1): False, key(2): True, key(3): False
        }  # fmt: skip
        assert not any(each.orphaned for each in (await load(storage, namespace="sub")).rows)

    async def test_a_delta_is_refused_unless_its_parent_is_there(self, storage: Storage) -> None:
        await save(storage, row(1))
        before = await structure(storage)
        for misfit in (row(2, 99, 1), row(2, 1, 2), row(2, 1, 1, namespace="sub")):
            new = (NewSegment(VALUES, b"v"),)
            assert await storage.save(Save(T, misfit, new, replace(METADATA, metadata_id=5))) is Refusal.STALE
        assert await structure(storage) == before

    async def test_metadata_is_stored_once(self, storage: Storage) -> None:
        await save(storage, row(1))
        await save(storage, row(2), metadata=replace(METADATA, payload=b"another"))
        await save(storage, row(3), metadata=None)
        assert (await load(storage, 3)).metadata[0].payload == b"metadata"

    async def test_writes_may_come_before_their_checkpoint(self, storage: Storage) -> None:
        number = await save_writes(storage, 1, b"early")
        chains = await load(storage)
        assert (chains.targets, chains.rows, chains.segments) == ((), (), ())
        await save(storage, row(1))
        assert segments_of(await load(storage)) == [number]

    async def test_saves_at_the_same_moment(self, storage: Storage) -> None:
        first = [Save(T, row(number), (NewSegment(VALUES, b"v"),), METADATA) for number in range(20)]
        same = [Save(T, row(99, payload=b"%d" % n), (NewSegment(VALUES, b"v"),), METADATA) for n in range(20)]
        writes = [SaveWrites(T, "", key(99), NewSegment(WRITES, b"%d" % number)) for number in range(20)]
        answers = await asyncio.gather(
            *map(storage.save, first), *map(storage.save, same), *map(storage.save_writes, writes)
        )
        saved = [answer for answer in answers if isinstance(answer, Saved)]
        assert len(saved) == 41
        assert len({answer.epoch for answer in saved}) == 1
        assert [answer for answer in answers if isinstance(answer, Refusal)] == [Refusal.EXISTS] * 19
        checkpoints, segments, metadata = await structure(storage)
        assert len(checkpoints) == 21
        assert len(segments) == 41
        assert metadata == [(METADATA.metadata_id, None)]
