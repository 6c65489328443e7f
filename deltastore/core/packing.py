"""Packs: many segments of a thread in one row, compressed together. `docs/format.md` gives the same byte by byte.

A pack holds all segments of the thread with ids from its first one to its last one, and has the id of the last one. So
the pack that holds a segment is the first one from the segment's id on, and packs are older than all other segments.
Segments keep their ids, and what they hold: whatever refers to them stays right, and so no checkpoint is rewritten.

    pack       [steps, kinds, owners, keys, references, documents]

Columns of one length, an entry for each segment in the order of their ids; `keys` are the distinct checkpoints of the
segments, in the order in which they first come. Documents are plain: one pack is compressed, ciphered and checked as a
whole. The bytes of segments that were sealed one by one shrink to less than a half, since they repeat each other, and
since there is time for the highest level of compression.

What comes out of a pack are segments like all others, but with a plain payload (`SegmentRow.pack_id`). Storages hand
out whole packs, as they cannot open them; `unpacked` is the one way from what they hand out to segments.

A row of the database tells of a pack what is needed to find it: the largest id, the range of checkpoint ids, and the
segments outside that its writes refer to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

from deltastore.core.chain import open_segment
from deltastore.core.edits import ThreadRows
from deltastore.core.frame import Cipher, declared_bytes, seal, unseal
from deltastore.core.model import SegmentKind, SegmentRow, ThreadRef
from deltastore.core.payload import pack, segment_binding, steps_of, unpack
from deltastore.core.writes import OpenSegment
from deltastore.errors import CorruptPayloadError, StoredDataError

PACK_BYTES = 2**22
"""Plain bytes from which on a pack is closed behind the next page: pages repeat items that were written shortly before,
and a repetition inside of a pack costs next to nothing."""

PACK_BYTES_MAX = PACK_BYTES * 3 // 2
"""Plain bytes that a pack of several segments does not exceed; less than the window of the compressor."""

LEVEL: Final = 19
"""zstd level: a pack is written once, and not while a graph waits for it."""

_KINDS: Final = {int(kind): kind for kind in SegmentKind if kind is not SegmentKind.PACK}


def seal_pack(segments: Sequence[SegmentRow], cipher: Cipher | None) -> SegmentRow:
    """A pack of segments with plain payloads, in the order of their ids.

    Raises:
        UnserializableValueError: They are too large together.
    """
    keys = {key: position for position, key in enumerate(dict.fromkeys(map(_key, segments)))}
    plain = pack(
        [
            steps_of(segment.segment_id for segment in segments),
            [int(segment.kind) for segment in segments],
            [keys[_key(segment)] for segment in segments],
            list(keys),
            [steps_of(segment.references) if segment.references else None for segment in segments],
            [segment.payload for segment in segments],
        ]
    )
    first, last = min(key[1] for key in keys), max(key[1] for key in keys)
    held = {segment.segment_id for segment in segments}
    named = {each for row in segments if row.kind is SegmentKind.WRITES for each in row.references}
    binding = segment_binding(SegmentKind.PACK, "", last)
    return SegmentRow(
        segments[-1].segment_id,
        SegmentKind.PACK,
        "",
        last,
        seal(plain, associated=binding, cipher=cipher, level=LEVEL),
        tuple(sorted(named - held)),
        first,
    )


def open_pack(row: SegmentRow, cipher: Cipher | None) -> tuple[SegmentRow, ...]:
    """The segments of a pack, with plain payloads.

    Raises:
        CorruptPayloadError: It is damaged, or the pack of another row.
        UnreadableValueError: It is ciphered and the cipher cannot read it.
    """
    plain = unseal(row.payload, associated=segment_binding(row.kind, row.namespace, row.checkpoint_id), cipher=cipher)
    document = unpack(plain)
    try:
        segments = tuple(_segments(document, row.segment_id))
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise CorruptPayloadError("a pack has an unknown form", detail=repr(error)) from error
    last = segments[-1].segment_id if segments else None
    if last != row.segment_id:
        raise CorruptPayloadError(
            "a pack belongs to another row", detail=f"it ends with segment {last}, expected {row.segment_id}"
        )
    return segments


def unpacked(thread: ThreadRef, rows: Iterable[SegmentRow], cipher: Cipher | None) -> Iterator[SegmentRow]:
    """Rows as the storage gives them, with the segments of packs in place of these.

    Raises:
        StoredDataError: A pack cannot be opened; names the thread and the pack.
    """
    for row in rows:
        if row.kind is not SegmentKind.PACK:
            yield row
            continue
        try:
            segments = open_pack(row, cipher)
        except StoredDataError as error:
            where = f"pack {row.segment_id} of thread {thread.thread_id!r} cannot be read"
            raise type(error)(f"{where}: {error.message}", detail=error.detail, hint=error.hint) from error
        yield from segments


def unpacked_rows(rows: ThreadRows, cipher: Cipher | None) -> ThreadRows:
    """The structure of a thread with the segments of packs in place of these. Raises as `unpacked`."""
    if all(segment.kind is not SegmentKind.PACK for segment in rows.segments):
        return rows
    segments = (
        segment if segment.pack_id is None or segment.kind is SegmentKind.PAGES else replace(segment, payload=b"")
        for segment in unpacked(rows.thread, rows.segments, cipher)
    )
    return replace(rows, segments=tuple(segments))


def open_among(
    rows: Mapping[int, SegmentRow],
    wanted: Iterable[int],
    thread: ThreadRef,
    found: dict[int, OpenSegment],
    remembered: Mapping[int, OpenSegment],
    cipher: Cipher | None,
) -> set[int]:
    """Adds to `found` the wanted segments, and those that writes among the rows repeat; which of them are not there."""
    waiting, missing = list(wanted), set()
    while waiting:
        segment_id = waiting.pop()
        if segment_id in found:
            continue
        row = rows.get(segment_id)
        if segment_id in remembered:
            found[segment_id] = remembered[segment_id]
        elif row is not None:
            found[segment_id] = open_segment(thread, row, cipher)
            waiting += row.references if row.kind is SegmentKind.WRITES else ()
        else:
            missing.add(segment_id)
    return missing


def has_room(row: SegmentRow) -> bool:
    """Whether a pack is so small that it is packed anew with what came since. Raises `CorruptPayloadError`."""
    return declared_bytes(row.payload) < PACK_BYTES // 2


def grouped(segments: Iterable[SegmentRow]) -> Iterator[list[SegmentRow]]:
    """Segments with plain payloads, in the order of their ids, as they are to be packed together."""
    group: list[SegmentRow] = []
    group_bytes = 0
    for segment in segments:
        is_behind_page = bool(group) and group[-1].kind is SegmentKind.PAGES and segment.kind is not SegmentKind.PAGES
        is_full = group_bytes > PACK_BYTES and is_behind_page
        if group and (is_full or group_bytes + len(segment.payload) > PACK_BYTES_MAX):
            yield group
            group, group_bytes = [], 0
        group.append(segment)
        group_bytes += len(segment.payload)
    if group:
        yield group


def _key(segment: SegmentRow) -> tuple[str, bytes]:
    return segment.namespace, segment.checkpoint_id


def _segments(document: Any, pack_id: int) -> Iterator[SegmentRow]:
    steps, kinds, owners, keys, references, documents = document
    ids = accumulate(steps)
    for step, segment_id, kind, owner, named, plain in zip(
        steps, ids, kinds, owners, references, documents, strict=True
    ):
        namespace, checkpoint_id = keys[owner]
        if not all(type(each) is int and each > 0 for each in (step, *(named or ()))):
            raise ValueError(f"segment {segment_id}: steps {step}, {named}")
        if not (isinstance(namespace, str) and isinstance(checkpoint_id, bytes) and isinstance(plain, bytes)):
            raise TypeError(f"segment {segment_id} of {keys[owner]}: a {type(plain).__name__}")
        yield SegmentRow(
            segment_id,
            _KINDS[kind],
            namespace,
            checkpoint_id,
            plain,
            tuple(accumulate(named or ())),
            pack_id=pack_id,
        )
