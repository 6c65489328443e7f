"""What listings promise."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest

from deltastore.core.model import (
    ListEntry,
    ListQuery,
    MetadataRow,
)
from deltastore.errors import BrokenChainError
from deltastore.storage import Storage
from tests.contract.calls import OTHER, T, apply, hide, key, row, save, thread


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
