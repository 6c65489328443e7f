"""What a thread still needs: the pure half of every deletion.

Deleting is hiding, then sweeping. A hidden checkpoint is gone for readers at once. What may then be removed is decided
here, from the structure of the whole thread:

- a visible checkpoint needs its chain back to the nearest anchor: hidden rows in it stay as *support rows*;
- a row that stays needs the segments that its payload names: items, pages, the writes it consumed, the writes and
  seeds of its histories; and segments need those that they repeat (`references`);
- a visible checkpoint needs its pending writes;
- a pack stays as long as anything in it is needed;
- writes whose checkpoint has not arrived stay as long as it can still arrive: while the namespace has no newer one, and
  in any case until something is removed from the thread twice. (Epochs and segment ids are numbers of one sequence, so
  a segment below the epoch was there when something was removed before.)

Everything else goes. So no deletion can change what a visible checkpoint rebuilds to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from deltastore.core.edits import ThreadChanges, ThreadRows
from deltastore.core.model import CheckpointRow, SegmentKind, SegmentRow, segment_of
from deltastore.core.payload import Anchor, CheckpointPayload
from deltastore.core.pieces import PieceList
from deltastore.core.state import History, Value

RowKey = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What may be removed.

    Attributes:
        checkpoints: Keys of rows that no visible checkpoint needs.
        segments: Ids of segments that no row that stays needs; of packs in which there are only such.
        metadata: Ids of documents that no row that stays has.
    """

    checkpoints: tuple[RowKey, ...]
    segments: tuple[int, ...]
    metadata: tuple[int, ...]


def supported(rows: Mapping[RowKey, CheckpointRow]) -> set[RowKey]:
    """The rows that visible ones need, themselves included."""
    kept: set[RowKey] = set()
    for row in rows.values():
        current: CheckpointRow | None = None if row.hidden else row
        while current is not None and current.key not in kept:
            kept.add(current.key)
            if current.depth == 0 or current.parent_id is None:
                break
            current = rows.get((current.namespace, current.parent_id))
    return kept


def references(payload: CheckpointPayload, row: CheckpointRow) -> set[int]:
    """Ids of all segments that a checkpoint's row needs."""
    needed = set(row.segments)
    body = payload.body
    if isinstance(body, Anchor):
        for value in body.values.values():
            needed |= value_references(value)
        for history in body.histories.values():
            needed |= history_references(history)
        return needed
    needed |= set(body.consumed)
    for edit in body.sets:
        for run in edit.script:
            if run.pieces is not None:
                needed |= run.pieces.segment_ids()
    return needed


def value_references(value: Value) -> set[int]:
    """Ids of the segments that a value's items and pages are in."""
    return value.pieces.segment_ids() | _pages(value.pieces)


def history_references(history: History) -> set[int]:
    """Ids of the segments that a history's writes and seed are in."""
    needed = {segment_of(place) for place in history.writes.places if isinstance(place, int)} | _pages(history.writes)
    return needed if history.seed is None else needed | value_references(history.seed)


def _pages(pieces: PieceList) -> set[int]:
    return {page.segment_id for page in pieces.pages}


def sweep(
    rows: Mapping[RowKey, CheckpointRow],
    needed_by: Mapping[RowKey, set[int]],
    segments: Iterable[SegmentRow],
    metadata_ids: Iterable[int],
    epoch: int,
    wanted: Iterable[int] = (),
) -> Sweep:
    """What may be removed from a thread.

    Args:
        rows: All checkpoints, with the marks that they are to have.
        needed_by: `references` of at least every row that `supported` names.
        segments: All segments.
        metadata_ids: All metadata documents.
        epoch: The thread's epoch.
        wanted: Ids of segments that are to stay in any case.
    """
    kept = supported(rows)
    by_id = {segment.segment_id: segment for segment in segments}
    newest: dict[str, bytes] = {}
    for namespace, checkpoint_id in rows:
        newest[namespace] = max(newest.get(namespace, b""), checkpoint_id)
    needed = set(wanted).union(*(needed_by[key] for key in kept))
    for segment in by_id.values():
        key = segment.namespace, segment.checkpoint_id
        row = rows.get(key)
        is_young = segment.segment_id > epoch or segment.checkpoint_id > newest.get(segment.namespace, b"")
        awaited = row is None and is_young
        if segment.kind == SegmentKind.WRITES and (awaited or (row is not None and not row.hidden)):
            needed.add(segment.segment_id)
    needed = _closure(needed, by_id)
    stored = {segment.stored_id for segment in by_id.values() if segment.segment_id in needed}
    return Sweep(
        tuple(key for key in rows if key not in kept),
        tuple(sorted({segment.stored_id for segment in by_id.values()} - stored)),
        tuple(set(metadata_ids) - {rows[key].metadata_id for key in kept}),
    )


