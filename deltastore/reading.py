"""The reading half of the engine: load, list, history.

A load takes two statements at most: the chain with everything that was written along it, then the older segments that
the chain's anchor refers to, without those that the cache holds. A chain is read no further back than to a state that
the cache has. All that is read is kept there, so the save that follows a load finds its parent, and the history of a
DeltaChannel, which LangGraph asks for right after a load, needs no statement at all.

Each statement sees the thread as of one moment. Where the second one lacks what the first one promised, another process
removed it in between, or rows are lost: so everything is read again, and what is missing then is an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

from deltastore.cache import STATES_PER_THREAD, Cache, CachedThread
from deltastore.core.chain import Chain, describe, grow_histories
from deltastore.core.frame import Cipher, unseal
from deltastore.core.metadata import delta_channels
from deltastore.core.model import (
    ITEM_BITS,
    Chains,
    CheckpointRow,
    Known,
    ListEntry,
    ListQuery,
    MetadataRow,
    SegmentRow,
    ThreadRef,
)
from deltastore.core.packing import open_among, unpacked
from deltastore.core.payload import checkpoint_binding, metadata_binding, unpack_volatile
from deltastore.core.state import History, State
from deltastore.core.writes import OpenSegment, Write, by_channel, effective
from deltastore.errors import BrokenChainError, StoredDataError
from deltastore.loaded import MISSING_HINT, ChannelHistory, Found, ItemReader, Loaded
from deltastore.options import EngineOptions
from deltastore.storage import Storage

READ_ATTEMPTS = 4

Wanted = Callable[[list[Any], bytes], bool]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads checkpoints from a storage into the cache."""

    storage: Storage
    cache: Cache
    options: EngineOptions

    async def load(
        self, thread: ThreadRef, namespace: str, checkpoint_id: bytes | None, cipher: Cipher | None
    ) -> Loaded | None:
        """One checkpoint, or (id None) the head of the namespace; None if there is no such visible checkpoint.

        Raises:
            StoredDataError: It is there but cannot be rebuilt exactly.
        """
        found = await self._targets(thread, namespace, None if checkpoint_id is None else [checkpoint_id], cipher)
        if not found:
            return None
        [loaded] = found
        if loaded.items.cached is not None:
            loaded.items.cached.remember_loaded((namespace, loaded.checkpoint_id), loaded.state)
        return loaded

    async def listing(
        self, query: ListQuery, limit: int | None, cipher: Cipher | None, wanted: Wanted | None
    ) -> AsyncIterator[Loaded]:
        """Checkpoints, newest first; each page is loaded when its first checkpoint is asked for.

        Args:
            query: Which; `query.limit` is the number of checkpoints in a page.
            limit: How many at most; None for all.
            cipher: Opens ciphered payloads.
            wanted: Told the two parts of the metadata, says whether to give the checkpoint; asked before its state
                is loaded.
        """
        left = limit
        while left is None or left > 0:
            entries = await self.storage.list_checkpoints(query)
            matching = [entry for entry in entries if wanted is None or wanted(*self.metadata(entry, cipher))][:left]
            for thread, namespace, ids in _runs(matching):
                for loaded in await self._targets(thread, namespace, ids, cipher):
                    yield loaded
            left = None if left is None else left - len(matching)
            if len(entries) < query.limit:
                return
            query = replace(query, cursor=entries[-1].cursor)

    async def history(
        self,
        thread: ThreadRef,
        namespace: str,
        checkpoint_id: bytes | None,
        channels: Sequence[str],
        cipher: Cipher | None,
    ) -> dict[str, ChannelHistory]:
        """What LangGraph rebuilds the named DeltaChannels from. Channels that have nothing are left out.

        Raises:
            StoredDataError: A part of it is missing or cannot be read.
        """
        for _ in range(READ_ATTEMPTS - 1):
            try:
                return await self._history(thread, namespace, checkpoint_id, channels, cipher)
            except BrokenChainError:
                self.cache.forget(thread.key)
        return await self._history(thread, namespace, checkpoint_id, channels, cipher)

    async def _history(
        self,
        thread: ThreadRef,
        namespace: str,
        checkpoint_id: bytes | None,
        channels: Sequence[str],
        cipher: Cipher | None,
    ) -> dict[str, ChannelHistory]:
        if checkpoint_id is not None:
            found = await self._history_just_loaded(thread, namespace, checkpoint_id, channels, cipher)
            if found is not None:
                return found
        ids = None if checkpoint_id is None else [checkpoint_id]
        chains, chain = await self._chains(thread, namespace, ids, cipher)
        if chains is None or not chains.targets:
            return {}
        target = chains.targets[0]
        state = chain.state(target)
        self.remember(chains, chain, chain.folded(target, STATES_PER_THREAD))
        histories = dict(state.histories)
        valued = [channel for channel in channels if channel in state.values]
        if valued:
            behind = await self._histories_behind_values(thread, chain, target, cipher)
            histories |= {channel: behind[channel] for channel in valued if channel in behind}
        wanted = {channel: histories[channel] for channel in channels if channel in histories}
        where = describe(thread, namespace, target)
        return await self._read_histories(thread, where, wanted, chain.segments, cipher, chain.spare)

    async def find(
        self, thread: ThreadRef, namespace: str, checkpoint_id: bytes, cipher: Cipher | None
    ) -> Found | None:
        """A checkpoint's state and write segments, hidden or not, into the cache; no items. None if it isn't there."""
        chains, chain = await self._chains(thread, namespace, [checkpoint_id], cipher)
        if chains is None or checkpoint_id not in chain.rows:
            return None
        state = chain.state(checkpoint_id)
        cached = self.remember(chains, chain, [checkpoint_id])
        return Found(state, chain.writes.get(checkpoint_id, ()), cached)

    async def states(self, thread: ThreadRef, namespace: str, cipher: Cipher | None, page: int) -> AsyncIterator[State]:
        """The states of all visible checkpoints of a namespace, newest first, without items."""
        query = ListQuery(thread.key, namespace, limit=page)
        while entries := await self.storage.list_checkpoints(query):
            ids = [entry.row.checkpoint_id for entry in entries]
            chains, chain = await self._chains(thread, namespace, ids, cipher)
            if chains is not None:
                states = [chain.state(target) for target in chains.targets]
                self.remember(chains, chain, ())
                for state in states:
                    yield state
            query = replace(query, cursor=entries[-1].cursor)

    async def open(
        self,
        thread: ThreadRef,
        wanted: Iterable[int],
        opened: Mapping[int, OpenSegment],
        cipher: Cipher | None,
        cached: CachedThread | None,
        spare: Mapping[int, SegmentRow] = MappingProxyType({}),
    ) -> dict[int, OpenSegment]:
        """Segments by id: `opened`, cached, and `spare` ones, and in one statement the rest of `wanted`.

        Those that writes repeat items of come with them.
        """
        found = dict(opened)
        remembered = {} if cached is None else cached.segments
        missing = open_among(spare, wanted, thread, found, remembered, cipher)
        if missing:
            rows = unpacked(thread, await self.storage.load_segments(thread.key, sorted(missing)), cipher)
            open_among({row.segment_id: row for row in rows}, missing, thread, found, remembered, cipher)
        if cached is not None:
            for segment in found.values():
                cached.remember_segment(segment)
        return found

    async def _chains(
        self, thread: ThreadRef, namespace: str, ids: Sequence[bytes] | None, cipher: Cipher | None
    ) -> tuple[Chains | None, Chain]:
        """Rows read back to what the cache knows, and the chain of both."""
        cached = self.cache.get(thread.key)
        states = {} if cached is None else cached.states_of(namespace)
        known = None if cached is None else Known(cached.epoch, tuple(states))
        chains = await self.storage.load_chains(thread.key, namespace, ids, known)
        if chains is None:
            return None, Chain(thread, namespace, {}, self.options.ignored_channels, cipher)
        current = cached is not None and cached.epoch == chains.epoch
        chain = Chain.of(
            chains.thread,
            namespace,
            chains.rows,
            unpacked(chains.thread, chains.segments, cipher),
            self.options.ignored_channels,
            cipher,
            states if current else {},
            cached.segments if cached is not None else {},
        )
        return chains, chain

    def remember(self, chains: Chains, chain: Chain, targets: Iterable[bytes]) -> CachedThread:
        """Puts what was read, and the states of the targets, into the cache; returns the thread's part of it."""
        cached = self.cache.at_epoch(chains.thread.key, chains.epoch)
        for segment in chain.segments.values():
            cached.remember_segment(segment)
        for target in targets:
            key = chain.namespace, target
            cached.remember_state(key, chain.state(target))
            cached.remember_writes(key, chain.writes.get(target, ()))
        cached.metadata_ids.update(document.metadata_id for document in chains.metadata)
        return cached

    def metadata(self, entry: ListEntry, cipher: Cipher | None) -> tuple[list[Any], bytes]:
        """Both parts of a listed checkpoint's metadata."""
        return self._volatile(entry.thread, entry.row, cipher), self._shared(entry.thread, entry.metadata, cipher)

    async def _targets(
        self, thread: ThreadRef, namespace: str, ids: Sequence[bytes] | None, cipher: Cipher | None
    ) -> list[Loaded]:
        """Those of the checkpoints that are there. An item that is missing is an error when it is read."""
        loaded: list[Loaded] = []
        for _ in range(READ_ATTEMPTS):
            chains, chain = await self._chains(thread, namespace, ids, cipher)
            if chains is None or not chains.targets:
                return []
            loaded, is_whole = await self._load_targets(chains, chain, cipher)
            if is_whole:
                break
            self.cache.forget(thread.key)
        return loaded

    async def _load_targets(self, chains: Chains, chain: Chain, cipher: Cipher | None) -> tuple[list[Loaded], bool]:
        """The targets, and whether all that they need was found."""
        namespace = chain.namespace
        states = {target: chain.state(target) for target in chains.targets}
        cached = self.remember(chains, chain, chains.targets)
        pending = {target: effective(chain.writes.get(target, ())) for target in chains.targets}
        wanted: set[int] = set()
        for state in states.values():
            for value in state.values.values():
                wanted |= value.pieces.segment_ids()
        if len(chains.targets) == 1:
            wanted |= history_segment_ids(_likely_histories(chain, chains.targets[0]))
        for writes in pending.values():
            for stored in writes:
                wanted |= stored.write.pieces.segment_ids()
        segments = await self.open(chains.thread, wanted, chain.segments, cipher, cached, chain.spare)
        self.cache.trim()
        documents = {document.metadata_id: document for document in chains.metadata}
        loaded = []
        for target in chains.targets:
            row = chain.rows[target]
            where = describe(chains.thread, namespace, target)
            if row.metadata_id not in documents:
                raise BrokenChainError(f"{where}: its metadata is missing", hint=MISSING_HINT)
            loaded.append(
                Loaded(
                    chains.thread,
                    namespace,
                    target,
                    None if row.orphaned else row.parent_id,
                    states[target],
                    chain.payload(target).volatile,
                    self._shared(chains.thread, documents[row.metadata_id], cipher),
                    pending[target],
                    ItemReader(where, segments, cached),
                )
            )
        return loaded, wanted <= segments.keys()

    async def _history_just_loaded(
        self, thread: ThreadRef, namespace: str, checkpoint_id: bytes, channels: Sequence[str], cipher: Cipher | None
    ) -> dict[str, ChannelHistory] | None:
        """Histories from a state that was loaded a moment ago; None if there is none."""
        cached = self.cache.get(thread.key)
        state = None if cached is None else cached.take_loaded((namespace, checkpoint_id))
        if state is None or any(channel in state.values for channel in channels):
            return None
        histories = {channel: state.histories[channel] for channel in channels if channel in state.histories}
        return await self._read_histories(thread, describe(thread, namespace, checkpoint_id), histories, {}, cipher)

    async def _histories_behind_values(
        self, thread: ThreadRef, chain: Chain, target: bytes, cipher: Cipher | None
    ) -> dict[str, History]:
        """Histories of channels that have a value at the target: LangGraph's contract leaves that value out.

        An anchor does not say which writes such a channel consumed, so there all writes of the parent count.
        """
        row = chain.rows[target]
        if row.parent_id is None:
            return {}
        if row.depth > 0 and row.parent_id in chain.rows:
            parent, writes = chain.state(row.parent_id), chain.consumed(target, chain.writes.get(row.parent_id, ()))
        else:
            found = await self.find(thread, row.namespace, row.parent_id, cipher)
            if found is None:
                return {}
            parent, writes = found.state, chain.consumed(target, found.writes)
        return grow_histories(parent, {}, by_channel(effective(writes), self.options.ignored_channels))

    async def _read_histories(
        self,
        thread: ThreadRef,
        where: str,
        histories: Mapping[str, History],
        opened: Mapping[int, OpenSegment],
        cipher: Cipher | None,
        spare: Mapping[int, SegmentRow] = MappingProxyType({}),
    ) -> dict[str, ChannelHistory]:
        """Opens everything that histories need, with the stored items that their writes repeat."""
        cached = self.cache.get(thread.key)
        remembered = {} if cached is None else cached.segments
        wanted = history_segment_ids(histories.values())
        known = [segment for one in wanted if (segment := opened.get(one) or remembered.get(one)) is not None]
        wanted |= {place >> ITEM_BITS for segment in known for each in segment.writes for place in stored_in(each)}
        reader = ItemReader(where, await self.open(thread, wanted, opened, cipher, cached, spare))
        writes = {channel: reader.writes(history.writes) for channel, history in histories.items()}
        seeds = [history.seed.pieces for history in histories.values() if history.seed is not None]
        reader.need(
            {place >> ITEM_BITS for found in writes.values() for each in found for place in stored_in(each.write)}
        )
        reader.need({one for seed in seeds for one in seed.segment_ids()})
        self.cache.trim()
        return {
            channel: ChannelHistory(history.seed, writes[channel], reader) for channel, history in histories.items()
        }

    def _volatile(self, thread: ThreadRef, row: CheckpointRow, cipher: Cipher | None) -> list[Any]:
        try:
            return unpack_volatile(unseal(row.payload, associated=checkpoint_binding(row), cipher=cipher))
        except StoredDataError as error:
            where = describe(thread, row.namespace, row.checkpoint_id)
            raise type(error)(f"{where} cannot be read: {error.message}", detail=error.detail) from error

    def _shared(self, thread: ThreadRef, document: MetadataRow, cipher: Cipher | None) -> bytes:
        try:
            return unseal(document.payload, associated=metadata_binding(document.metadata_id), cipher=cipher)
        except StoredDataError as error:
            where = f"metadata {document.metadata_id} of thread {thread.thread_id!r}"
            raise type(error)(f"{where} cannot be read: {error.message}", detail=error.detail) from error


def _likely_histories(chain: Chain, checkpoint_id: bytes) -> list[History]:
    """Histories that LangGraph asks for next: of the DeltaChannels that grew since their last snapshot."""
    grown = delta_channels(chain.payload(checkpoint_id).volatile)
    return [history for channel, history in chain.state(checkpoint_id).histories.items() if channel in grown]


def history_segment_ids(histories: Iterable[History]) -> set[int]:
    """Ids of the segments that hold the writes and the items of the seeds."""
    wanted: set[int] = set()
    for history in histories:
        wanted |= history.writes.segment_ids()
        if history.seed is not None:
            wanted |= history.seed.pieces.segment_ids()
    return wanted


def stored_in(write: Write) -> list[int]:
    """The places of a write's items that are stored in segments."""
    return [place for place in write.pieces.places if type(place) is int]


def _runs(entries: Sequence[ListEntry]) -> Iterator[tuple[ThreadRef, str, list[bytes]]]:
    """Neighbouring entries of the same thread and namespace, together."""
    for (thread, namespace), group in groupby(entries, key=lambda entry: (entry.thread, entry.row.namespace)):
        yield thread, namespace, [entry.row.checkpoint_id for entry in group]
