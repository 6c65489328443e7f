"""Rows and calls that tests of storages share, with short names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deltastore.core.edits import ThreadChanges
from deltastore.core.model import (
    Chains,
    CheckpointRow,
    Known,
    MetadataRow,
    NewSegment,
    Save,
    Saved,
    SaveWrites,
    SegmentKind,
    ThreadRef,
)
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