def leftovers(rows: Mapping[RowKey, CheckpointRow], needed: Iterable[int], segments: Iterable[SegmentRow]) -> set[int]:
    """Ids of the segments that only their packs have kept: of what was deleted.

    Writes to checkpoints that are not there are none of them, unless something is gone that they repeat.

    Args:
        rows: All checkpoints.
        needed: `references` of all of them.
        segments: All segments.
    """
    by_id = {segment.segment_id: segment for segment in segments}
    kept = set(needed)
    for segment in by_id.values():
        row = rows.get((segment.namespace, segment.checkpoint_id))
        if segment.kind == SegmentKind.WRITES and (
            _closure({segment.segment_id}, by_id) <= by_id.keys() if row is None else not row.hidden
        ):
            kept.add(segment.segment_id)
    return {segment.segment_id for segment in by_id.values() if segment.pack_id is not None} - _closure(kept, by_id)


def _closure(needed: set[int], by_id: Mapping[int, SegmentRow]) -> set[int]:
    """The ids, and those that their segments repeat."""
    closed: set[int] = set()
    waiting = list(needed)
    while waiting:
        segment_id = waiting.pop()
        if segment_id not in closed:
            closed.add(segment_id)
            segment = by_id.get(segment_id)
            waiting += segment.references if segment is not None else ()
    return closed


def hide(rows: Iterable[CheckpointRow], deleted: set[RowKey]) -> dict[RowKey, tuple[bool, bool]]:
    """The marks (hidden, orphaned) of all rows after `deleted` are deleted."""
    return {
        row.key: (
            row.hidden or row.key in deleted,
            row.orphaned or (row.parent_id is not None and (row.namespace, row.parent_id) in deleted),
        )
        for row in rows
    }


def thin(rows: Iterable[CheckpointRow], deleted: set[RowKey]) -> dict[RowKey, CheckpointRow]:
    """All rows as they are to be when `deleted` are deleted and no survivor is to need a support row.

    Every visible row whose parent is not visible gets depth 0: it is to become an anchor. What builds on it is
    renumbered: depth counts the steps to the anchor. Payloads stay as they are.
    """
    stored = {row.key: row for row in rows}
    marks = hide(stored.values(), deleted)
    thinned: dict[RowKey, CheckpointRow] = {}
    for key, row in sorted(stored.items(), key=lambda each: each[1].depth):
        hidden, orphaned = marks[key]
        depth = row.depth
        if depth > 0 and row.parent_id is not None:
            above = row.namespace, row.parent_id
            if not hidden and (above not in stored or marks[above][0]):
                depth = 0
            elif above in stored and stored[above].depth == row.depth - 1:
                depth = thinned[above].depth + 1
        thinned[key] = replace(row, depth=depth, hidden=hidden, orphaned=orphaned)
    return thinned


def changed_marks(thread: ThreadRows, marks: Mapping[RowKey, tuple[bool, bool]], swept: Sweep) -> ThreadChanges:
    """The changes that set the marks and remove what was swept."""
    gone = set(swept.checkpoints)
    return ThreadChanges(
        delete_checkpoints=swept.checkpoints,
        delete_segments=swept.segments,
        delete_metadata=swept.metadata,
        marks=tuple(
            (row.namespace, row.checkpoint_id, *marks[row.key])
            for row in thread.checkpoints
            if row.key not in gone and marks[row.key] != (row.hidden, row.orphaned)
        ),
    )
