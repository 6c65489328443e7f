"""How a thread in the target stands to the one in the source, by structure: nothing of its values is decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from deltastore.conversion import validate
from deltastore.core.chain import open_segment
from deltastore.core.codec import EncodedValue
from deltastore.core.edits import ThreadRows
from deltastore.core.frame import Cipher
from deltastore.core.model import SegmentKind
from deltastore.core.writes import OpenSegment, Write
from deltastore.importer.source import Node, ThreadShape
from deltastore.importer.stock_rows import joined
from deltastore.loaded import ItemReader
from deltastore.storage import ThreadView
from deltastore.structure import read_segments, without_leftovers

WriteKey = tuple[str, bytes, str, int]
SEGMENTS_PAGE = 256


class Standing(Enum):
    """What the target has."""

    SAME = "the same"
    BEHIND = "less"
    DIVERGED = "something else"


@dataclass(frozen=True, slots=True)
class StoredWrites:
    """The pending writes of a thread in the target.

    Attributes:
        keys: All of them.
        special: Those with a negative index, with one entry for each segment that holds it, the one that counts last.
            An import makes one segment; a second one says that the thread went on here.
        orphans: Segments of writes to checkpoints that are not there.
        items: Finds the items of special and orphaned writes.
    """

    keys: set[WriteKey]
    special: Mapping[WriteKey, Sequence[Write]]
    orphans: Mapping[tuple[str, bytes], Sequence[OpenSegment]]
    items: ItemReader


async def standing(
    view: ThreadView,
    rows: ThreadRows,
    shape: ThreadShape,
    wanted: Mapping[tuple[str, str], Node],
    cipher: Cipher | None,
) -> tuple[Standing, str]:
    """Compares a thread with the one in the source.

    Args:
        view: The thread in the target.
        rows: Its structure.
        shape: The thread in the source.
        wanted: Which of the source's checkpoints should be in the target.
        cipher: Opens ciphered payloads.

    Returns:
        The standing and, for a thread that diverged, in what.
    """
    stored = {row.key: row for row in rows.checkpoints}
    source = {row_key(node.namespace, node.checkpoint_id) for node in shape.nodes}
    extra = stored.keys() - source
    if extra:
        return Standing.DIVERGED, f"the target has {len(extra)} checkpoints that the source does not have"
    needed = {row_key(*key) for key in wanted}
    source_writes = {write_key(key) for key in shape.writes}
    writes = await stored_writes(view, rows, cipher)
    extra_writes = writes.keys - source_writes
    if extra_writes:
        return Standing.DIVERGED, f"the target has {len(extra_writes)} pending writes that the source does not have"
    changed = changed_writes(shape, writes)
    overwritten = [key for key in changed if len(writes.special[write_key(key)]) > 1]
    if overwritten:
        return Standing.DIVERGED, f"{_named(overwritten[0])} was written again in the target"
    if changed or any(key not in stored or stored[key].hidden for key in needed):
        return Standing.BEHIND, ""
    if any(key[:2] in needed or key[:2] not in source for key in source_writes - writes.keys):
        return Standing.BEHIND, ""
    return Standing.SAME, ""


def standing_back(rows: ThreadRows, writes: StoredWrites, shape: ThreadShape) -> tuple[Standing, str]:
    """The same for the way back: how the thread in LangGraph's tables stands to the one here.

    Args:
        rows: The structure of the thread here.
        writes: Its pending writes.
        shape: The thread in the tables.

    Returns:
        The standing and, unless they are the same, in what they differ.
    """
    ours = {row.key for row in rows.checkpoints if not row.hidden}
    theirs = {row_key(node.namespace, node.checkpoint_id) for node in shape.nodes}
    our_writes = {key for key in writes.keys if key[:2] in ours or key[:2] in writes.orphans}
    their_writes = {write_key(key) for key in shape.writes}
    changed = changed_writes(shape, writes)
    parts = [
        (len(ours - theirs), f"the tables lack {len(ours - theirs)} of its {len(ours)} checkpoints"),
        (len(our_writes - their_writes), f"the tables lack {len(our_writes - their_writes)} of its pending writes"),
        (len(changed), f"the tables have other values of {len(changed)} special pending writes"),
    ]
    behind = [text for count, text in parts if count]
    foreign = [
        f"have {count} others{name}"
        for count, name in ((len(theirs - ours), ""), (len(their_writes - our_writes), " of the pending writes"))
        if count
    ]
    if any(not _was_replaced(writes, key, shape.changing[key]) for key in changed):
        foreign.append("have a special pending write that was never here")
    if foreign:
        return Standing.DIVERGED, f"{', '.join(behind)}{', and ' if behind else 'the tables '}{' and '.join(foreign)}"
    return (Standing.BEHIND, ", and ".join(behind)) if behind else (Standing.SAME, "")


def changed_writes(shape: ThreadShape, writes: StoredWrites) -> list[tuple[str, str, str, int]]:
    """Special writes that both sides have, with other values."""
    return [
        key
        for key, value in shape.changing.items()
        if (found := writes.special.get(write_key(key))) and not _is_value(found[-1], value, writes.items)
    ]


def _was_replaced(writes: StoredWrites, key: tuple[str, str, str, int], value: EncodedValue) -> bool:
    """Whether a special write had this value here once."""
    return any(_is_value(write, value, writes.items) for write in writes.special[write_key(key)][:-1])


def _is_value(write: Write, value: EncodedValue, items: ItemReader) -> bool:
    """Whether a write has this value; a document that was cut in another way is the same document."""
    stored = EncodedValue(write.kind, items.read(write.pieces), write.pieces.keys)
    if (stored.kind, stored.keys or None, stored.items) == (value.kind, value.keys or None, value.items):
        return True
    document = joined(stored)
    return document is not None and document == joined(value)


def _named(key: tuple[str, str, str, int]) -> str:
    return f"namespace {key[0]!r}, checkpoint {key[1]!r}: the special write {key[3]} of task {key[2]!r}"


def row_key(namespace: str, checkpoint_id: str) -> tuple[str, bytes]:
    """How the target identifies a checkpoint of a thread. Raises `InvalidConfigError`."""
    return validate.namespace(namespace), validate.checkpoint_key(checkpoint_id)


def write_key(key: tuple[str, str, str, int]) -> WriteKey:
    """How the target identifies a pending write of a thread. Raises `InvalidConfigError`."""
    namespace, checkpoint_id, task_id, index = key
    return *row_key(namespace, checkpoint_id), task_id, index


async def stored_writes(view: ThreadView, rows: ThreadRows, cipher: Cipher | None) -> StoredWrites:
    """Reads the pending writes of a thread; only special and orphaned ones are kept with their items."""
    rows = await without_leftovers(view, rows, cipher)
    known = {row.key for row in rows.checkpoints}
    ids = sorted(segment.segment_id for segment in rows.segments if segment.kind is SegmentKind.WRITES)
    keys: set[WriteKey] = set()
    special: dict[WriteKey, dict[int, Write]] = {}
    orphans: dict[tuple[str, bytes], list[OpenSegment]] = {}
    kept: dict[int, OpenSegment] = {}
    for start in range(0, len(ids), SEGMENTS_PAGE):
        page = await read_segments(view, rows.thread, ids[start : start + SEGMENTS_PAGE], cipher)
        for row in sorted(page, key=lambda each: each.segment_id):
            opened, checkpoint = open_segment(rows.thread, row, cipher), (row.namespace, row.checkpoint_id)
            for write in opened.writes:
                key = (*checkpoint, write.task_id, write.index)
                keys.add(key)
                if write.index < 0:
                    special.setdefault(key, {})[row.segment_id] = write
                    kept[row.segment_id] = opened
            if checkpoint not in known:
                orphans.setdefault(checkpoint, []).append(opened)
                kept[row.segment_id] = opened
    needed = {one for opened in kept.values() for write in opened.writes for one in write.pieces.segment_ids()}
    for row in await read_segments(view, rows.thread, sorted(needed - kept.keys()), cipher):
        kept[row.segment_id] = open_segment(rows.thread, row, cipher)
    items = ItemReader(f"thread {rows.thread.thread_id!r}", kept)
    return StoredWrites(keys, {key: list(found.values()) for key, found in special.items()}, orphans, items)


def heads(rows: Mapping[tuple[str, str], Node]) -> dict[tuple[str, str], Node]:
    """The newest checkpoint of each namespace."""
    newest: dict[str, Node] = {}
    for node in rows.values():
        if node.namespace not in newest or node.checkpoint_id > newest[node.namespace].checkpoint_id:
            newest[node.namespace] = node
    return {node.key: node for node in newest.values()}
