"""What surveys, repairs and counts promise."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from deltastore.core.edits import ThreadChanges
from deltastore.core.model import NewSegment, Refusal, Save
from deltastore.core.statistics import Day, Volume
from deltastore.core.survey import Removal, Repairs
from deltastore.storage import Storage
from tests.contract.calls import (
    METADATA,
    OTHER,
    PAGES,
    VALUES,
    T,
    key,
    load,
    row,
    save,
    save_chain,
    save_writes,
    stays_pending,
    structure,
    thread,
)

NOTHING = Repairs(T, drops_copies=False, removals=(), changes=ThreadChanges(), documents=())


class SurveyingContract:
    async def test_keys_in_order_and_in_pages(self, storage: Storage) -> None:
        threads = sorted((thread(f"t{number}") for number in range(7)), key=lambda each: each.key)
        for each in threads:
            await save(storage, row(1), thread=each)
        keys = [each.key for each in threads]
        assert await storage.survey_keys(b"", 100) == keys
        assert await storage.survey_keys(b"", 3) == keys[:3]
        assert await storage.survey_keys(keys[2], 3) == keys[3:6]
        assert await storage.survey_keys(keys[6], 3) == []

    async def test_a_survey_of_nothing(self, storage: Storage) -> None:
        async with storage.survey(T.key) as survey:
            assert (await survey.rows()).is_empty
            assert await survey.payloads([1, 2]) == []

    async def test_all_rows_with_payloads_apart(self, storage: Storage) -> None:
        saved = await save(storage, row(1), NewSegment(VALUES, b"values"), NewSegment(PAGES, b"page", (5, 6)))
        writes = await save_writes(storage, 1)
        await save(storage, row(1), thread=OTHER)
        async with storage.survey(T.key) as survey:
            rows = await survey.rows()
            payloads = await survey.payloads([saved.segment_ids[1], writes, 10**9])
        assert [each.thread_id for each in rows.threads] == [T.thread_id]
        assert [each.key for each in rows.checkpoints] == [("", key(1))]
        assert [each.metadata_id for each in rows.metadata] == [METADATA.metadata_id]
        heads = {each.segment_id: (each.kind, each.references, each.payload_bytes) for each in rows.segments}
        assert heads == {saved.segment_ids[0]: (1, (), 6), saved.segment_ids[1]: (2, (5, 6), 4), writes: (3, (), 6)}
        assert sorted(each.payload for each in payloads) == [b"page", b"writes"]

    async def test_a_survey_is_of_one_moment_and_holds_up_nobody(self, storage: Storage) -> None:
        await save_chain(storage, [1, 2])
        async with storage.survey(T.key) as survey:
            before = await survey.rows()
            await asyncio.wait_for(save(storage, row(3, 2, 2)), 5)
            await asyncio.wait_for(storage.delete_thread(T.key), 5)
            assert await survey.rows() == before
            assert len(before.checkpoints) == 2

    async def test_a_repair_moves_rows_away(self, storage: Storage) -> None:
        first = await save(storage, row(1), NewSegment(VALUES, b"one"))
        await save(storage, row(2), NewSegment(VALUES, b"two"))
        removals = (
            Removal("damaged", checkpoint=("", key(1))),
            Removal("damaged", segment_id=first.segment_ids[0]),
            Removal("damaged", metadata_id=METADATA.metadata_id),
            Removal("not there", checkpoint=("", key(9))),
        )
        async with storage.repair(T.key) as repair:
            assert len((await repair.rows()).checkpoints) == 2
            await repair.apply(replace(NOTHING, removals=removals))
        async with storage.survey(T.key) as survey:
            rows = await survey.rows()
        assert [each.checkpoint_id for each in rows.checkpoints] == [key(2)]
        assert len(rows.segments) == 1
        assert rows.metadata == ()
        assert rows.quarantined == 3
        await storage.delete_thread(T.key)
        await save(storage, row(1), thread=OTHER)
        async with storage.survey(T.key) as survey:
            assert (await survey.rows()).quarantined == 0

    async def test_a_repair_moves_the_epoch_on(self, storage: Storage) -> None:
        saved = await save(storage, row(1))
        async with storage.repair(T.key) as repair:
            await repair.apply(NOTHING)
        refused = await storage.save(Save(T, row(2, 1, 1), metadata=METADATA, epoch=saved.epoch))
        assert refused is Refusal.STALE

    async def test_a_repair_rewrites_the_searchable_form(self, storage: Storage) -> None:
        await save(storage, row(1))
        async with storage.repair(T.key) as repair:
            await repair.apply(replace(NOTHING, documents=((METADATA.metadata_id, '{"other": 1}'),)))
        async with storage.survey(T.key) as survey:
            [document] = (await survey.rows()).metadata
        assert (document.document.replace(" ", ""), document.payload) == ('{"other":1}', METADATA.payload)

    async def test_a_repair_that_fails_does_nothing(self, storage: Storage) -> None:
        await save(storage, row(1))
        before = await structure(storage)

        async def fail() -> None:
            async with storage.repair(T.key) as repair:
                await repair.apply(replace(NOTHING, removals=(Removal("damaged", checkpoint=("", key(1))),)))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await structure(storage) == before

    async def test_saves_wait_for_a_repair(self, storage: Storage) -> None:
        await save(storage, row(1))
        async with storage.repair(T.key) as repair:
            task = asyncio.create_task(storage.save(Save(T, row(2, 1, 1), metadata=METADATA)))
            assert await stays_pending(task)
            await repair.apply(replace(NOTHING, removals=(Removal("damaged", checkpoint=("", key(1))),)))
        assert await task is Refusal.STALE

    async def test_counts(self, storage: Storage) -> None:
        for depth, number in enumerate((1, 2, 3, 14)):
            await save(storage, row(number, (None, 1, 2, 3)[depth], depth), thread=OTHER)
        await save(storage, row(15, payload=b"x" * 1000), NewSegment(VALUES, b"values"), NewSegment(PAGES, b"page"))
        await save_writes(storage, 15, b"writes!")
        await save_writes(storage, 14, b"writes", thread=OTHER)
        found = await storage.count([(100, key(3)), (200, key(14)), (300, key(15))], 1)
        assert (found.threads, found.checkpoints, found.hidden) == (2, 5, 0)
        assert found.volumes["values"] == Volume(1, 6)
        assert found.volumes["pages"] == Volume(1, 4)
        assert found.volumes["writes"] == Volume(2, 13)
        assert found.volumes["metadata"] == Volume(2, 2 * len(METADATA.payload))
        assert found.volumes["checkpoints"].rows == 5
        chains = found.chains
        assert (chains.anchors, chains.mean_steps, chains.p95_steps, chains.max_steps) == (2, 1.2, 3, 3)
        days = (Day(100, 1, len(b"payload 3")), Day(200, 1, len(b"payload 14") + 6), Day(300, 1, 1000 + 6 + 4 + 7))
        assert found.days == days
        assert [(each.thread_id, each.checkpoints, each.payload_bytes) for each in found.largest] == [
            (T.thread_id, 1, 1017)
        ]
        assert found.fastest == found.largest
        own = await storage.count_days(OTHER.key, [(100, key(3)), (200, key(14))])
        assert own == (Day(100, 1, 9), Day(200, 1, 16))
        assert (await load(storage, 15)).targets == (key(15),)
