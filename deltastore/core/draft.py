"""From what the caller put to the rows that store it: the pure half of a save.

Every save is drafted the same way: the difference from the parent's state (an empty state where there is none) is
built, then *applied* with the function that loads use, and the result is checked against what the caller gave. Only
then is it written, as that difference, or in full if the policy wants an anchor. So a state that a save leaves in the
cache is by construction the state that a load will rebuild.

Where an item goes:

- up to `TINY_BYTES`: into the row itself, a reference would not be shorter;
- an item that the thread holds already (a write, an older value, another channel): a reference;
- up to `inline_bytes`: into the row itself;
- larger: into one segment of values, written with the row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deltastore.core import header as headers
from deltastore.core.chain import apply_delta, grow_histories
from deltastore.core.codec import EncodedValue
from deltastore.core.header import Header, same
from deltastore.core.model import Location
from deltastore.core.payload import NO_BASE, SEED_BASE, VALUE_BASE, Anchor, ChannelEdit, Delta
from deltastore.core.pieces import ItemOf, NewPage, PieceList, Run, Script, match, not_at_hand, own, paginate, settle
from deltastore.core.state import History, State, Value
from deltastore.core.writes import OpenSegment, Write, by_channel, effective
from deltastore.errors import InvalidConfigError

TINY_BYTES = 16
ITEMS_MAX = 1 << 20

EMPTY = State(Header({}, {}), {}, {}, -1)
"""The parent's state where there is no parent."""


@dataclass(frozen=True, slots=True)
class Put:
    """A `put` call, encoded.

    Attributes:
        namespace: The checkpoint namespace.
        checkpoint_id: The ordered key of the checkpoint's id.
        parent_id: The ordered key of the parent's id, or None.
        header: The checkpoint without id and values.
        named: Channels that `new_versions` names.
        values: The encoded value of each named channel that has one.
        volatile: The changing part of the metadata.
        shared: The shared part of the metadata as one encoded item.
        document: The searchable form of the shared part.
        inherited: Channels that the caller says have something, which is not given here but taken from the parent.
        held_id: The oldest checkpoint that the caller's config names (`Save.held_id`).
    """

    namespace: str
    checkpoint_id: bytes
    parent_id: bytes | None
    header: Header
    named: frozenset[str]
    values: Mapping[str, EncodedValue]
    volatile: list[Any]
    shared: bytes
    document: str
    inherited: frozenset[str] = frozenset()
    held_id: bytes | None = None


@dataclass(slots=True)
class Items:
    """Finds or gives a place for each item of one save.

    Attributes:
        known: The place of a stored item by its digest, or None.
        inline_bytes: Items up to this size stay in the row.
        own: Items for the segment that is written with the row.
        own_marks: Their digests.
    """

    known: Callable[[bytes], int | None]
    inline_bytes: int
    own: list[bytes] = field(default_factory=list)
    own_marks: list[bytes] = field(default_factory=list)
    _own_places: dict[bytes, int] = field(default_factory=dict)

    def place(self, item: bytes, mark: bytes) -> Location:
        """Where `item`, whose digest is `mark`, is or will be."""
        if len(item) <= TINY_BYTES:
            return item
        place = self.known(mark)
        if place is None:
            place = self._own_places.get(mark)
        if place is not None:
            return place
        if len(item) <= self.inline_bytes:
            return item
        if len(self.own) >= ITEMS_MAX:
            raise InvalidConfigError(f"more than {ITEMS_MAX} new items in one save", hint="save the value in parts")
        self._own_places[mark] = own(len(self.own))
        self.own.append(item)
        self.own_marks.append(mark)
        return own(len(self.own) - 1)


