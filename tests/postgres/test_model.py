"""PostgreSQL and dicts answer alike to the same calls, whatever they are."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from deltastore.core.edits import RowUpdate, ThreadChanges
from deltastore.core.model import (
    Chains,
    Known,
    ListQuery,
    MetadataRow,
    NewSegment,
    Save,
    Saved,
    SaveWrites,
    SegmentKind,
)
from deltastore.memory import MemoryStorage
from deltastore.postgres.storage import PostgresStorage
from deltastore.storage import Storage
from tests.contract.calls import key, row, structure, thread

THREADS = [thread(name) for name in ("a", "b")]
NAMESPACES = ("", "ü|x")
DOCUMENTS = ("{}", '{"step": 1}', '{"step": 1.0, "run_id": "r1"}', '{"run_id": "r2", "list": [1, [2], {"a": null}]}')


class Side:
    """One storage with the numbers that it gave out, so that both sides can be asked for the same ones."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.epochs: list[int] = []
        self.numbers: list[int] = []
        self.depths: dict[tuple[bytes, str, int | None], int] = {}

    def learn(self, answer: Saved) -> None:
        self.numbers.extend(answer.segment_ids)
        if answer.epoch not in self.epochs:
            self.epochs.append(answer.epoch)

    def plain(self, answer: object) -> object:
        """The answer with the numbers and epochs by their order of appearance, and sets in a fixed order."""
        if isinstance(answer, Saved):
            self.learn(answer)
            return ("saved", self.epochs.index(answer.epoch), [self.numbers.index(each) for each in answer.segment_ids])
        if isinstance(answer, Chains):
            return (
                answer.thread,
                answer.targets,
                sorted(
                    (replace(each, segments=self.places(each.segments)) for each in answer.rows), key=lambda r: r.key
                ),
                sorted(self.segment(each) for each in answer.segments),
                sorted(
                    (each.metadata_id, json.dumps(json.loads(each.document), sort_keys=True), each.payload)
                    for each in answer.metadata
                ),
            )
        return answer

    def places(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        for each in sorted(set(numbers) - set(self.numbers)):
            self.numbers.append(each)
        return tuple(self.numbers.index(each) for each in numbers)

    def segment(self, each) -> tuple:
        return (*self.places((each.segment_id,)), each.kind, each.namespace, each.checkpoint_id, each.payload)


class Script:
    """A random call, drawn once and made on both sides."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def step(self):
        draw = self.draw
        verb = draw.choices(
            ("save", "writes", "chains", "list", "edit", "delete", "copy", "segments", "runs", "structure"),
            (50, 15, 15, 10, 6, 0.5, 1, 5, 2, 3),
        )[0]
        return getattr(self, verb)(draw.choice(THREADS), draw.choice(NAMESPACES), draw.randrange(12))

    def some(self, known: int, most: int) -> list[int]:
        return self.draw.sample(range(known), min(known, self.draw.randrange(most + 1))) if known else []

    def save(self, ref, namespace, number):
        draw = self.draw
        parent = draw.choice([None, *(draw.randrange(12) for _ in range(4))])
        kinds = [draw.choice((SegmentKind.VALUES, SegmentKind.PAGES)) for _ in range(draw.randrange(3))]
        document = draw.choice([None, *range(len(DOCUMENTS))])
        at_epoch, expects = draw.choice([None, None, None, -1, -2]), draw.choice([None, None, None, 0, 1])
        older = draw.random()
        orphaned, payload = draw.random() < 0.1, draw.randbytes(4)
        depth = draw.choice([0, None, None, None, None, 1])

        async def call(side: Side):
            known = len(side.numbers)
            segments = (
                tuple(side.numbers[int(older * each) % known] for each in range(3)) if known and older < 0.5 else ()
            )
            fields = {"payload": payload, "metadata_id": document or 0, "orphaned": orphaned}
            segments = tuple(dict.fromkeys(segments))
            parent_depth = side.depths.get((ref.key, namespace, parent), 3)
            fitting = (parent_depth + 1) % 4 if depth is None else depth
            checkpoint = row(number, parent, fitting, namespace=namespace, segments=segments, **fields)
            metadata = None if document is None else MetadataRow(document, DOCUMENTS[document], b"%d" % document)
            epoch = side.epochs[at_epoch] if at_epoch and len(side.epochs) > 1 else None
            new = tuple(NewSegment(kind, payload, (7,)) for kind in kinds)
            answer = await side.storage.save(Save(ref, checkpoint, new, metadata, epoch, expects))
            if isinstance(answer, Saved):
                side.depths[ref.key, namespace, number] = fitting
            return answer

        return call

    def writes(self, ref, namespace, number):
        at_epoch, payload = self.draw.choice([None, None, -1]), self.draw.randbytes(4)

        def call(side: Side):
            epoch = side.epochs[at_epoch] if at_epoch and side.epochs else None
            return side.storage.save_writes(
                SaveWrites(ref, namespace, key(number), NewSegment(SegmentKind.WRITES, payload), epoch)
            )

        return call

    def chains(self, ref, namespace, number):
        wanted = self.draw.choice([None, [key(number)], [key(number), key(self.draw.randrange(12))]])
        ends = tuple(key(self.draw.randrange(12)) for _ in range(self.draw.randrange(3)))
        at_epoch = self.draw.choice([None, -1])

        def call(side: Side):
            known = Known(side.epochs[-1], ends) if at_epoch and side.epochs else None
            return side.storage.load_chains(ref.key, namespace, wanted, known)

        return call

    def list(self, ref, namespace, number):
        query = ListQuery(
            thread_key=self.draw.choice([None, ref.key]),
            namespace=self.draw.choice([None, namespace]),
            before=self.draw.choice([None, key(number)]),
            document=self.draw.choice([None, *DOCUMENTS]),
            limit=self.draw.choice([1, 3, 100]),
        )

        async def call(side: Side):
            try:
                entries = await side.storage.list_checkpoints(query)
            except Exception as error:  # noqa: BLE001  (a missing metadata document)
                return type(error)
            return [(entry.cursor, side.places(entry.row.segments), entry.metadata.metadata_id) for entry in entries]

        return call

    def edit(self, ref, namespace, number):
        draw = self.draw
        kind, fails, payload, choice = draw.randrange(5), draw.random() < 0.1, draw.randbytes(4), draw.random()
        other = (number + draw.randrange(1, 12)) % 12

        async def call(side: Side):
            victims = tuple(side.numbers[int(choice * len(side.numbers)) :][:3])
            changes = [
                ThreadChanges(
                    marks=((namespace, key(number), choice < 0.7, choice < 0.3), ("", key(other), True, False))
                ),
                ThreadChanges(delete_checkpoints=((namespace, key(number)), ("", key(other)))),
                ThreadChanges(delete_segments=victims),
                ThreadChanges(
                    updates=(
                        RowUpdate(
                            row(number, namespace=namespace, payload=payload, segments=victims, metadata_id=1),
                            (NewSegment(SegmentKind.PAGES, payload),),
                        ),
                    ),
                    new_metadata=(MetadataRow(1, DOCUMENTS[1], b"1"),),
                ),
                ThreadChanges(delete_metadata=(other % 4,), new_metadata=(MetadataRow(2, DOCUMENTS[2], b"2"),)),
            ][kind]
            try:
                async with side.storage.edit(ref.key) as edit:
                    if await edit.rows() is None:
                        return None
                    await edit.apply(changes)
                    if fails:
                        raise ZeroDivisionError  # noqa: TRY301
            except ZeroDivisionError:
                pass
            chains = await side.storage.load_chains(ref.key, namespace, None)
            if chains is not None and chains.epoch not in side.epochs:
                side.epochs.append(chains.epoch)
            return chains

        return call

    def delete(self, ref, namespace, number):
        return lambda side: side.storage.delete_thread(ref.key)

    def copy(self, ref, namespace, number):
        target = self.draw.choice(THREADS)
        return lambda side: side.storage.copy_thread(ref.key, target)

    def segments(self, ref, namespace, number):
        choice = self.draw.random()

        async def call(side: Side):
            wanted = side.numbers[int(choice * len(side.numbers)) :][:5]
            return sorted(map(side.segment, await side.storage.load_segments(ref.key, wanted)))

        return call

    def runs(self, ref, namespace, number):
        wanted = self.draw.choice([["r1"], ["r1", "r2"], ["r3"], []])

        async def call(side: Side):
            return sorted(await side.storage.find_runs(wanted))

        return call

    def structure(self, ref, namespace, number):
        async def call(side: Side):
            found = await structure(side.storage, ref)
            if found is None:
                return None
            checkpoints, segments, metadata = found
            return (
                [replace(each, segments=side.places(each.segments)) for each in checkpoints],
                sorted(map(side.segment, segments)),
                metadata,
            )

        return call


@pytest.fixture
async def storage(database_dsn: str) -> AsyncIterator[PostgresStorage]:
    storage = await PostgresStorage.open(database_dsn)
    yield storage
    await storage.close()


@pytest.mark.parametrize("seed", range(4))
async def test_random_calls_are_answered_alike(storage: PostgresStorage, seed: int) -> None:
    sides = (Side(MemoryStorage()), Side(storage))
    script = Script(seed)
    for number in range(500):
        call = script.step()
        one, two = [side.plain(await call(side)) for side in sides]
        assert one == two, f"seed {seed}, call {number}: {call.__qualname__}"
    await asyncio.sleep(0)
