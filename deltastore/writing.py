"""The writing half of the engine: save a checkpoint, save writes.

A save takes one statement. It builds on the parent's state, which is in the cache when this process loaded or saved
the parent, else it is loaded first. The statement is refused when the thread's epoch moved on (something was removed)
or when the parent has other writes than were thought: then the cache is wrong, the parent is loaded again and the save
is drafted anew. A parent that is gone makes the save an anchor from what the caller gave; but if something that only
the parent had would be missing in it, the save is refused: a run would go on with less than it thinks it has.

Writes of a super-step and the checkpoint that consumes them often arrive together. A save first waits for writes to
its parent that are under way in this process, so that it can refer to their items instead of storing them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from deltastore.cache import Cache, CachedThread
from deltastore.core.chain import describe
from deltastore.core.draft import (
    EMPTY,
    Draft,
    Items,
    Put,
    PutWrites,
    draft,
    draft_writes,
    foreign_channels,
    settle_writes,
)
from deltastore.core.frame import Cipher
from deltastore.core.header import same
from deltastore.core.identifiers import unpack_checkpoint_id
from deltastore.core.model import Refusal, Save, Saved, SaveWrites, ThreadRef, index_of, segment_of
from deltastore.core.sealing import metadata_id_of, seal_checkpoint, seal_metadata, seal_writes
from deltastore.core.state import History, State, Value
from deltastore.core.writes import OpenSegment
from deltastore.errors import BrokenChainError, DatabaseUnavailableError, ThreadDeletedError
from deltastore.loaded import MISSING_HINT, Found
from deltastore.options import EngineOptions
from deltastore.reading import Reader
from deltastore.storage import Storage

ATTEMPTS = 8
EARLY_PAUSE_SECONDS = 0.02
EARLY_SECONDS_MAX = 2.0
"""How long the saves of a run that begins a deleted thread anew may arrive before its first one."""
FOREIGN_PAGE = 200
OFF_LOOP_BYTES = 128 * 1024
"""Saves with more new bytes than this are compressed in a thread."""

P = ParamSpec("P")
T = TypeVar("T")

WriteKey = tuple[bytes, str, bytes]


@dataclass(frozen=True, slots=True)
class Basis:
    """What a save is drafted from: the parent, its writes, and the cache as it was when both were read."""

    parent: State | None
    writes: Sequence[OpenSegment]
    foreign: Mapping[str, Value | History | None]
    cached: CachedThread | None
    is_whole: bool = True
    """Whether all items were found that the save is compared with. Some may have been removed a moment ago."""

    def known(self, mark: bytes) -> int | None:
        """Where the item with this digest is stored, if that is known."""
        return None if self.cached is None else self.cached.place(mark)

    def item(self, place: int) -> bytes | None:
        """The item at a stored location, if it is at hand."""
        segment = None if self.cached is None else self.cached.segments.get(segment_of(place))
        return segment.items[index_of(place)] if segment is not None and index_of(place) < len(segment.items) else None

    def marks(self, value: Value) -> list[Any]:
        """The marks of a stored value's pieces. Raises `BrokenChainError` if an item could not be found."""
        if value.marks is not None:
            return value.marks
        digests = [None if self.cached is None else self.cached.mark(place) for place in value.pieces.places]
        if None in digests:
            raise BrokenChainError("stored items are missing", hint=MISSING_HINT)
        return digests if value.pieces.keys is None else list(zip(value.pieces.keys, digests, strict=True))