@dataclass(frozen=True, slots=True)
class Draft:
    """A save, ready to be sealed.

    Attributes:
        state: The state that it leads to; what has no id yet has negative ones.
        body: What the row will hold.
        items: Items of the segment of values; empty for no segment.
        pages: New pages.
        old_pages: Ids of older pages that the row names.
        references: Whether anything stored is referred to.
        unsettled: Channels that may hold what has no id yet.
    """

    state: State
    body: Anchor | Delta
    items: list[bytes]
    pages: list[NewPage]
    old_pages: tuple[int, ...]
    references: bool
    unsettled: Collection[str]

    @property
    def new_bytes(self) -> int:
        """Bytes of the items that are written with the row."""
        return sum(map(len, self.items)) + sum(len(item) for page in self.pages for item in page.items)

    def opened(self, values_and_pages: Sequence[int]) -> list[OpenSegment]:
        """The new segments as a load would open them, with the ids that storage assigned, in order."""
        ids = list(values_and_pages)
        values = [OpenSegment(ids.pop(0), self.items)] if self.items else []
        return values + [
            OpenSegment(page_id, page.items, (), settle(page.pieces, page_id, ()))
            for page_id, page in zip(ids, self.pages, strict=True)
        ]

    def settled(self, values_and_pages: Sequence[int]) -> State:
        """The state with the ids that storage assigned to the new segments, in order."""
        if not values_and_pages:
            return self.state
        values_segment = values_and_pages[0] if self.items else None
        page_ids = values_and_pages[1:] if self.items else values_and_pages
        return self._settled(values_segment, page_ids)

    def _settled(self, values_segment: int | None, page_ids: Sequence[int]) -> State:
        def settled(value: Value) -> Value:
            return Value(value.kind, settle(value.pieces, values_segment, page_ids), value.marks)

        values, histories = dict(self.state.values), dict(self.state.histories)
        for channel in self.unsettled:
            if channel in values:
                values[channel] = settled(values[channel])
            if channel in histories:
                seed, writes = histories[channel].seed, settle(histories[channel].writes, values_segment, page_ids)
                histories[channel] = History(None if seed is None else settled(seed), writes)
        return State(self.state.header, values, histories, self.state.depth)


def foreign_channels(put: Put, parent: State) -> dict[str, Any]:
    """Channels whose version is neither the parent's nor new, with that version.

    Their value, or the history that stands for it, is the one stored for that version elsewhere in the namespace. It
    happens where a checkpoint is copied to another place of the tree, or put without a parent.
    """
    before = parent.header.versions
    return {
        channel: version
        for channel, version in put.header.versions.items()
        if channel not in put.named and not (channel in before and same(before[channel], version))
    }


def draft(
    put: Put,
    parent: State | None,
    consumed: Sequence[OpenSegment],
    marks: Callable[[Value], list[Any]],
    items: Items,
    *,
    foreign: Mapping[str, Value | History | None],
    snapshot_frequency: int,
    ignored: frozenset[str],
    item_of: ItemOf = not_at_hand,
) -> Draft:
    """Drafts a save.

    Args:
        put: What the caller put.
        parent: The parent's state, or None if there is none to build on.
        consumed: The parent's write segments.
        marks: The marks of a stored value's pieces.
        items: Places for items.
        foreign: Values or histories of the foreign channels; None where nothing is stored for their version.
        snapshot_frequency: An anchor every so many steps.
        ignored: Channels that never get a history.
        item_of: Stored items, for new pages.
    """
    base = EMPTY if parent is None else parent
    delta = difference(put, base, consumed, marks, items)
    state = _marked(apply_delta(base, delta, consumed, ignored), put)
    if foreign:
        values = {channel: value for channel, value in state.values.items() if channel not in foreign}
        values |= {channel: found for channel, found in foreign.items() if isinstance(found, Value)}
        histories = grow_histories(base, values, by_channel(effective(consumed), ignored))
        histories |= {channel: found for channel, found in foreign.items() if isinstance(found, History)}
        state = replace(state, values=values, histories=histories)
    if state.header != put.header:
        raise AssertionError("the drafted header differs from the given one: a defect of deltastore")
    if parent is not None and not foreign and state.depth < snapshot_frequency:
        return Draft(state, delta, items.own, [], (), True, put.values.keys())
    given: dict[Location, bytes] = {}
    for channel, encoded in put.values.items():
        if channel in state.values:
            given |= zip(state.values[channel].pieces.places, encoded.items, strict=True)
    return anchor_draft(
        replace(state, header=put.header, depth=0), items.own, lambda place: given.get(place) or item_of(place)
    )


def _marked(state: State, put: Put) -> State:
    """The state with the marks of the values that were put: the next save compares with them."""
    values = {
        channel: Value(value.kind, value.pieces, marks_of(put.values[channel])) if channel in put.values else value
        for channel, value in state.values.items()
    }
    return State(state.header, values, state.histories, state.depth)


