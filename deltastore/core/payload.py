"""What the payloads of rows hold, between records and MessagePack. `docs/format.md` gives the same byte by byte.

Four documents, each a MessagePack array, sealed by `frame.py`:

    delta      [0, volatile, consumed, header difference, dropped, sets]
    anchor     [1, volatile, has values, header, values, histories]
    page       [keys or nil, steps, indexes, items]
    segment    values: [items]        writes: [task, path, writes, items]

`volatile` is the changing part of the metadata (`metadata.py`). `consumed` are the ids of the parent's write segments
that the checkpoint was made with: a rebuild that misses one of them stops with an error instead of a shorter history.

A payload is sealed together with the row's own identity, so that bytes which end up at another row are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import ormsgpack

from deltastore.core import header as headers
from deltastore.core.header import Header
from deltastore.core.identifiers import pack_uuid, unpack_uuid
from deltastore.core.model import CheckpointRow, Location, SegmentKind
from deltastore.core.pieces import (
    NewPage,
    PageSpan,
    PieceList,
    Run,
    Script,
    pack_places,
    stretches,
    unpack_places,
)
from deltastore.core.state import History, Value
from deltastore.core.writes import OpenSegment, Write
from deltastore.errors import BrokenChainError, CorruptPayloadError

DELTA, ANCHOR = 0, 1
NO_BASE, VALUE_BASE, SEED_BASE = 0, 1, 2


class ChannelEdit(NamedTuple):
    """How one channel gets its value from the parent's.

    Attributes:
        channel: The channel's position in the parent's header, or its name if the parent doesn't have it.
        kind: The new value's kind.
        base: What the script copies from: `NO_BASE`, the parent's value, or the seed of the parent's history.
        script: The runs.
    """

    channel: int | str
    kind: int
    base: int
    script: Script


class Delta(NamedTuple):
    """What a checkpoint changed against its parent."""

    header: list[Any]
    dropped: tuple[int | str, ...]
    sets: tuple[ChannelEdit, ...]
    consumed: tuple[int, ...]


class Anchor(NamedTuple):
    """A checkpoint in full."""

    header: Header
    values: dict[str, Value]
    histories: dict[str, History]


class CheckpointPayload(NamedTuple):
    """A checkpoint row's payload: the changing part of its metadata, and a delta or an anchor."""

    volatile: list[Any]
    body: Delta | Anchor


def pack(document: Any) -> bytes:
    """A document as MessagePack."""
    return ormsgpack.packb(document, option=ormsgpack.OPT_NON_STR_KEYS)


def unpack(plain: bytes) -> Any:
    """The inverse of `pack`.

    Raises:
        CorruptPayloadError: Not MessagePack.
    """
    try:
        return ormsgpack.unpackb(plain, option=ormsgpack.OPT_NON_STR_KEYS)
    except ormsgpack.MsgpackDecodeError as error:
        raise CorruptPayloadError("a payload is not MessagePack", detail=str(error)) from error


def checkpoint_binding(row: CheckpointRow) -> bytes:
    """What a checkpoint's payload is sealed together with."""
    return pack(["checkpoint", row.namespace, row.checkpoint_id, row.parent_id, row.depth, row.metadata_id])


def segment_binding(kind: SegmentKind, namespace: str, checkpoint_id: bytes) -> bytes:
    """What a segment's payload is sealed together with. Its id is not part: storage assigns it later."""
    return pack(["segment", int(kind), namespace, checkpoint_id])


def metadata_binding(metadata_id: int) -> bytes:
    """What a metadata document is sealed together with."""
    return pack(["metadata", metadata_id])


# --- checkpoints


