"""How a thread in the target stands to the one in the source, by structure: nothing of its values is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from deltastore.conversion import validate
from deltastore.core.chain import open_segment
from deltastore.core.frame import Cipher
from deltastore.core.model import SegmentKind, ThreadRows
from deltastore.core.writes import OpenSegment, StoredWrite, effective
from deltastore.importer.source import Node, ThreadShape
from deltastore.loaded import ItemReader
from deltastore.storage import ThreadView

WriteKey = tuple[str, bytes, str, int]


class Standing(Enum):
    """What the target has."""

    SAME = "the same"
    BEHIND = "less"
    DIVERGED = "something else"


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
    source = {_row_key(node.namespace, node.checkpoint_id) for node in shape.nodes}
    extra = stored.keys() - source
    if extra:
        return Standing.DIVERGED, f"the target has {len(extra)} checkpoints that the source does not have"
    needed = {_row_key(*key) for key in wanted}
    source_writes = {_write_key(key) for key in shape.writes}
    writes, segments = await _stored_writes(view, rows, cipher)
    extra_writes = writes.keys() - source_writes
    if extra_writes:
        return Standing.DIVERGED, f"the target has {len(extra_writes)} pending writes that the source does not have"
    if any(key not in stored or stored[key].hidden for key in needed):
        return Standing.BEHIND, ""
    if any(key[:2] in needed or key[:2] not in source for key in source_writes - writes.keys()):
        return Standing.BEHIND, ""
    items = await _items_of(view, rows, segments, [writes[key] for key in writes if key[3] < 0], cipher)
    for key, value in shape.changing.items():
        found = writes.get(_write_key(key))
        if found is not None and items.read(found.write.pieces) != value.items:
            return Standing.BEHIND, ""
    return Standing.SAME, ""


def _row_key(namespace: str, checkpoint_id: str) -> tuple[str, bytes]:
    return validate.namespace(namespace), validate.checkpoint_key(checkpoint_id)


def _write_key(key: tuple[str, str, str, int]) -> WriteKey:
    namespace, checkpoint_id, task_id, index = key
    return *_row_key(namespace, checkpoint_id), task_id, index


async def _stored_writes(
    view: ThreadView, rows: ThreadRows, cipher: Cipher | None
) -> tuple[dict[WriteKey, StoredWrite], dict[int, OpenSegment]]:
    """The pending writes that count in the target, and the segments that hold them."""
    ids = [segment.segment_id for segment in rows.segments if segment.kind is SegmentKind.WRITES]
    by_checkpoint: dict[tuple[str, bytes], list[OpenSegment]] = {}
    segments: dict[int, OpenSegment] = {}
    for row in await view.segments(ids):
        opened = segments[row.segment_id] = open_segment(rows.thread, row, cipher)
        by_checkpoint.setdefault((row.namespace, row.checkpoint_id), []).append(opened)
    writes = {
        (*checkpoint, stored.write.task_id, stored.write.index): stored
        for checkpoint, opened_here in by_checkpoint.items()
        for stored in effective(opened_here)
    }
    return writes, segments


async def _items_of(
    view: ThreadView,
    rows: ThreadRows,
    segments: Mapping[int, OpenSegment],
    writes: list[StoredWrite],
    cipher: Cipher | None,
) -> ItemReader:
    """Finds the items of some writes."""
    found = dict(segments)
    missing = {each for stored in writes for each in stored.write.pieces.segment_ids()} - found.keys()
    for row in await view.segments(sorted(missing)) if missing else ():
        found[row.segment_id] = open_segment(rows.thread, row, cipher)
    return ItemReader(f"thread {rows.thread.thread_id!r}", found)


def heads(rows: Mapping[tuple[str, str], Node]) -> dict[tuple[str, str], Node]:
    """The newest checkpoint of each namespace."""
    newest: dict[str, Node] = {}
    for node in rows.values():
        if node.namespace not in newest or node.checkpoint_id > newest[node.namespace].checkpoint_id:
            newest[node.namespace] = node
    return {node.key: node for node in newest.values()}
