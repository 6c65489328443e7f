"""What a read gives: checkpoints and histories as structure, and the items that they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltastore.cache import CachedThread
from deltastore.core.chain import describe
from deltastore.core.model import ITEM_BITS, ThreadRef
from deltastore.core.pieces import PieceList
from deltastore.core.state import State, Value
from deltastore.core.writes import OpenSegment, StoredWrite
from deltastore.errors import BrokenChainError

INDEX_MASK = (1 << ITEM_BITS) - 1
MISSING_HINT = "the database lost rows or was changed by hand: restore them from a backup"


@dataclass(frozen=True, slots=True)
class ItemReader:
    """Finds items in opened segments.

    Attributes:
        where: What errors name.
        segments: The segments by id.
        cached: What is remembered of the thread.
    """

    where: str
    segments: Mapping[int, OpenSegment]
    cached: CachedThread | None = None

    def read(self, pieces: PieceList) -> list[bytes]:
        """The items of a piece list, in order. Raises `BrokenChainError` if one is not there."""
        try:
            return [
                place if isinstance(place, bytes) else self.segments[place >> ITEM_BITS].items[place & INDEX_MASK]
                for place in pieces.places
            ]
        except (KeyError, IndexError) as error:
            raise self._missing(pieces.segment_ids(), error) from error

    def writes(self, places: PieceList) -> list[StoredWrite]:
        """The writes at these places, in order. Raises `BrokenChainError` if one is not there."""
        try:
            return [
                StoredWrite(place, self.segments[place >> ITEM_BITS].writes[place & INDEX_MASK])
                for place in places.places
                if isinstance(place, int)
            ]
        except (KeyError, IndexError) as error:
            raise self._missing(places.segment_ids(), error) from error

    def need(self, segment_ids: set[int]) -> None:
        """Raises `BrokenChainError` if a segment is not there."""
        if not segment_ids <= self.segments.keys():
            raise self._missing(segment_ids, KeyError())

    def _missing(self, segment_ids: set[int], error: Exception) -> BrokenChainError:
        missing = sorted(segment_ids - self.segments.keys())
        detail = f"missing segments {missing}" if missing else f"a segment is too short: {error!r}"
        return BrokenChainError(f"{self.where}: stored items are missing", detail=detail, hint=MISSING_HINT)


@dataclass(frozen=True, slots=True)
class Loaded:
    """One checkpoint, found and folded.

    Attributes:
        thread: Its thread.
        namespace: Its namespace.
        checkpoint_id: Its ordered key.
        parent_id: The ordered key of its parent, or None if it has none or the parent was deleted.
        state: Its state.
        volatile: The changing part of its metadata.
        shared: The shared part of its metadata, as one encoded item.
        writes: Its pending writes, in order.
        items: Finds all items that values and pending writes need.
    """

    thread: ThreadRef
    namespace: str
    checkpoint_id: bytes
    parent_id: bytes | None
    state: State
    volatile: list[Any]
    shared: bytes
    writes: Sequence[StoredWrite]
    items: ItemReader

    @property
    def where(self) -> str:
        """How errors name it."""
        return describe(self.thread, self.namespace, self.checkpoint_id)


@dataclass(frozen=True, slots=True)
class ChannelHistory:
    """What a DeltaChannel is rebuilt from, with the items it needs."""

    seed: Value | None
    writes: Sequence[StoredWrite]
    items: ItemReader


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint's state and write segments, and the part of the cache that belongs to the epoch of both."""

    state: State
    writes: Sequence[OpenSegment]
    cached: CachedThread