def pack_checkpoint(payload: CheckpointPayload, old_pages: Sequence[int], new_pages: int, has_values: bool) -> bytes:
    """A checkpoint's document.

    Args:
        payload: What to write. New pages have negative ids (`pieces.paginate`).
        old_pages: Ids of older pages, in the order of the row's `segments` behind the new ones.
        new_pages: How many new pages are written with it.
        has_values: Whether a segment of values is written with it.
    """
    body = payload.body
    if isinstance(body, Delta):
        sets = [[each.channel, each.kind, each.base, *_pack_script(each.script)] for each in body.sets]
        return pack([DELTA, payload.volatile, steps_of(body.consumed), body.header, list(body.dropped), sets])
    first = int(has_values)
    slots = {-1 - position: first + position for position in range(new_pages)}
    slots |= {page: first + new_pages + position for position, page in enumerate(old_pages)}
    channels = {name: position for position, name in enumerate(body.header.versions)}
    values = [
        [channels.get(name, name), value.kind, _pack_chunks(value.pieces, slots)] for name, value in body.values.items()
    ]
    histories = [
        [
            channels.get(name, name),
            None if history.seed is None else [history.seed.kind, _pack_chunks(history.seed.pieces, slots)],
            _pack_chunks(history.writes, slots),
        ]
        for name, history in body.histories.items()
    ]
    return pack([ANCHOR, payload.volatile, has_values, headers.pack(body.header), values, histories])


def unpack_volatile(plain: bytes) -> list[Any]:
    """Only the changing part of the metadata of a checkpoint's document. Raises `CorruptPayloadError`."""
    document = unpack(plain)
    if not isinstance(document, list) or len(document) < 2 or not isinstance(document[1], list):
        raise CorruptPayloadError("a checkpoint's payload has an unknown form")
    return document[1]


def unpack_checkpoint(plain: bytes, segments: Sequence[int], pages: Mapping[int, PieceList]) -> CheckpointPayload:
    """A checkpoint's document read.

    Args:
        plain: The opened payload.
        segments: The row's `segments`.
        pages: Contents of the pages that the row names.

    Raises:
        CorruptPayloadError: The document has another form.
        BrokenChainError: A page that it names is not there.
    """
    document = unpack(plain)
    try:
        return _unpack_document(document, segments, pages)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise CorruptPayloadError("a checkpoint's payload has an unknown form", detail=repr(error)) from error


def _unpack_document(document: list[Any], segments: Sequence[int], pages: Mapping[int, PieceList]) -> CheckpointPayload:
    tag, volatile = document[0], document[1]

    def own_segment() -> int:
        return segments[0]

    if tag == DELTA:
        consumed, header, dropped, sets = document[2:]
        edits = [
            ChannelEdit(channel, kind, base, _unpack_script(script, own_segment))
            for channel, kind, base, *script in sets
        ]
        return CheckpointPayload(volatile, Delta(header, tuple(dropped), tuple(edits), tuple(accumulate(consumed))))
    if tag != ANCHOR:
        raise ValueError(f"tag {tag}")
    header = headers.unpack(document[3])
    names = list(header.versions)

    def pieces(chunks: list[Any]) -> PieceList:
        return _unpack_chunks(chunks, segments, pages, own_segment)

    def name(reference: int | str) -> str:
        return names[reference] if isinstance(reference, int) else reference

    values = {name(channel): Value(kind, pieces(chunks)) for channel, kind, chunks in document[4]}
    histories = {
        name(channel): History(None if seed is None else Value(seed[0], pieces(seed[1])), pieces(chunks))
        for channel, seed, chunks in document[5]
    }
    return CheckpointPayload(volatile, Anchor(header, values, histories))


def steps_of(ids: Iterable[int]) -> list[int]:
    """Ids in ascending order, each as the step from the one before (from 0)."""
    ordered = sorted(ids)
    return [each - before for before, each in zip([0, *ordered], ordered, strict=False)]


def _pack_pieces(pieces: PieceList) -> list[Any]:
    columns = pack_places(pieces.places)
    return columns if pieces.keys is None else [*columns, pieces.keys]


def _unpack_pieces(columns: list[Any], own_segment: Any) -> PieceList:
    keys = columns[2] if len(columns) > 2 else None
    places = unpack_places(columns, own_segment)
    if keys is not None and len(keys) != len(places):
        raise ValueError(f"{len(keys)} keys for {len(places)} pieces")
    return PieceList(places, keys)


def _pack_script(script: Script) -> list[Any]:
    packed: list[Any] = []
    for run in script:
        if run.pieces is None:
            packed += [run.start, run.count]
        else:
            packed.append(_pack_pieces(run.pieces))
    return packed


