"""What loads promise."""

from __future__ import annotations

from dataclasses import replace

from deltastore.core.edits import RowUpdate, ThreadChanges
from deltastore.core.model import Known, MetadataRow, NewSegment
from deltastore.storage import Storage
from tests.contract.calls import (
    OTHER,
    PAGES,
    VALUES,
    T,
    apply,
    hide,
    key,
    load,
    numbers_of,
    row,
    rows_of,
    save,
    save_chain,
    save_writes,
    segments_of,
)


class LoadingContract:
    async def test_what_is_not_there(self, storage: Storage) -> None:
        assert await storage.load_chains(T.key, "", None) is None
        assert await storage.load_chains(T.key, "", [key(1)]) is None
        assert await storage.load_segments(T.key, [1, 2]) == []
        await save(storage, row(1))
        for chains in (
            await load(storage, namespace="sub"),
            await load(storage, 2),
            await load(storage, 1, namespace="s"),
        ):
            assert (chains.targets, chains.rows, chains.segments, chains.metadata) == ((), (), (), ())
        assert await storage.load_chains(T.key, "", []) == replace(chains, targets=())

    async def test_the_head_is_the_largest_visible_id(self, storage: Storage) -> None:
        for number in (5, 300, 2, 299):
            await save(storage, row(number))
        assert (await load(storage)).targets == (key(300),)
        await apply(storage, hide(300))
        assert (await load(storage)).targets == (key(299),)
        await apply(storage, ThreadChanges(marks=tuple(("", key(number), True, False) for number in (2, 5, 299))))
        assert (await load(storage)).targets == ()

    async def test_a_chain_ends_at_its_anchor(self, storage: Storage) -> None:
        await save_chain(storage, [1, 2, 3])
        await save(storage, row(4, 3, 0))
        await save(storage, row(5, 4, 1))
        assert rows_of(await load(storage)) == [4, 5]
        assert rows_of(await load(storage, 3)) == [1, 2, 3]
        assert rows_of(await load(storage, 4)) == [4]

    async def test_a_chain_follows_parents_not_the_order_of_ids(self, storage: Storage) -> None:
        await save_chain(storage, [50, 900, 7, 400])
        await save_chain(storage, [51, 901], namespace="sub")
        assert rows_of(await load(storage, 400)) == [7, 50, 400, 900]
        assert rows_of(await load(storage, 7)) == [7, 50, 900]

    async def test_forks_share_their_ancestors(self, storage: Storage) -> None:
        await save_chain(storage, [1, 2, 3])
        await save(storage, row(4, 2, 2))
        await save(storage, row(5, 4, 3))
        assert rows_of(await load(storage, 5)) == [1, 2, 4, 5]
        both = await load(storage, 5, 3, 5, 77)
        assert both.targets == (key(5), key(3))
        assert rows_of(both) == [1, 2, 3, 4, 5]

    async def test_a_row_that_does_not_fit_ends_the_chain(self, storage: Storage) -> None:
        for number in (1, 2, 3):
            await save(storage, row(number))
        changed = row(1, depth=5), row(2, 1, 2), row(3, 99, 1)
        await apply(storage, ThreadChanges(updates=tuple(map(RowUpdate, changed))))
        assert rows_of(await load(storage, 2)) == [2]
        assert rows_of(await load(storage, 3)) == [3]
        assert rows_of(await load(storage, 1)) == [1]

    async def test_hidden_rows_are_walked_and_are_no_targets(self, storage: Storage) -> None:
        await save_chain(storage, [1, 2, 3])
        await apply(storage, hide(2))
        chains = await load(storage, 3, 2, 1)
        assert chains.targets == (key(3), key(1))
        assert {each.checkpoint_id: each.hidden for each in chains.rows} == {key(1): False, key(2): True, key(3): False}
        asked = await load(storage, 2)
        assert (asked.targets, asked.metadata) == ((), ())
        assert rows_of(asked) == [1, 2], "a save may still build on it"

    async def test_segments_of_a_chain(self, storage: Storage) -> None:
        one = await save(storage, row(1), NewSegment(VALUES, b"1"), NewSegment(PAGES, b"p"), NewSegment(VALUES, b"1b"))
        write = await save_writes(storage, 1)
        two = await save(storage, row(2, 1, 1, segments=(one.segment_ids[0], write)), NewSegment(VALUES, b"2"))
        late = await save_writes(storage, 2)
        three = await save(storage, row(3, 2, 0, segments=(one.segment_ids[1],)), NewSegment(PAGES, b"q"))
        await save_writes(storage, 3, namespace="sub")
        await save_writes(storage, 3, thread=OTHER)
        assert segments_of(await load(storage, 1)) == [*one.segment_ids, write]
        assert segments_of(await load(storage, 2)) == sorted([*one.segment_ids, write, *two.segment_ids, late])
        assert segments_of(await load(storage, 3)) == sorted([one.segment_ids[1], *three.segment_ids])
        assert segments_of(await load(storage, 2, 3)) == sorted(
            [*one.segment_ids, write, *two.segment_ids, late, *three.segment_ids]
        )

    async def test_segments_of_another_namespace_can_be_named(self, storage: Storage) -> None:
        one = await save(storage, row(1, namespace="sub"), NewSegment(VALUES, b"v"))
        await save(storage, row(2, segments=one.segment_ids))
        assert [segment.namespace for segment in (await load(storage)).segments] == ["sub"]

    async def test_a_chain_ends_at_a_known_checkpoint(self, storage: Storage) -> None:
        await save_chain(storage, [1, 2, 3, 4])
        epoch = (await load(storage)).epoch
        for known, rows in (((2,), {2, 3, 4}), ((4, 2), {4}), ((9,), {1, 2, 3, 4}), ((), {1, 2, 3, 4})):
            chains = await load(storage, known=Known(epoch, tuple(map(key, known))))
            assert {numbers_of([each.checkpoint_id])[0] for each in chains.rows} == rows
            assert chains.targets == (key(4),)

    async def test_what_was_known_at_another_epoch_does_not_end_a_chain(self, storage: Storage) -> None:
        await save_chain(storage, [1, 2, 3])
        epoch = (await load(storage)).epoch
        assert len((await load(storage, known=Known(epoch + 1, (key(3),)))).rows) == 3

    async def test_pages_that_no_row_names_do_not_come(self, storage: Storage) -> None:
        one = await save(storage, row(1), NewSegment(PAGES, b"p"))
        await apply(storage, ThreadChanges(updates=(RowUpdate(row(1, segments=())),)))
        assert segments_of(await load(storage)) == []
        assert [segment.payload for segment in await storage.load_segments(T.key, one.segment_ids)] == [b"p"]

    async def test_metadata_is_that_of_the_targets(self, storage: Storage) -> None:
        for number in range(1, 4):
            metadata = MetadataRow(number, "{}", b"%d" % number)
            await save(storage, row(number, number - 1 or None, number - 1, metadata_id=number), metadata=metadata)
        assert [each.metadata_id for each in (await load(storage)).metadata] == [3]
        assert [each.metadata_id for each in (await load(storage, 2)).metadata] == [2]
        assert sorted(each.metadata_id for each in (await load(storage, 3, 1)).metadata) == [1, 3]

    async def test_segments_by_id(self, storage: Storage) -> None:
        one = await save(storage, row(1), *[NewSegment(VALUES, b"%d" % number) for number in range(5)])
        foreign = await save_writes(storage, 1, thread=OTHER)
        wanted = [one.segment_ids[3], one.segment_ids[1], foreign, 10**12, one.segment_ids[3]]
        found = await storage.load_segments(T.key, wanted)
        assert sorted((segment.segment_id, segment.payload) for segment in found) == [
            (one.segment_ids[1], b"1"),
            (one.segment_ids[3], b"3"),
        ]
        assert await storage.load_segments(T.key, []) == []
