"""Other numbers for the segments of a whole thread, in all payloads that name them.

Payloads name segments by id, and an id is a number of the database that gave it. A thread that leaves its database, and
comes to another one, needs ids of that one: they must be larger than what the thread has, and later ones larger still.

Works on plain documents (`payload.py`), without making records of them: ids stand in place columns and in the list of
consumed writes, everything else stays byte for byte what the encoder makes of it. The order of ids carries meaning
(which write counts), so new ids must sort as the old ones do; callers see to that.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from deltastore.core.model import SegmentKind
from deltastore.core.payload import ANCHOR, DELTA, pack, unpack
from deltastore.errors import CorruptPayloadError

NewNumber = Callable[[int], int]
"""Gives the new id for an old one; raises what the caller wants to see if there is none."""


def renumber_checkpoint(plain: bytes, new_number: NewNumber) -> bytes:
    """The document of a checkpoint with other segment ids.

    Raises:
        CorruptPayloadError: The document has an unknown form.
    """
    document = unpack(plain)
    try:
        if document[0] == DELTA:
            _, _, consumed, _, _, sets = document
            document[2] = _steps([new_number(each) for each in accumulate(consumed)])
            for _, _, _, *script in sets:
                _renumber_parts(script, new_number)
        elif document[0] == ANCHOR:
            _, _, _, _, values, histories = document
            for _, _, chunks in values:
                _renumber_parts(chunks, new_number)
            for _, seed, chunks in histories:
                _renumber_parts([] if seed is None else seed[1], new_number)
                _renumber_parts(chunks, new_number)
        else:
            raise _unknown_form(f"tag {document[0]}")
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise _unknown_form(repr(error)) from error
    return pack(document)


def _unknown_form(detail: str) -> CorruptPayloadError:
    return CorruptPayloadError("a payload has an unknown form", detail=detail)


def renumber_segment(kind: SegmentKind, plain: bytes, new_number: NewNumber) -> bytes:
    """The document of a segment with other segment ids.

    Raises:
        CorruptPayloadError: The document has an unknown form.
    """
    if kind is SegmentKind.VALUES:
        return plain
    document = unpack(plain)
    try:
        if kind is SegmentKind.PAGES:
            _, steps, _, _ = document
            _renumber_steps(steps, new_number)
        else:
            _, _, writes, _ = document
            for _, _, _, steps, *_ in writes:
                _renumber_steps(steps, new_number)
    except (TypeError, ValueError) as error:
        raise _unknown_form(repr(error)) from error
    return pack(document)


def _renumber_parts(parts: list[Any], new_number: NewNumber) -> None:
    """Place columns among the runs of a script, or among the chunks of a piece list."""
    for part in parts:
        if not isinstance(part, int):
            _renumber_steps(part[0], new_number)


def _renumber_steps(steps: list[Any], new_number: NewNumber) -> None:
    old, previous = 0, 0
    for position, step in enumerate(steps):
        if step is not None and step is not False:
            old += step
            new = new_number(old)
            steps[position], previous = new - previous, new


def _steps(ids: list[int]) -> list[int]:
    return [each - before for before, each in zip([0, *ids], ids, strict=False)]
