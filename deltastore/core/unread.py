"""Items that cannot be read: which of many, and whether for a type that is missing here or for the bytes themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deltastore.core.codec import NAMED, TYPES, WRAPPED, Codec, EncodedValue, ValueKind
from deltastore.core.findings import Kind
from deltastore.core.payload import Anchor, CheckpointPayload
from deltastore.core.pieces import PieceList
from deltastore.errors import UnreadableValueError


def unread(codec: Codec, items: Sequence[bytes]) -> Iterator[tuple[int, Kind, str]]:
    """The items that the serializer does not read: `(position, kind of fault, reason)`.

    All are read in one call; only if that fails, one by one.
    """
    if not items:
        return
    try:
        codec.decode([("", EncodedValue(ValueKind.LIST, list(items)))])
    except UnreadableValueError:
        for index, item in enumerate(items):
            if (error := _error_of(codec, item)) is not None:
                yield index, Kind.TYPE if _is_refused_type(item, error) else Kind.VALUE, error.message


def _error_of(codec: Codec, item: bytes) -> UnreadableValueError | None:
    try:
        codec.decode_item(item, "it")
    except UnreadableValueError as error:
        return error
    return None


def _is_refused_type(item: bytes, error: UnreadableValueError) -> bool:
    """Whether the bytes are sound, and name something that the serializer does not build here."""
    tag = item[0] & ~WRAPPED if item else -1
    return (tag in TYPES or tag == NAMED) and isinstance(error.__cause__, UnreadableValueError)


def inline_items(pieces: PieceList) -> Iterator[bytes]:
    """Items of a piece list that its row holds itself."""
    return (place for place in pieces.places if isinstance(place, bytes))


def inline_items_of(payload: CheckpointPayload) -> Iterator[bytes]:
    """Items that the row itself holds."""
    body = payload.body
    if isinstance(body, Anchor):
        yield from body.header.extra.values()
        for value in body.values.values():
            yield from inline_items(value.pieces)
        for history in body.histories.values():
            if history.seed is not None:
                yield from inline_items(history.seed.pieces)
        return
    extra = body.header[7] if len(body.header) > 7 else None
    yield from extra.values() if isinstance(extra, dict) else ()
    for edit in body.sets:
        for run in edit.script:
            if run.pieces is not None:
                yield from inline_items(run.pieces)