def _unpack_script(packed: list[Any], own_segment: Any) -> Script:
    script: Script = []
    parts = iter(packed)
    for part in parts:
        if isinstance(part, int):
            script.append(Run(part, int(next(parts, "none"))))
        else:
            pieces = _unpack_pieces(part, own_segment)
            script.append(Run(None, len(pieces.places), pieces))
    return script


def _pack_chunks(pieces: PieceList, slots: Mapping[int, int]) -> list[Any]:
    """A piece list as page positions and, between them, columns. An empty dict keeps its (empty) keys."""
    chunks: list[Any] = []
    for start, end, page in stretches(pieces):
        if page is not None:
            chunks.append(slots[page.segment_id])
        else:
            keys = None if pieces.keys is None else pieces.keys[start:end]
            chunks.append(_pack_pieces(PieceList(pieces.places[start:end], keys)))
    return chunks


def _unpack_chunks(
    chunks: list[Any], segments: Sequence[int], pages: Mapping[int, PieceList], own_segment: Any
) -> PieceList:
    places: list[Location] = []
    keys: list[str] = []
    spans: list[PageSpan] = []
    for chunk in chunks:
        if isinstance(chunk, int):
            page_id = segments[chunk]
            if page_id not in pages:
                raise BrokenChainError(f"page {page_id} is missing")
            part = pages[page_id]
            spans.append(PageSpan(len(places), len(part.places), page_id))
        else:
            part = _unpack_pieces(chunk, own_segment)
        places += part.places
        keys += part.keys or []
    return PieceList(places, keys if len(keys) == len(places) and keys else None, tuple(spans))


# --- segments


def pack_page(page: NewPage) -> bytes:
    """A page's document."""
    return pack([page.pieces.keys, *pack_places(page.pieces.places), page.items])


def unpack_page(segment_id: int, plain: bytes) -> OpenSegment:
    """The inverse of `pack_page`. Raises `CorruptPayloadError`."""
    document = unpack(plain)
    try:
        keys, steps, indexes, _ = document
        pieces = PieceList(unpack_places([steps, indexes], lambda: segment_id), keys)
    except (TypeError, ValueError) as error:
        raise CorruptPayloadError("a page has an unknown form", detail=repr(error)) from error
    return OpenSegment(segment_id, _items(document, 3), (), pieces)


def pack_values(items: Sequence[bytes]) -> bytes:
    """The document of a segment of values."""
    return pack([list(items)])


def unpack_values(segment_id: int, plain: bytes) -> OpenSegment:
    """The inverse of `pack_values`. Raises `CorruptPayloadError`."""
    return OpenSegment(segment_id, _items(unpack(plain), 0))


def pack_writes(task_id: str, task_path: str, writes: Sequence[Write], items: Sequence[bytes]) -> bytes:
    """The document of one `put_writes` call. Items of its own have negative places."""
    packed = [[each.index, each.channel, each.kind, *_pack_pieces(each.pieces)] for each in writes]
    return pack([pack_uuid(task_id) or task_id, task_path, packed, list(items)])


def unpack_writes(segment_id: int, plain: bytes) -> OpenSegment:
    """The inverse of `pack_writes`. Raises `CorruptPayloadError`."""
    document = unpack(plain)
    try:
        task, task_path, packed, _ = document
        task_id = unpack_uuid(task) if isinstance(task, bytes) else task
        writes = [
            Write(task_id, task_path, index, channel, kind, _unpack_pieces(columns, lambda: segment_id))
            for index, channel, kind, *columns in packed
        ]
    except (TypeError, ValueError) as error:
        raise CorruptPayloadError("a segment of writes has an unknown form", detail=repr(error)) from error
    return OpenSegment(segment_id, _items(document, 3), tuple(writes))


def _items(document: Any, position: int) -> tuple[bytes, ...]:
    if not isinstance(document, list) or len(document) <= position or not isinstance(document[position], list):
        raise CorruptPayloadError("a segment has an unknown form")
    items = tuple(document[position])
    if not all(items) or set(map(type, items)) - {bytes}:
        raise CorruptPayloadError("a segment holds something that is not an item")
    return items