def anchor_draft(state: State, items: list[bytes], item_of: ItemOf = not_at_hand) -> Draft:
    """Drafts a state in full; its long runs become pages, which hold the items that `item_of` gives."""
    pages: list[NewPage] = []

    def paged(pieces: PieceList, item_of: ItemOf = not_at_hand) -> PieceList:
        pieces, new = paginate(pieces, len(pages), item_of)
        pages.extend(new)
        return pieces

    def paged_value(value: Value) -> Value:
        return Value(value.kind, paged(value.pieces, item_of), value.marks)

    values = {name: paged_value(value) for name, value in state.values.items()}
    histories = {
        name: History(history.seed and paged_value(history.seed), paged(history.writes))
        for name, history in state.histories.items()
    }
    anchored = replace(state, values=values, histories=histories, depth=0)
    old_pages = sorted(
        {page.segment_id for pieces in piece_lists(anchored) for page in pieces.pages}
        - {-1 - position for position in range(len(pages))}
    )
    references = bool(old_pages) or any(
        isinstance(place, int) and place >= 0 for pieces in piece_lists(anchored) for place in pieces.places
    )
    body = Anchor(anchored.header, anchored.values, anchored.histories)
    return Draft(anchored, body, items, pages, tuple(old_pages), references, values.keys() | histories.keys())


def piece_lists(state: State) -> Iterable[PieceList]:
    """Every piece list of a state."""
    for value in state.values.values():
        yield value.pieces
    for history in state.histories.values():
        yield history.writes
        if history.seed is not None:
            yield history.seed.pieces


def difference(
    put: Put,
    parent: State,
    consumed: Sequence[OpenSegment],
    marks: Callable[[Value], list[Any]],
    items: Items,
) -> Delta:
    """What `put` changes against the parent's state."""
    positions = {channel: position for position, channel in enumerate(parent.header.versions)}
    dropped = [
        positions.get(channel, channel)
        for channel in sorted(put.named)
        if channel in parent.values and channel not in put.values and channel in put.header.versions
    ]
    sets = [
        _channel_edit(positions.get(channel, channel), encoded, *_base(parent, channel, encoded), marks, items)
        for channel, encoded in put.values.items()
        if channel in put.header.versions
    ]
    ids = tuple(sorted(segment.segment_id for segment in consumed))
    return Delta(headers.difference(parent.header, put.header), tuple(dropped), tuple(sets), ids)


def _base(parent: State, channel: str, encoded: EncodedValue) -> tuple[int, Value | None]:
    """What a channel's script copies from: the parent's value, else the seed of its history."""
    value = parent.values.get(channel)
    kind = VALUE_BASE
    if value is None:
        history = parent.histories.get(channel)
        value = None if history is None else history.seed
        kind = SEED_BASE
    if value is None or (value.pieces.keys is None) != (encoded.keys is None):
        return NO_BASE, None
    return kind, value


def _channel_edit(
    channel: int | str,
    encoded: EncodedValue,
    base_kind: int,
    base: Value | None,
    marks: Callable[[Value], list[Any]],
    items: Items,
) -> ChannelEdit:
    digests, target = encoded.digests, marks_of(encoded)
    script: Script = []
    copies = False
    for start, first, count in match([] if base is None else marks(base), target):
        if start is None:
            last = first + count
            places = [items.place(encoded.items[at], digests[at]) for at in range(first, last)]
            keys = None if encoded.keys is None else encoded.keys[first:last]
            script.append(Run(None, count, PieceList(places, keys)))
        else:
            copies = True
            script.append(Run(start, count))
    return ChannelEdit(channel, encoded.kind, base_kind if copies else NO_BASE, script)


def marks_of(encoded: EncodedValue) -> list[Any]:
    """The marks of an encoded value's pieces."""
    return encoded.digests if encoded.keys is None else list(zip(encoded.keys, encoded.digests, strict=True))


@dataclass(frozen=True, slots=True)
class PutWrites:
    """A `put_writes` call, encoded: `(index, channel, value)` for each write. `held_id` as for `Put`."""

    namespace: str
    checkpoint_id: bytes
    task_id: str
    task_path: str
    writes: tuple[tuple[int, str, EncodedValue], ...]
    held_id: bytes | None = None


def draft_writes(put: PutWrites, items: Items) -> tuple[Write, ...]:
    """The writes with places for their items."""
    return tuple(
        Write(
            put.task_id,
            put.task_path,
            index,
            channel,
            value.kind,
            PieceList([items.place(*pair) for pair in zip(value.items, value.digests, strict=True)], value.keys),
        )
        for index, channel, value in put.writes
    )


def settle_writes(segment_id: int, writes: Iterable[Write], items: Sequence[bytes]) -> OpenSegment:
    """The stored call, once storage assigned its segment an id."""
    settled = tuple([write._replace(pieces=settle(write.pieces, segment_id, ())) for write in writes])
    return OpenSegment(segment_id, items, settled)