@dataclass(frozen=True, slots=True)
class Writer:
    """Saves checkpoints and writes to a storage."""

    storage: Storage
    cache: Cache
    options: EngineOptions
    reader: Reader
    under_way: dict[WriteKey, set[asyncio.Future[None]]] = field(default_factory=dict)

    async def save(self, thread: ThreadRef, put: Put, cipher: Cipher | None) -> Refusal | None:
        """Stores a checkpoint. Returns `Refusal.EXISTS` if its id is stored already, None once it is stored.

        Raises:
            DatabaseError: Nothing was stored, or (unavailable) it is not known whether it was.
            StoredDataError: The parent cannot be rebuilt.
        """
        if put.parent_id is not None:
            await self._settle((thread.key, put.namespace, put.parent_id))
        for attempt in range(1, ATTEMPTS + 1):
            basis = await self.basis(thread, put, cipher)
            if basis.is_whole or attempt == ATTEMPTS:
                outcome = await self._attempt(thread, put, basis, cipher)
                if outcome is not Refusal.STALE:
                    return outcome
            self.cache.forget(thread.key)
        raise _always_changed(thread, put.namespace, put.checkpoint_id)

    async def save_writes(self, thread: ThreadRef, put: PutWrites, cipher: Cipher | None) -> None:
        """Stores the writes of one call. The checkpoint need not be there yet. Raises as `save`."""
        key = thread.key, put.namespace, put.checkpoint_id
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self.under_way.setdefault(key, set())
        waiting.add(done)
        try:
            await self._save_writes(thread, put, cipher)
        finally:
            done.set_result(None)
            waiting.discard(done)
            if not waiting and self.under_way.get(key) is waiting:
                del self.under_way[key]

    async def basis(self, thread: ThreadRef, put: Put, cipher: Cipher | None) -> Basis:
        """Finds or loads what the save is drafted from.

        All of it belongs to one epoch: that of the cache it came with, which the save then names.
        """
        found = await self._parent(thread, put, cipher)
        if found is None:
            foreign, cached = await self._foreign(thread, put, EMPTY, cipher)
            _refuse_loss(thread, put, foreign)
            return Basis(None, (), foreign, cached)
        is_whole = await self._learn_bases(thread, put, found, cipher)
        foreign, _ = await self._foreign(thread, put, found.state, cipher)
        return Basis(found.state, found.writes, foreign, found.cached, is_whole)

    def draft(self, put: Put, basis: Basis, *, always_anchor: bool = False) -> Draft:
        """Drafts the save from its basis; an anchor whenever the policy, or the caller, wants one."""
        return draft(
            put,
            basis.parent,
            basis.writes,
            basis.marks,
            Items(basis.known, self.options.inline_bytes),
            foreign=basis.foreign,
            snapshot_frequency=1 if always_anchor else self.options.snapshot_frequency,
            ignored=self.options.ignored_channels,
            item_of=basis.item,
        )

    async def _attempt(self, thread: ThreadRef, put: Put, basis: Basis, cipher: Cipher | None) -> Refusal | None:
        drafted = self.draft(put, basis)
        large = drafted.new_bytes > OFF_LOOP_BYTES
        metadata_id = metadata_id_of(put)
        row, segments = await _run(large, seal_checkpoint, put, drafted, metadata_id, cipher)
        is_bound = drafted.references or basis.parent is not None
        epoch = basis.cached.epoch if basis.cached is not None and is_bound else None
        known = epoch is not None and basis.cached is not None and metadata_id in basis.cached.metadata_ids
        metadata = None if known else seal_metadata(put, cipher)
        writes = None if basis.parent is None else sum(not each.is_packed for each in basis.writes)
        save = Save(thread, row, segments, metadata, epoch, writes, put.held_id)
        outcome = await _when_begun(lambda: self.storage.save(save))
        if outcome is Refusal.DELETED:
            raise was_deleted(thread, put.namespace, put.checkpoint_id)
        if isinstance(outcome, Refusal):
            return outcome
        self._remember(thread, put, drafted, outcome, metadata_id)
        return None

    def _remember(self, thread: ThreadRef, put: Put, drafted: Draft, saved: Saved, metadata_id: int) -> None:
        cached = self.cache.at_epoch(thread.key, saved.epoch)
        for segment in drafted.opened(saved.segment_ids):
            cached.remember_segment(segment)
        if not saved.is_amid_packs:  # else a child has to read which writes there are: those in packs are not counted
            cached.remember_state((put.namespace, put.checkpoint_id), drafted.settled(saved.segment_ids))
        cached.metadata_ids.add(metadata_id)
        self.cache.trim()

    async def _parent(self, thread: ThreadRef, put: Put, cipher: Cipher | None) -> Found | None:
        """The parent, from the cache or loaded; None if there is none to build on."""
        if put.parent_id is None:
            return None
        key = put.namespace, put.parent_id
        cached = self.cache.get(thread.key)
        if cached is not None and key in cached.states:
            return Found(cached.states[key], cached.writes.get(key, ()), cached)
        return await self.reader.find(thread, put.namespace, put.parent_id, cipher)

    async def _learn_bases(self, thread: ThreadRef, put: Put, found: Found, cipher: Cipher | None) -> bool:
        """Learns the digests of everything that the put is compared with; whether all of it is there."""
        wanted: set[int] = set()
        for channel in put.values:
            history = found.state.histories.get(channel)
            value = found.state.values.get(channel) or (None if history is None else history.seed)
            if value is not None and value.marks is None:
                wanted |= value.pieces.segment_ids()
        missing = [segment_id for segment_id in wanted if not found.cached.knows(segment_id)]
        if not missing:
            return True
        opened = await self.reader.open(thread, missing, {}, cipher, found.cached)
        return opened.keys() >= set(missing)

    async def _foreign(
        self, thread: ThreadRef, put: Put, parent: State, cipher: Cipher | None
    ) -> tuple[dict[str, Value | History | None], CachedThread | None]:
        """What the newest checkpoint with the version of a foreign channel (`foreign_channels`) has for it.

        The cache is that of the first page, so that a save whose pages belong to several epochs is refused.
        """
        wanted = foreign_channels(put, parent)
        found: dict[str, Value | History | None] = dict.fromkeys(wanted)
        cached = None
        if wanted:
            async for state in self.reader.states(thread, put.namespace, cipher, FOREIGN_PAGE):
                cached = cached or self.cache.get(thread.key)
                for channel, version in list(wanted.items()):
                    if same(state.header.versions.get(channel), version):
                        found[channel] = state.values.get(channel) or state.histories.get(channel)
                        del wanted[channel]
                if not wanted:
                    break
        return found, cached or self.cache.get(thread.key)

    async def _save_writes(self, thread: ThreadRef, put: PutWrites, cipher: Cipher | None) -> None:
        for _ in range(ATTEMPTS):
            cached = self.cache.get(thread.key)
            known: Callable[[bytes], int | None] = _nothing if cached is None else cached.place
            items = Items(known, 0)
            writes = draft_writes(put, items)
            large = sum(map(len, items.own)) > OFF_LOOP_BYTES
            segment = await _run(large, seal_writes, put, writes, items, cipher)
            epoch = cached.epoch if cached is not None and segment.references else None
            save = SaveWrites(thread, put.namespace, put.checkpoint_id, segment, epoch, put.held_id)
            outcome = await _when_begun(partial(self.storage.save_writes, save))
            if outcome is Refusal.DELETED:
                raise was_deleted(thread, put.namespace, put.checkpoint_id)
            if isinstance(outcome, Saved):
                stored = settle_writes(outcome.segment_ids[0], writes, items.own)
                remembered = self.cache.at_epoch(thread.key, outcome.epoch)
                remembered.remember_segment(stored, items.own_marks)
                remembered.add_writes((put.namespace, put.checkpoint_id), stored)
                self.cache.trim()
                return
            self.cache.forget(thread.key)
        raise _always_changed(thread, put.namespace, put.checkpoint_id)

    async def _settle(self, key: WriteKey) -> None:
        """Waits until the writes to a checkpoint that are under way have ended, well or not."""
        waiting = self.under_way.get(key)
        if waiting:
            await asyncio.wait(list(waiting))


