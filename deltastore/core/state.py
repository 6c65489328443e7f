"""The state of one checkpoint as the saver knows it: structure and locations, no decoded value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deltastore.core.header import Header
from deltastore.core.pieces import PieceList


@dataclass(frozen=True, slots=True)
class Value:
    """A channel's value.

    Attributes:
        kind: How it was taken apart (`codec.ValueKind`, plus `SNAPSHOT`).
        pieces: Its pieces.
        marks: What identifies each piece, if that is known: the item's digest, with the key in a dict.
    """

    kind: int
    pieces: PieceList
    marks: list[Any] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class History:
    """What a channel without a stored value is rebuilt from: LangGraph's DeltaChannel history.

    Attributes:
        seed: The value at the nearest ancestor that has one; None if there is none up to the root.
        writes: Places of the writes since then, oldest first, each a location of a write in its segment.
    """

    seed: Value | None
    writes: PieceList


@dataclass(frozen=True, slots=True)
class State:
    """One checkpoint's state.

    Attributes:
        header: Everything but id and values.
        values: Channels that have a value here.
        histories: Channels that have none here, but have a value or writes at an ancestor.
        depth: Steps back to the anchor.
    """

    header: Header
    values: dict[str, Value] = field(default_factory=dict)
    histories: dict[str, History] = field(default_factory=dict)
    depth: int = 0
