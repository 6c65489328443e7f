"""Piece lists: the ordered contents of a container as locations of items, and how one becomes another.

A *piece* is one element of a list or one entry of a dict: a location and, in a dict, a key. An opaque value is a piece
list of one. Piece lists are values: they are never changed in place, every edit gives a new one.

**Edits** are scripts of runs, as in VCDIFF: *copy* a run of the base by position, or *insert* a run of new pieces. One
rule covers append, insert, replace, delete, reorder and clear, and it is found in linear time: equal heads are copied,
then each new piece is looked up among the base's pieces by its mark (the item's digest, with the key in a dict). A
script names positions only, so it stays valid wherever the base's items are kept.

**Pages** keep anchors small and loads short. An anchor says where every item is; written out flat, that would cost
three bytes for each item again and again, and a thread of N steps would grow with N². And a load would have to open one
small segment for each message ever written. So when enough pieces lie outside of pages, they are written once as a
page: a segment that lists their locations and holds a copy of every item that is not large. From then on the list
refers to the copies, and later anchors name the page. Items are copied once, compressed together with their neighbours,
and again only where an edit breaks their page and leaves enough of it for a new one. A piece list remembers which of
its runs are pages; copying a run keeps the pages that lie wholly inside it.
Items kept inline count against `PAGE_INLINE_BYTES` too, so that a tail of small items isn't copied by every anchor.

How many are enough grows with the list, from `PAGE_PIECES_MIN` to `PAGE_PIECES`: what lies outside of pages costs a
load a second statement, but each page costs every later anchor its name.

Locations below zero are not assigned yet: they name an item of a segment that is being written (`own`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from deltastore.core.model import ITEM_BITS, Location, index_of, location, segment_of

PAGE_PIECES = 128
PAGE_PIECES_MIN = 32
LIST_PER_PAGE = 64
"""Pages of a list have about this part of its pieces, between the bounds."""
PAGE_INLINE_BYTES = 4096
PAGE_ITEM_BYTES_MAX = 16 * 1024
"""Larger items stay where they are: opening one segment for each costs little against reading it."""

ItemOf = Callable[[int], bytes | None]
"""The item at a stored location, or None if it is not at hand."""


def own(index: int, page: int | None = None) -> int:
    """The location of item `index` in a segment that is written together with what refers to it.

    Args:
        index: The item's index.
        page: The n-th page of the same save, from 0 on; None for its segment of values.
    """
    return -1 - location(0 if page is None else page + 1, index)


def not_at_hand(_: int) -> None:
    """The `ItemOf` of who has no items."""


class PageSpan(NamedTuple):
    """A run of a piece list that is stored as a page. A negative id, `-1 - n`, is the n-th page still to be written."""

    start: int
    count: int  # type: ignore[assignment]  # a span is never searched as a tuple
    segment_id: int


class PieceList(NamedTuple):
    """Locations in order, the keys beside them (dicts only), and which runs are pages."""

    places: list[Location]
    keys: list[str] | None = None
    pages: tuple[PageSpan, ...] = ()

    def segment_ids(self) -> set[int]:
        """Ids of the segments that hold the items."""
        return {place >> ITEM_BITS for place in self.places if isinstance(place, int)}


class Run(NamedTuple):
    """One step of a script: copy `count` pieces from `start` of the base, or (start None) insert `pieces`."""

    start: int | None
    count: int  # type: ignore[assignment]  # nor is a run
    pieces: PieceList | None = None


Script = list[Run]


class NewPage(NamedTuple):
    """A page to write: its pieces, and the items that it holds itself (`own`)."""

    pieces: PieceList
    items: list[bytes]


def match(base: Sequence[Any], target: Sequence[Any]) -> list[tuple[int | None, int, int]]:
    """Runs that make `target` out of `base`.

    Args:
        base: Marks (hashable) of the base's pieces.
        target: Marks of the wanted pieces.

    Returns:
        `(base start or None, target start, count)` in target order; None where nothing can be copied.
    """
    head = _common_head(base, target)
    runs: list[tuple[int | None, int, int]] = [(0, 0, head)] if head else []
    if head == len(target):
        return runs
    positions: dict[Any, int] = {}
    for position in range(len(base) - 1, -1, -1):
        positions[base[position]] = position
    for at in range(head, len(target)):
        start, first, count = runs[-1] if runs else (None, 0, 0)
        following = None if start is None else start + count
        if following is not None and following < len(base) and base[following] == target[at]:
            runs[-1] = (start, first, count + 1)
            continue
        found = positions.get(target[at])
        if found is None and runs and start is None:
            runs[-1] = (None, first, count + 1)
        else:
            runs.append((found, at, 1))
    return runs


def _common_head(base: Sequence[Any], target: Sequence[Any]) -> int:
    shorter = min(len(base), len(target))
    if base[:shorter] == target[:shorter]:
        return shorter
    return next(position for position in range(shorter) if base[position] != target[position])


def edit(base: PieceList | None, script: Script) -> PieceList:
    """The piece list that a script makes out of a base.

    Raises:
        ValueError: A run lies outside of the base: the script was made for another one.
    """
    places: list[Location] = []
    keys: list[str] = []
    pages: list[PageSpan] = []
    keyed = False
    for run in script:
        source = run.pieces if run.start is None else base
        start = run.start or 0
        if source is None or start < 0 or run.count < 0 or start + run.count > len(source.places):
            raise ValueError(f"a run of {run.count} pieces from {start} lies outside of its base")
        if run.start is not None:
            inside = [each for each in source.pages if start <= each[0] and each[0] + each[1] <= start + run.count]
            pages += _moved(inside, len(places) - start)
        places += source.places[start : start + run.count]
        if source.keys is not None:
            keyed = True
            keys += source.keys[start : start + run.count]
    return PieceList(places, keys if keyed else None, tuple(pages))


def _moved(pages: list[PageSpan], shift: int) -> list[PageSpan]:
    return [PageSpan(start + shift, count, segment_id) for start, count, segment_id in pages] if shift else pages


def paginate(pieces: PieceList, first_page: int, item_of: ItemOf) -> tuple[PieceList, list[NewPage]]:
    """Moves long runs outside of pages into new pages.

    Pieces that are not stored yet stay outside: a page outlives the checkpoint that it was written with, so it may
    only name what has an id.

    Args:
        pieces: Any piece list.
        first_page: How many new pages the same save has already.
        item_of: Gives the items that the pages are to hold.

    Returns:
        The same pieces, those of new pages at their new locations, with the new spans (ids `-1 - n`, counted from
        `first_page`); and the new pages.
    """
    spans: list[PageSpan] = []
    new: list[NewPage] = []
    places = list(pieces.places)
    enough = min(max(len(places) // LIST_PER_PAGE, PAGE_PIECES_MIN), PAGE_PIECES)
    for start, end, page in stretches(pieces):
        if page is not None:
            spans.append(page)
            continue
        for cut_start, cut_end in _cuts(pieces.places, start, end, enough):
            number = first_page + len(new)
            keys = None if pieces.keys is None else pieces.keys[cut_start:cut_end]
            inside, items = _copied(pieces.places[cut_start:cut_end], item_of)
            spans.append(PageSpan(cut_start, cut_end - cut_start, -1 - number))
            new.append(NewPage(PieceList(inside, keys), items))
            places[cut_start:cut_end] = [
                own(-1 - place, number) if isinstance(place, int) and place < 0 else place for place in inside
            ]
    return (PieceList(places, pieces.keys, tuple(spans)), new) if new else (pieces, new)


def _copied(places: Sequence[Location], item_of: ItemOf) -> tuple[list[Location], list[bytes]]:
    """The locations inside of a page, and the items that it holds."""
    inside: list[Location] = []
    items: list[bytes] = []
    for place in places:
        item = item_of(place) if isinstance(place, int) else None
        if item is None or len(item) > PAGE_ITEM_BYTES_MAX:
            inside.append(place)
        else:
            inside.append(own(len(items)))
            items.append(item)
    return inside, items


def stretches(pieces: PieceList) -> Iterator[tuple[int, int, PageSpan | None]]:
    """The piece list as runs `(start, end, page or None)` in order."""
    at = 0
    for page in pieces.pages:
        if page.start > at:
            yield at, page.start, None
        yield page.start, page.start + page.count, page
        at = page.start + page.count
    if at < len(pieces.places):
        yield at, len(pieces.places), None


def _cuts(places: list[Location], start: int, end: int, enough: int) -> Iterator[tuple[int, int]]:
    """Runs of stored pieces that are to become pages: whole stretches, or parts of long ones."""
    inline_bytes = 0
    for at in range(start, end):
        place = places[at]
        if isinstance(place, bytes):
            inline_bytes += len(place)
        elif place < 0:
            if at - start >= enough:
                yield start, at
            start, inline_bytes = at + 1, 0
        if at + 1 - start >= PAGE_PIECES or inline_bytes >= PAGE_INLINE_BYTES:
            yield start, at + 1
            start, inline_bytes = at + 1, 0
    if end - start >= enough:
        yield start, end


def settle(pieces: PieceList, values_segment: int | None, page_ids: Sequence[int]) -> PieceList:
    """The piece list with the ids that storage assigned in place of negative ones."""
    pages = tuple(
        PageSpan(page.start, page.count, page_ids[-1 - page.segment_id]) if page.segment_id < 0 else page
        for page in pieces.pages
    )
    if values_segment is None and not page_ids:
        return PieceList(pieces.places, pieces.keys, pages)
    ids = (values_segment or 0, *page_ids)
    places: list[Location] = [
        location(ids[segment_of(-1 - place)], index_of(-1 - place)) if isinstance(place, int) and place < 0 else place
        for place in pieces.places
    ]
    return PieceList(places, pieces.keys, pages)


def pack_places(places: Sequence[Location]) -> list[list[Any]]:
    """Locations as two columns: steps between segment ids, and indexes.

    A step is an integer (against the id before, 0 at first), False for the own segment, None for an inline item (whose
    index column holds its bytes).
    """
    steps: list[Any] = []
    indexes: list[Any] = []
    previous = 0
    for place in places:
        if isinstance(place, bytes):
            steps.append(None)
            indexes.append(place)
        elif place < 0:
            steps.append(False)
            indexes.append(-1 - place)
        else:
            steps.append(segment_of(place) - previous)
            indexes.append(index_of(place))
            previous = segment_of(place)
    return [steps, indexes]


def unpack_places(columns: Sequence[Any], own_segment: Callable[[], int]) -> list[Location]:
    """The inverse of `pack_places`; `own_segment` gives the id that False stands for."""
    steps, indexes = columns[0], columns[1]
    if not any(steps) and set(map(type, steps)) == {bool} and len(steps) == len(indexes):
        first = own_segment() << ITEM_BITS
        return [first | index for index in indexes]
    places: list[Location] = []
    previous = 0
    for step, index in zip(steps, indexes, strict=True):
        if step is None:
            places.append(index)
        elif step is False:
            places.append(own_segment() << ITEM_BITS | index)
        else:
            previous += step
            places.append(previous << ITEM_BITS | index)
    return places
