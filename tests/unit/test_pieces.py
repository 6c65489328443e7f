"""Piece lists: scripts, pages and packed locations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.core import pieces
from deltastore.core.model import ITEM_BITS, Location, index_of, location, segment_of
from deltastore.core.pieces import (
    PAGE_ITEM_BYTES_MAX,
    PAGE_PIECES,
    PAGE_PIECES_MIN,
    PageSpan,
    PieceList,
    Run,
    edit,
    match,
    not_at_hand,
    own,
    pack_places,
    paginate,
    settle,
    unpack_places,
)

marks = st.lists(st.sampled_from("abcdef"), max_size=12)
stored = st.builds(location, st.integers(1, 2**40), st.integers(0, 2**ITEM_BITS - 1))
places = st.lists(st.one_of(stored, st.binary(min_size=1, max_size=20), st.integers(0, 5).map(own)), max_size=12)


def script_of(base: list[Any], target: list[Any]) -> list[Run]:
    """The script of `match`, with the wanted marks as inline items."""
    return [
        Run(start, count)
        if start is not None
        else Run(None, count, PieceList([mark.encode() for mark in target[first : first + count]]))
        for start, first, count in match(base, target)
    ]


@given(marks, marks)
def test_a_script_makes_the_target(base: list[str], target: list[str]):
    made = edit(PieceList([mark.encode() for mark in base]), script_of(base, target))
    assert made.places == [mark.encode() for mark in target]


@given(marks, marks)
def test_a_script_inserts_nothing_that_the_base_has(base: list[str], target: list[str]):
    for start, first, count in match(base, target):
        if start is None:
            assert not set(target[first : first + count]) & set(base)
        else:
            assert base[start : start + count] == target[first : first + count]
        assert count > 0
    assert sum(count for _, _, count in match(base, target)) == len(target)


@pytest.mark.parametrize(
    ("base", "target", "runs"),
    [
        ("", "", 0),
        ("abc", "abc", 1),
        ("abc", "", 0),
        ("", "abc", 1),
        ("abc", "abcd", 2),
        ("abc", "xabc", 2),
        ("abcdef", "abXdef", 3),
        ("abcdef", "abdef", 2),
        ("abcdef", "fedcba", 6),
        ("abcdef", "defabc", 2),
        ("abcabc", "abcabc", 1),
        ("ab", "abababab", 4),
    ],
)
def test_usual_edits_take_few_runs(base: str, target: str, runs: int):
    """Append, prepend, replace, delete, reverse, rotate, repeat."""
    assert len(match(list(base), list(target))) == runs


def test_matching_is_linear_on_repetitive_lists():
    base = ["a"] * 50_000
    assert len(match(base, [*base, "a"])) == 2
    assert len(match(["b", *base], base)) <= 50_000


@pytest.mark.parametrize(
    "run", [Run(0, 3), Run(2, 1), Run(-1, 1), Run(0, -1), Run(None, 1, None), Run(None, 2, PieceList([b"x"]))]
)
def test_a_run_outside_of_its_base_is_refused(run: Run):
    with pytest.raises(ValueError, match="outside"):
        edit(PieceList([b"a", b"b"]), [run])
    with pytest.raises(ValueError, match="outside"):
        edit(None, [Run(0, 1)])


@given(
    st.lists(
        st.tuples(st.text(max_size=2), st.binary(min_size=1, max_size=2)), max_size=6, unique_by=lambda pair: pair[0]
    ),
    st.data(),
)
def test_keys_go_with_their_pieces(entries: list[tuple[str, bytes]], data: st.DataObject):
    target = data.draw(st.permutations([*entries, ("new key", b"new")]))
    base = PieceList([item for _, item in entries], [key for key, _ in entries])
    script = [
        Run(start, count)
        if start is not None
        else Run(
            None, count, PieceList([i for _, i in target[at : at + count]], [k for k, _ in target[at : at + count]])
        )
        for start, at, count in match(entries, target)
    ]
    made = edit(base, script)
    assert list(zip(made.keys or [], made.places, strict=True)) == target


def test_editing_keeps_the_pages_that_lie_whole_in_a_copied_run():
    base = PieceList([location(1, n) for n in range(10)], None, (PageSpan(0, 4, 7), PageSpan(5, 3, 8)))
    assert edit(base, [Run(0, 10)]).pages == base.pages
    assert edit(base, [Run(None, 2, PieceList([b"x", b"y"])), Run(0, 9)]).pages == (
        PageSpan(2, 4, 7),
        PageSpan(7, 3, 8),
    )
    assert edit(base, [Run(1, 9)]).pages == (PageSpan(4, 3, 8),)
    assert edit(base, [Run(5, 3), Run(0, 4)]).pages == (PageSpan(0, 3, 8), PageSpan(3, 4, 7))
    assert edit(base, [Run(0, 7)]).pages == (PageSpan(0, 4, 7),)


def whole(pieces_list: PieceList, pages: dict[int, PieceList]) -> None:
    """Every page span says what its page says, and spans are in order and apart."""
    end = 0
    for span in pieces_list.pages:
        assert span.start >= end
        end = span.start + span.count
        page = pages[span.segment_id]
        assert pieces_list.places[span.start : end] == page.places
        if pieces_list.keys is not None:
            assert pieces_list.keys[span.start : end] == page.keys
    assert end <= len(pieces_list.places)


def copied(place: int) -> bytes | None:
    """Items 1, 3 and 5 are at hand."""
    return b"abcdef"[index_of(place) : index_of(place) + 1] if segment_of(place) == 3 and place % 2 else None


@given(st.lists(st.tuples(marks, st.booleans()), min_size=1, max_size=8), st.integers(1, 5), st.integers(1, 5))
def test_pages_stay_right_through_any_edits(line: list[tuple[list[str], bool]], page_pieces: int, enough: int):
    number = {mark: location(3, at) for at, mark in enumerate("abcdef")}
    item = {place: mark.encode() for mark, place in number.items()}
    pages: dict[int, PieceList] = {}
    current, current_marks = PieceList([]), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PAGE_PIECES", page_pieces)
        patch.setattr(pieces, "PAGE_PIECES_MIN", enough)
        for target, anchors in line:
            script = [
                run
                if run.pieces is None
                else Run(None, run.count, PieceList([number[p.decode()] for p in run.pieces.places]))  # type: ignore[union-attr]
                for run in script_of(current_marks, target)
            ]
            current, current_marks = edit(current, script), target
            assert [item[place] for place in current.places] == [mark.encode() for mark in target]  # type: ignore[index]
            whole(current, pages)
            if anchors:
                paged, new = paginate(current, 0, copied)
                ids = [100 + len(pages) + at for at in range(len(new))]
                for page_id, page in zip(ids, new, strict=True):
                    pages[page_id] = settle(page.pieces, page_id, ())
                    item |= {location(page_id, at): each for at, each in enumerate(page.items)}
                current = settle(paged, None, ids)
                whole(current, pages)
                assert [item[place] for place in current.places] == [mark.encode() for mark in target]  # type: ignore[index]
                assert all(len(page.pieces.places) <= page_pieces for page in new)


def test_long_runs_become_pages_and_short_tails_do_not():
    count = PAGE_PIECES
    flat = PieceList([location(1, n) for n in range(4 * count + PAGE_PIECES_MIN - 1)])
    paged, new = paginate(flat, 3, not_at_hand)
    assert [len(page.pieces.places) for page in new] == [count] * 4
    assert paged.pages == tuple(PageSpan(count * at, count, -4 - at) for at in range(4))
    assert paginate(settle(paged, None, [0] * 3 + [6, 7, 8, 9]), 0, not_at_hand)[1] == []


@pytest.mark.parametrize(("total", "enough"), [(40, 32), (2048, 32), (4096, 64), (8192, 128), (50_000, 128)])
def test_a_tail_becomes_a_page_when_it_is_long_for_its_list(total: int, enough: int):
    for tail in (enough - 1, enough):
        head = total - tail
        places: list[Location] = [location(9 if n < head else 1, n) for n in range(total)]
        _, new = paginate(PieceList(places, None, (PageSpan(0, head, 9),)), 0, not_at_hand)
        assert [len(page.pieces.places) for page in new] == ([enough] if tail == enough else [])


def test_a_page_holds_what_is_at_hand_and_not_large():
    items = {location(1, 0): b"small", location(1, 1): b"x" * (PAGE_ITEM_BYTES_MAX + 1)}
    flat = PieceList([location(1, n % 3) for n in range(PAGE_PIECES)])
    paged, [page] = paginate(flat, 2, items.get)
    assert page.items == [b"small"] * len([place for place in flat.places if place == location(1, 0)])
    settled = settle(paged, None, [0, 0, 9])
    for before, after in zip(flat.places, settled.places, strict=True):
        assert after == before or (before == location(1, 0) and segment_of(after) == 9)  # type: ignore[arg-type]
    assert settled.segment_ids() == {1, 9}
    assert unpack_places(pack_places(page.pieces.places), lambda: 9) == settled.places


def test_items_kept_inline_fill_a_page_by_their_size():
    paged, new = paginate(PieceList([b"x" * 1000] * 12), 0, not_at_hand)
    assert [len(page.pieces.places) for page in new] == [5, 5]
    assert len(paged.pages) == 2


@pytest.mark.parametrize("at", [0, 1, 300, 599])
def test_a_new_piece_anywhere_keeps_only_itself_outside_of_pages(at: int):
    """A list whose first element is replaced all the time must not be written out in full by every anchor."""
    flat = PieceList([location(1, n) for n in range(600)])
    flat.places[at] = own(0)
    paged, new = paginate(flat, 0, not_at_hand)
    for page in new:
        assert all(isinstance(place, bytes) or place >= 0 for place in page.pieces.places)
    whole(paged, {-1 - number: page.pieces for number, page in enumerate(new)})
    assert sum(len(page.pieces.places) for page in new) >= 2 * PAGE_PIECES


@given(places)
def test_locations_survive_packing(flat: list[Any]):
    unpacked = unpack_places(pack_places(flat), lambda: 77)
    assert unpacked == [location(77, -1 - place) if isinstance(place, int) and place < 0 else place for place in flat]


@given(places, st.integers(1, 2**40))
def test_settling_gives_new_pieces_their_segment(flat: list[Any], segment_id: int):
    settled = settle(PieceList(flat, None, (PageSpan(0, 0, -2),)), segment_id, [5, 6])
    assert settled.places == unpack_places(pack_places(flat), lambda: segment_id)
    assert settled.pages == (PageSpan(0, 0, 6),)
    assert settled.segment_ids() == {segment_of(place) for place in settled.places if isinstance(place, int)}


def test_a_location_is_a_segment_and_an_index():
    for segment_id, index in ((1, 0), (2**43, 2**ITEM_BITS - 1)):
        place = location(segment_id, index)
        assert (segment_of(place), index_of(place)) == (segment_id, index)
