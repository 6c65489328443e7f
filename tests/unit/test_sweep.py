"""What a thread still needs, on random trees of checkpoints, compared with the definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deltastore.core.edits import ThreadRows
from deltastore.core.header import Header
from deltastore.core.model import CheckpointRow, SegmentKind, SegmentRow, ThreadRef, location
from deltastore.core.payload import Anchor, ChannelEdit, CheckpointPayload, Delta
from deltastore.core.pieces import PageSpan, PieceList, Run
from deltastore.core.state import History, Value
from deltastore.core.sweep import changed_marks, hide, references, supported, sweep

THREAD = ThreadRef(b"k" * 16, "t")
RowKey = tuple[str, bytes]


def row(number: int, parent: int | None = None, depth: int = 0, **more: Any) -> CheckpointRow:
    return CheckpointRow(
        "", b"%03d" % number, None if parent is None else b"%03d" % parent, depth, (), b"", number, **more
    )


@st.composite
def trees(draw: st.DrawFn) -> dict[RowKey, CheckpointRow]:
    """Checkpoints whose parents were there before them; some are anchors, some hidden."""
    rows: list[CheckpointRow] = []
    for number in range(draw(st.integers(1, 12))):
        parent = draw(st.none() | st.sampled_from(rows)) if rows else None
        depth = 0 if parent is None or draw(st.booleans()) else parent.depth + 1
        above = None if parent is None else int(parent.checkpoint_id)
        rows.append(row(number, above, depth, hidden=draw(st.booleans())))
    return {each.key: each for each in rows}


def chain_of(rows: dict[RowKey, CheckpointRow], key: RowKey) -> set[RowKey]:
    """A row and its ancestors back to the anchor."""
    each = rows[key]
    above = set() if each.depth == 0 or each.parent_id is None else chain_of(rows, ("", each.parent_id))
    return {key} | above


@given(trees())
def test_a_row_stays_if_and_only_if_a_visible_one_needs_it(rows: dict[RowKey, CheckpointRow]):
    expected = {kept for key, each in rows.items() if not each.hidden for kept in chain_of(rows, key)}
    assert supported(rows) == expected
    swept = sweep(rows, {key: set() for key in expected}, (), (), 0)
    assert set(swept.checkpoints) == rows.keys() - expected


@given(trees(), st.data())
def test_segments_stay_with_the_rows_that_need_them(rows: dict[RowKey, CheckpointRow], data: st.DataObject):
    ids = range(1, data.draw(st.integers(1, 8)) + 1)
    numbers = st.sets(st.sampled_from(ids))
    needed_by = {key: data.draw(numbers) for key in rows}
    segments = [
        SegmentRow(each, SegmentKind.VALUES, "", b"000", b"", tuple(sorted(data.draw(numbers) - {each})))
        for each in ids
    ]
    swept = sweep(rows, needed_by, segments, range(20), 0)
    needed = {each for key in supported(rows) for each in needed_by[key]}
    while True:
        more = {reference for each in segments if each.segment_id in needed for reference in each.references}
        if more <= needed:
            break
        needed |= more
    assert set(swept.segments) == set(ids) - needed
    assert set(swept.metadata) == set(range(20)) - {rows[key].metadata_id for key in supported(rows)}


def writes(segment_id: int, number: int) -> SegmentRow:
    return SegmentRow(segment_id, SegmentKind.WRITES, "", b"%03d" % number, b"")


def test_writes_stay_with_a_visible_checkpoint_and_go_with_a_hidden_one():
    rows = {each.key: each for each in (row(1, hidden=True), row(2, 1, 1))}
    swept = sweep(rows, {key: set() for key in rows}, [writes(7, 1), writes(8, 2)], (), 0)
    assert swept.segments == (7,)
    assert sweep(rows, {key: {7} for key in rows}, [writes(7, 1), writes(8, 2)], (), 0).segments == ()


def test_writes_whose_checkpoint_can_still_arrive_stay():
    rows = {row(5).key: row(5)}
    for segment_id, number, epoch, stays in ((7, 6, 0, True), (7, 4, 0, True), (7, 4, 9, False), (7, 6, 9, True)):
        swept = sweep(rows, {row(5).key: set()}, [writes(segment_id, number)], (), epoch)
        assert (swept.segments == ()) is stays, (number, epoch)


def test_hiding_marks_the_deleted_and_takes_the_parent_from_their_children():
    rows = [row(1), row(2, 1, 1), row(3, 2, 2), row(4, 1, 1, hidden=True), row(5, 4, 0, orphaned=True)]
    marks = hide(rows, {("", b"002")})
    assert marks == {
        ("", b"001"): (False, False),
        ("", b"002"): (True, False),
        ("", b"003"): (False, True),
        ("", b"004"): (True, False),
        ("", b"005"): (False, True),
    }
    thread = ThreadRows(THREAD, 1, tuple(rows), (), ())
    marked = {each.key: replace(each, hidden=marks[each.key][0]) for each in rows}
    changes = changed_marks(thread, marks, sweep(marked, {key: set() for key in marked}, (), (), 0))
    assert changes.marks == (("", b"002", True, False), ("", b"003", False, True))
    assert changes.delete_checkpoints == (("", b"004"),)


def test_a_row_in_another_namespace_is_not_a_parent():
    inner = CheckpointRow("inner", b"002", b"001", 1, (), b"", 1)
    rows = {each.key: each for each in (replace(row(1), hidden=True), inner)}
    assert supported(rows) == {inner.key}
    assert hide(rows.values(), {("", b"001")})[inner.key] == (False, False)


def test_all_that_a_payload_names_is_needed():
    pages = (PageSpan(0, 1, 31),)
    value = Value(1, PieceList([location(32, 5), b"inline"], None, pages))
    history = History(Value(1, PieceList([location(33, 1)])), PieceList([location(34, 2)], None, (PageSpan(0, 1, 35),)))
    anchor = CheckpointPayload(
        [], Anchor(Header({}, {}), {"a": value}, {"b": history, "c": History(None, PieceList([]))})
    )
    assert references(anchor, replace(row(1), segments=(36,))) == {31, 32, 33, 34, 35, 36}
    edits = (ChannelEdit(0, 1, 1, [Run(0, 5), Run(None, 2, PieceList([location(41, 0), b"inline"]))]),)
    delta = CheckpointPayload([], Delta([], (), edits, (42, 43)))
    assert references(delta, replace(row(1), segments=(44,))) == {41, 42, 43, 44}