async def _run(in_thread: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function, in a thread if it will take long: the compressor lets the event loop go on there."""
    return await asyncio.to_thread(function, *args, **kwargs) if in_thread else function(*args, **kwargs)


async def _when_begun(attempt: Callable[[], Awaitable[Saved | Refusal]]) -> Saved | Refusal:
    """Saves, again and again while it is too early: the first save of the run is under way, or was refused."""
    deadline = monotonic() + EARLY_SECONDS_MAX
    while (outcome := await attempt()) is Refusal.EARLY:
        if monotonic() > deadline:
            return Refusal.DELETED
        await asyncio.sleep(EARLY_PAUSE_SECONDS)
    return outcome


def _nothing(_: bytes) -> None:
    """Nothing is known of the thread."""


def _refuse_loss(thread: ThreadRef, put: Put, foreign: Mapping[str, Value | History | None]) -> None:
    """Raises if the caller counts on something of its parent, and that is not there."""
    lost = sorted(channel for channel in put.inherited if foreign.get(channel) is None)
    if put.parent_id is not None and lost:
        raise BrokenChainError(
            f"{describe(thread, put.namespace, put.checkpoint_id)} was not saved: the checkpoint that it builds on"
            f" ({unpack_checkpoint_id(put.parent_id)!r}) was deleted meanwhile, or never stored",
            detail=f"what only that one had: channels {lost}",
            hint="start the run again, from a checkpoint that is there or from its input",
        )


def was_deleted(thread: ThreadRef, namespace: str, checkpoint_id: bytes) -> ThreadDeletedError:
    """The error for a save that names a checkpoint of a deleted thread."""
    return ThreadDeletedError(
        f"{describe(thread, namespace, checkpoint_id)} was not saved: the thread was deleted, and the run that saves it"
        " holds a checkpoint of what it was",
        hint="start the run again without a checkpoint_id; `undelete_thread` lets late saves through",
    )


def _always_changed(thread: ThreadRef, namespace: str, checkpoint_id: bytes) -> DatabaseUnavailableError:
    return DatabaseUnavailableError(
        f"{describe(thread, namespace, checkpoint_id)} could not be saved: "
        f"the thread was changed by others during each of {ATTEMPTS} attempts",
        hint="retry; if this repeats, look for a job that prunes or deletes in this thread all the time",
    )
