"""What packs promise: a storage hands them out for all that they hold, and for all writes that they may hold."""

from __future__ import annotations

from dataclasses import replace

from deltastore.core.edits import ThreadChanges
from deltastore.core.model import NewSegment, Refusal, Save, SegmentKind, SegmentRow
from deltastore.core.statistics import Volume
from deltastore.storage import Storage
from tests.contract.calls import (
    OTHER,
    PAGES,
    VALUES,
    WRITES,
    T,
    apply,
    key,
    load,
    row,
    save,
    save_chain,
    save_writes,
    segments_of,
    structure,
)


def pack_of(*ids: int, first: int, last: int, references: tuple[int, ...] = ()) -> SegmentRow:
    return SegmentRow(max(ids), SegmentKind.PACK, "", key(last), b"pack %d" % max(ids), references, key(first))


async def packed(storage: Storage, *packs: tuple[SegmentRow, tuple[int, ...]]) -> None:
    """Exchanges segments for packs."""
    gone = tuple(each for _, ids in packs for each in ids)
    await apply(storage, ThreadChanges(delete_segments=gone, packs=tuple(pack for pack, _ in packs)))


async def two_packs(storage: Storage) -> tuple[list[int], list[int]]:
    """Checkpoints 1 to 6, each with values and writes, those of 1 to 4 in two packs; ids of values and of writes."""
    values: list[int] = []
    writes: list[int] = []
    for number in range(1, 7):
        saved = await save(storage, row(number, number - 1 or None, number - 1), NewSegment(VALUES, b"v"))
        values += saved.segment_ids
        writes.append(await save_writes(storage, number))
    one, two = (*values[:2], *writes[:2]), (*values[2:4], *writes[2:4])
    await packed(storage, (pack_of(*one, first=1, last=2), one), (pack_of(*two, first=3, last=4), two))
    return values, writes


