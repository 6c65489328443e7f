"""What lists of threads and of namespaces promise."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from deltastore.core.edits import ThreadChanges
from deltastore.core.model import MetadataRow, NewSegment, ThreadRef
from deltastore.core.overview import NamespaceEntry, ThreadEntry, ThreadsQuery
from deltastore.storage import Storage
from tests.contract.calls import OTHER, PAGES, VALUES, T, key, row, save, save_writes, thread


async def listed(storage: Storage, query: ThreadsQuery) -> list[tuple[str, int | None]]:
    """Thread ids, and the number of their newest visible checkpoint."""
    entries = await storage.newest_threads(query)
    numbers = [None if each.head is None else int.from_bytes(each.head.row.checkpoint_id[1:]) for each in entries]
    return [(entry.thread.thread_id, number) for entry, number in zip(entries, numbers, strict=True)]


async def hide(storage: Storage, ref: ThreadRef, number: int, namespace: str = "") -> None:
    async with storage.edit(ref.key) as edit:
        await edit.apply(ThreadChanges(marks=((namespace, key(number), True, False),)))


class OverviewContract:
    async def make_threads(self, storage: Storage) -> None:
        """Threads `a` to `d` by age, the newest first; `e` has no checkpoint in the root namespace, `f` none at all."""
        for position, name in enumerate("dcba"):
            for number in (position * 10 + 1, position * 10 + 2):
                metadata = MetadataRow(number, json.dumps({"of": name, "first": number % 10 == 1}), b"m")
                await save(storage, row(number, metadata_id=number), thread=thread(name), metadata=metadata)
        await save(storage, row(99, namespace="sub"), thread=thread("e"))
        await save_writes(storage, 98, thread=thread("f"))

    async def test_newest_first_with_their_heads(self, storage: Storage) -> None:
        assert await storage.newest_threads(ThreadsQuery()) == []
        await self.make_threads(storage)
        entries = await storage.newest_threads(ThreadsQuery())
        assert [entry.cursor for entry in entries] == sorted((entry.cursor for entry in entries), reverse=True)
        head = entries[0].head
        assert head is not None
        assert (head.thread, head.row) == (thread("a"), row(32, metadata_id=32))
        assert (head.metadata.payload, json.loads(head.metadata.document)) == (b"m", {"of": "a", "first": False})
        found = await listed(storage, ThreadsQuery())
        assert found == [("a", 32), ("b", 22), ("c", 12), ("d", 2), ("f", None), ("e", None)]

    async def test_marks_of_threads(self, storage: Storage) -> None:
        await self.make_threads(storage)
        assert await storage.pin(thread("b").key, True)
        entries = await storage.newest_threads(ThreadsQuery())
        assert [each.thread.thread_id for each in entries if each.pinned] == ["b"]
        for document in (None, "{}"):
            assert await listed(storage, ThreadsQuery(document, pinned=True)) == [("b", 22)]
        assert await listed(storage, ThreadsQuery(json.dumps({"of": "a"}), pinned=True)) == []
        ages_seconds = [(datetime.now(UTC) - each.created_at).total_seconds() for each in entries]
        assert all(abs(age) < 60 for age in ages_seconds)

    async def test_pages_follow_each_other(self, storage: Storage) -> None:
        await self.make_threads(storage)
        everything = await storage.newest_threads(ThreadsQuery())
        for limit in (1, 2, 3, 6):
            query, pages = ThreadsQuery(limit=limit), list[ThreadEntry]()
            while page := await storage.newest_threads(query):
                assert len(page) <= limit
                pages += page
                query = replace(query, cursor=page[-1].cursor)
            assert pages == everything

    async def test_metadata_of_any_visible_checkpoint(self, storage: Storage) -> None:
        await self.make_threads(storage)
        assert await listed(storage, ThreadsQuery('{"of": "b"}')) == [("b", 22)]
        first = ThreadsQuery('{"first": true}', limit=2)
        assert await listed(storage, first) == [("a", 32), ("b", 22)]
        cursor = (await storage.newest_threads(first))[-1].cursor
        assert await listed(storage, replace(first, cursor=cursor)) == [("c", 12), ("d", 2)]
        await hide(storage, thread("b"), 21)
        assert [name for name, _ in await listed(storage, replace(first, limit=9))] == ["a", "c", "d"]
        assert await listed(storage, ThreadsQuery('{"of": "b"}')) == [("b", 22)]
        assert await listed(storage, ThreadsQuery('{"of": "nobody"}')) == []

    async def test_a_deleted_newest_checkpoint_keeps_the_place(self, storage: Storage) -> None:
        await self.make_threads(storage)
        await hide(storage, thread("a"), 32)
        assert (await listed(storage, ThreadsQuery()))[0] == ("a", 31)
        await hide(storage, thread("a"), 31)
        assert (await listed(storage, ThreadsQuery()))[0] == ("a", None)

    async def test_structures_are_chains_without_values(self, storage: Storage) -> None:
        await save(storage, row(1), NewSegment(VALUES, b"v"), NewSegment(PAGES, b"p"))
        await save(storage, row(2, 1, 1), NewSegment(VALUES, b"v"))
        await save(storage, row(3, 2, 2))
        await save_writes(storage, 2)
        await save(storage, row(4), NewSegment(VALUES, b"v"))
        for wanted in ([key(3)], [key(3), key(4)], [key(1), key(9)], []):
            chains = await storage.load_chains(T.key, "", wanted)
            structures = await storage.load_structures(T.key, "", wanted)
            assert chains is not None
            assert structures is not None
            assert structures.targets == chains.targets
            assert sorted(structures.rows, key=lambda each: each.checkpoint_id) == sorted(
                chains.rows, key=lambda each: each.checkpoint_id
            )
            expected = [each for each in chains.segments if each.kind is not VALUES]
            assert sorted(structures.segments, key=lambda each: each.segment_id) == sorted(
                expected, key=lambda each: each.segment_id
            )
            assert (structures.epoch, structures.thread, structures.metadata) == (chains.epoch, T, ())
        assert await storage.load_structures(OTHER.key, "", [key(3)]) is None

    async def test_namespaces(self, storage: Storage) -> None:
        names = ["", "a", "a|b", "a:1|b", "ä", "東"]
        for name in names:
            for number in (1, 2, 3):
                await save(storage, row(number, namespace=name))
        await save(storage, row(1, namespace="x"), thread=OTHER)
        await hide(storage, T, 3)
        ordered = sorted(names, key=str.encode)
        expected = [NamespaceEntry(name, key(2 if name == "" else 3)) for name in ordered]
        assert await storage.namespaces(T.key, None, 100) == expected
        assert await storage.namespaces(T.key, None, 2) == expected[:2]
        for position, name in enumerate(ordered):
            assert await storage.namespaces(T.key, name, 2) == expected[position + 1 : position + 3]
        assert await storage.namespaces(T.key, "a:0", 1) == [NamespaceEntry("a:1|b", key(3))]
        assert await storage.namespaces(b"unknown".ljust(16), None, 9) == []

    async def test_hidden_namespaces_are_left_out(self, storage: Storage) -> None:
        for name in ("", "gone", "kept"):
            await save(storage, row(1, namespace=name))
        await hide(storage, T, 1, "gone")
        assert [each.namespace for each in await storage.namespaces(T.key, None, 9)] == ["", "kept"]
