"""What every storage promises, as tests. A subclass gives the fixture `storage`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from deltastore.core.model import (
    Chains,
    CheckpointRow,
    Known,
    ListEntry,
    ListQuery,
    MetadataRow,
    NewRows,
    NewSegment,
    Refusal,
    RowUpdate,
    Save,
    Saved,
    SaveWrites,
    SegmentKind,
    SegmentRow,
    ThreadChanges,
    ThreadRef,
)
from deltastore.errors import BrokenChainError
from deltastore.storage import Storage

VALUES, PAGES, WRITES = SegmentKind.VALUES, SegmentKind.PAGES, SegmentKind.WRITES
METADATA = MetadataRow(-7, '{"source": "loop", "step": 1}', b"metadata")


def thread(name: str) -> ThreadRef:
    return ThreadRef(name.encode().ljust(16, b"."), name)


def key(number: int) -> bytes:
    return b"\x01" + number.to_bytes(16, "big")


def row(number: int, parent: int | None = None, depth: int = 0, **fields: Any) -> CheckpointRow:
    stored = CheckpointRow(
        namespace="",
        checkpoint_id=key(number),
        parent_id=None if parent is None else key(parent),
        depth=depth,
        segments=(),
        payload=b"payload %d" % number,
        metadata_id=METADATA.metadata_id,
    )
    return replace(stored, **fields)


T = thread("t1")
OTHER = thread("t10")


async def save(storage: Storage, checkpoint: CheckpointRow, *segments: NewSegment, **fields: Any) -> Saved:
    answer = await storage.save(
        Save(**{"thread": T, "metadata": METADATA, **fields}, row=checkpoint, new_segments=segments)
    )
    assert isinstance(answer, Saved), answer
    return answer


async def save_writes(storage: Storage, number: int, payload: bytes = b"writes", **fields: Any) -> int:
    segment = NewSegment(WRITES, payload)
    call = SaveWrites(**{"thread": T, "namespace": "", "checkpoint_id": key(number), "segment": segment, **fields})
    answer = await storage.save_writes(call)
    assert isinstance(answer, Saved), answer
    assert len(answer.segment_ids) == 1
    return answer.segment_ids[0]


async def save_chain(storage: Storage, numbers: Sequence[int], **fields: Any) -> None:
    """An anchor and its descendants, one after the other."""
    for depth, number in enumerate(numbers):
        parent = numbers[depth - 1] if depth else None
        await save(storage, row(number, parent, depth, **fields))


async def load(storage: Storage, *numbers: int, namespace: str = "", known: Known | None = None) -> Chains:
    wanted = [key(number) for number in numbers] or None
    chains = await storage.load_chains(T.key, namespace, wanted, known)
    assert chains is not None
    return chains


def numbers_of(keys: Sequence[bytes]) -> list[int]:
    return [int.from_bytes(each[1:], "big") for each in keys]


def rows_of(chains: Chains) -> list[int]:
    return sorted(numbers_of([each.checkpoint_id for each in chains.rows]))


def segments_of(chains: Chains) -> list[int]:
    return sorted(segment.segment_id for segment in chains.segments)


async def structure(storage: Storage, ref: ThreadRef = T):
    """Everything that a thread has, in a fixed order; None if there is no such thread."""
    async with storage.edit(ref.key) as edit:
        rows = await edit.rows()
        if rows is None:
            return None
        segments = await edit.segments([segment.segment_id for segment in rows.segments])
    return (
        sorted(rows.checkpoints, key=lambda checkpoint: checkpoint.key),
        sorted(segments, key=lambda segment: segment.segment_id),
        sorted(rows.metadata),
    )


async def apply(storage: Storage, changes: ThreadChanges) -> None:
    async with storage.edit(T.key) as edit:
        await edit.apply(changes)


def hide(number: int) -> ThreadChanges:
    return ThreadChanges(marks=(("", key(number), True, False),))


async def stays_pending(task: asyncio.Task[object]) -> bool:
    await asyncio.wait({task}, timeout=0.2)
    return not task.done()


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
        await save(storage, row(3, 99, 1))
        assert {each.checkpoint_id: each.orphaned for each in (await load(storage, 2, 3)).rows} == {
            key(1): False, key(2): True, key(3): False
        }  # fmt: skip
        assert not any(each.orphaned for each in (await load(storage, namespace="sub")).rows)

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
        await save(storage, row(1, depth=5))
        await save(storage, row(2, 1, 2))
        await save(storage, row(3, 99, 1))
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


class ListingContract:
    async def fill(self, storage: Storage) -> list[ListEntry]:
        """Three threads with two namespaces; what an unlimited listing gives."""
        for ref, namespace, number in product((T, OTHER, thread("z")), ("", "sub"), range(6)):
            document = json.dumps({"step": number, "thread": ref.thread_id, "tags": ["a", number]})
            metadata = MetadataRow(number, document, b"%d" % number)
            await save(storage, row(number, namespace=namespace, metadata_id=number), thread=ref, metadata=metadata)
        await apply(storage, hide(3))
        return await storage.list_checkpoints(ListQuery(limit=1000))

    async def test_newest_first_then_by_thread_and_namespace(self, storage: Storage) -> None:
        entries = await self.fill(storage)
        assert len(entries) == 35
        assert [entry.cursor for entry in entries] == sorted((entry.cursor for entry in entries), reverse=True)
        assert not any(entry.row.hidden for entry in entries)
        first = entries[0]
        assert (first.thread, first.row) == (thread("z"), row(5, namespace="sub", metadata_id=5))
        assert (first.metadata.metadata_id, first.metadata.payload) == (5, b"5")
        assert json.loads(first.metadata.document) == {"step": 5, "thread": "z", "tags": ["a", 5]}

    @pytest.mark.parametrize("thread_key", [None, T.key, b"unknown".ljust(16)])
    @pytest.mark.parametrize("namespace", [None, "", "sub"])
    async def test_every_condition_by_itself_and_together(
        self, storage: Storage, thread_key: bytes | None, namespace: str | None
    ) -> None:
        everything = await self.fill(storage)
        for checkpoint_id, before, document in product(
            (None, key(2), key(3)),
            (None, key(2), key(3)),
            (None, '{"step": 2}', '{"tags": ["a", "a"]}', '{"step": "2"}'),
        ):
            query = ListQuery(thread_key, namespace, checkpoint_id, before, document)
            expected = [
                entry
                for entry in everything
                if thread_key in (None, entry.thread.key)
                and namespace in (None, entry.row.namespace)
                and checkpoint_id in (None, entry.row.checkpoint_id)
                and (before is None or entry.row.checkpoint_id < before)
                and (document is None or "a" in document or (document.endswith(" 2}") and entry.row.metadata_id == 2))
            ]
            assert await storage.list_checkpoints(query) == expected, query
            for number, entry in enumerate(expected[:5], start=1):
                page = replace(query, cursor=entry.cursor, limit=2)
                assert await storage.list_checkpoints(page) == expected[number : number + 2], page

    @pytest.mark.parametrize("limit", [1, 2, 7, 100])
    async def test_pages_join_to_the_whole(self, storage: Storage, limit: int) -> None:
        everything = await self.fill(storage)
        for thread_key, namespace in product((None, T.key), (None, "sub")):
            query, pages = ListQuery(thread_key, namespace, limit=limit), []
            while page := await storage.list_checkpoints(query):
                assert len(page) <= limit
                pages += page
                query = replace(query, cursor=page[-1].cursor)
            assert pages == [
                entry
                for entry in everything
                if thread_key in (None, entry.thread.key) and namespace in (None, entry.row.namespace)
            ]

    async def test_a_missing_metadata_document_is_an_error(self, storage: Storage) -> None:
        await save(storage, row(1), metadata=None)
        for query in (ListQuery(), ListQuery(T.key), ListQuery(T.key, ""), ListQuery(T.key, "", key(1))):
            with pytest.raises(BrokenChainError, match="t1"):
                await storage.list_checkpoints(query)


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
        await save(storage, row(2, 1, 1, namespace="sub", orphaned=True))
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
        await save(storage, row(2, 1, 1, namespace="sub", metadata_id=5), metadata=MetadataRow(5, "{}", b""))
        write = await save_writes(storage, 9)
        async with storage.edit(T.key) as edit:
            rows = await edit.rows()
            segments = await edit.segments([write, saved.segment_ids[0], 10**9])
        assert rows is not None
        assert (rows.thread, rows.epoch) == (T, saved.epoch)
        assert sorted(rows.checkpoints, key=lambda each: each.checkpoint_id) == [
            row(1, segments=saved.segment_ids),
            row(2, 1, 1, namespace="sub", metadata_id=5),
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


class StorageContract(SavingContract, LoadingContract, ListingContract, ThreadsContract, EditingContract):
    """All of it."""