class PackingContract:
    async def test_segments_are_found_in_their_packs(self, storage: Storage) -> None:
        values, writes = await two_packs(storage)
        wanted = [values[0], values[1], values[3], values[4], 10**12]
        found = await storage.load_segments(T.key, wanted)
        assert sorted(each.segment_id for each in found) == [writes[1], writes[3], values[4]]
        assert {each.kind for each in found if each.segment_id != values[4]} == {SegmentKind.PACK}
        assert [each.segment_id for each in await storage.load_segments(T.key, [writes[1]])] == [writes[1]]
        async with storage.view(T.key) as view:
            assert {each.segment_id for each in await view.segments(wanted)} == {writes[1], writes[3], values[4]}

    async def test_a_chain_comes_with_packs_of_its_segments_and_of_its_writes(self, storage: Storage) -> None:
        values, writes = await two_packs(storage)
        assert segments_of(await load(storage, 2)) == [writes[1]]
        assert segments_of(await load(storage, 4)) == [writes[1], writes[3]]
        everything = sorted([writes[1], writes[3], *values[4:], *writes[4:]])
        assert segments_of(await load(storage)) == everything
        structures = await storage.load_structures(T.key, "", [key(6)])
        assert structures is not None
        assert segments_of(structures) == sorted([writes[1], writes[3], *writes[4:]])

    async def test_a_pack_that_a_chain_names_comes_without_writes_in_it(self, storage: Storage) -> None:
        saved = await save(storage, row(5), NewSegment(PAGES, b"p"), NewSegment(PAGES, b"q"))
        one, two = saved.segment_ids
        await packed(storage, (pack_of(one, first=5, last=5), (one,)))
        await save(storage, row(9, segments=(one, two)))
        assert segments_of(await load(storage, 9)) == [one, two]
        await save(storage, row(7))
        assert segments_of(await load(storage, 7)) == []

    async def test_what_writes_repeat_is_found_in_packs_too(self, storage: Storage) -> None:
        [old] = (await save(storage, row(1), NewSegment(VALUES, b"old"))).segment_ids
        [more] = (await save(storage, row(2), NewSegment(VALUES, b"more"))).segment_ids
        await packed(storage, (pack_of(old, first=1, last=1), (old,)))
        await packed(storage, (pack_of(more, first=2, last=2, references=(old,)), (more,)))
        assert {each.segment_id for each in await storage.load_segments(T.key, [more])} == {old, more}
        new = await save_writes(storage, 2, segment=NewSegment(WRITES, b"new", (more,)))
        found = await storage.load_segments(T.key, [new])
        assert {each.segment_id for each in found} >= {more, new}

    async def test_writes_in_packs_are_not_counted(self, storage: Storage) -> None:
        await save_chain(storage, [1, 2])
        writes = [await save_writes(storage, 2) for _ in range(2)]
        epoch = (await load(storage, 2)).epoch
        save_three = Save(T, row(3, 2, 2), epoch=epoch, parent_writes=2)
        await packed(storage, (pack_of(*writes, first=2, last=2), tuple(writes)))
        assert await storage.save(save_three) is Refusal.STALE
        now = (await load(storage, 2)).epoch
        assert now > epoch
        assert await storage.save(replace(save_three, epoch=now)) is Refusal.STALE
        await save(storage, row(3, 2, 2), epoch=now, parent_writes=0, metadata=None)
        later = await save_writes(storage, 2)
        assert later > writes[1]
        assert await storage.save(Save(T, row(4, 2, 2), epoch=now, parent_writes=0)) is Refusal.STALE
        assert segments_of(await load(storage, 2)) == [writes[1], later]

    async def test_a_save_says_whether_its_writes_may_be_packed_already(self, storage: Storage) -> None:
        await save(storage, row(1))
        early = [await save_writes(storage, number) for number in (3, 5)]
        await packed(storage, (pack_of(*early, first=3, last=5), tuple(early)))
        answers = [await save(storage, row(number, 1, 1), metadata=None) for number in (2, 3, 4, 5, 6)]
        assert [answer.is_amid_packs for answer in answers] == [False, True, True, True, False]
        assert segments_of(await load(storage, 3)) == [early[1]]

    async def test_packs_are_part_of_the_structure_and_of_copies(self, storage: Storage) -> None:
        values, writes = await two_packs(storage)
        async with storage.edit(T.key) as edit:
            rows = await edit.rows()
            assert rows is not None
            packs = [each for each in rows.segments if each.kind is SegmentKind.PACK]
            assert sorted(each.payload for each in packs) == sorted(
                b"pack %d" % each for each in (writes[1], writes[3])
            )
            assert await edit.is_still(rows)
            assert rows.stored_ids == {writes[1], writes[3], *values[4:], *writes[4:]}
        await storage.copy_thread(T.key, OTHER)
        assert await structure(storage, OTHER) == await structure(storage)
        assert {each.segment_id for each in await storage.load_segments(OTHER.key, values[:1])} == {writes[1]}
        await save(storage, row(7, 6, 6), NewSegment(VALUES, b"new"), thread=OTHER)
        chains = await storage.load_chains(OTHER.key, "", [key(4)])
        assert chains is not None
        assert segments_of(chains) == [writes[1], writes[3]]

    async def test_packs_are_counted_and_surveyed_as_rows(self, storage: Storage) -> None:
        _, writes = await two_packs(storage)
        counts = await storage.count([], 10)
        assert counts.volumes["packs"] == Volume(2, sum(len(b"pack %d" % each) for each in (writes[1], writes[3])))
        async with storage.survey(T.key) as survey:
            heads = (await survey.rows()).segments
            [pack] = await survey.payloads([writes[3]])
        assert sum(each.kind == SegmentKind.PACK for each in heads) == 2
        assert (pack.first_checkpoint_id, pack.checkpoint_id) == (key(3), key(4))

    async def test_packs_go_with_the_thread_and_count_for_its_tombstone(self, storage: Storage) -> None:
        await save(storage, row(1))
        late = await save_writes(storage, 9)
        await packed(storage, (pack_of(late, first=9, last=9), (late,)))
        await storage.delete_thread(T.key)
        assert await storage.load_segments(T.key, [late]) == []
        assert await storage.save(Save(T, row(10, 9), held_id=key(9))) is Refusal.DELETED
