"""The history of a thread: one entry for each checkpoint, newest first, without its values.

A page takes two statements: the rows of the page, then the structure of their chains: headers, piece lists and writes,
no values. A third one brings the few items that say which nodes run next, where they are not in the rows themselves.
Pages are independent of each other, so memory is bounded by the page, and the first one is small, so that the first
entry comes at once.

A checkpoint that is an anchor does not say what it changed; its parent is read with it for that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from deltastore.conversion import validate
from deltastore.core import metadata as metadatas
from deltastore.core.chain import Chain, describe, open_segment
from deltastore.core.codec import SNAPSHOT, Codec, ValueKind
from deltastore.core.frame import Cipher
from deltastore.core.header import same
from deltastore.core.identifiers import unpack_checkpoint_id
from deltastore.core.model import Chains, ListEntry, ListQuery, ThreadRef
from deltastore.core.packing import unpacked
from deltastore.core.state import State, Value
from deltastore.core.writes import OpenSegment, effective
from deltastore.engine import Engine
from deltastore.errors import StoredDataError
from deltastore.inspection.following import START, is_plumbing, next_nodes, status_of
from deltastore.inspection.records import ChannelChange, HistoryEntry
from deltastore.inspection.threads import shared_metadata
from deltastore.inspection.values import read_item
from deltastore.langgraph.saver import EngineSaver
from deltastore.loaded import ItemReader

FIRST_PAGE, PAGE = 16, 100


async def history(
    saver: EngineSaver, thread_id: str, *, namespace: str = "", limit: int | None = None
) -> AsyncIterator[HistoryEntry]:
    """The checkpoints of one namespace of a thread, newest first, as the tree that they are: each names its parent.

    Args:
        saver: An open saver.
        thread_id: The thread.
        namespace: The namespace; `""` is the root graph's.
        limit: At most so many; None for all.

    Raises:
        InvalidConfigError: An argument has a wrong form.
        DatabaseError: The database is away, or not set up.
        StoredDataError: Rows cannot be read. A checkpoint whose chain is broken is an entry with a `problem` instead.
    """
    thread, left = validate.thread(thread_id), validate.limit(limit)
    query = ListQuery(thread.key, validate.namespace(namespace), limit=FIRST_PAGE)
    while left is None or left > 0:
        query = replace(query, limit=query.limit if left is None else min(left, query.limit))
        page = await saver.acall(partial(_page, thread=thread, query=query))
        for entry in page.entries:
            yield entry
        if page.last is None:
            return
        left = None if left is None else left - query.limit
        query = replace(query, cursor=page.last.cursor, limit=PAGE)


@dataclass(frozen=True, slots=True)
class _Page:
    """Entries, and the last row if there may be more."""

    entries: list[HistoryEntry]
    last: ListEntry | None


async def _page(engine: Engine, codec: Codec, cipher: Cipher | None, *, thread: ThreadRef, query: ListQuery) -> _Page:
    rows = await engine.storage.list_checkpoints(query)
    wanted = [row.row.checkpoint_id for row in rows]
    wanted += [row.row.parent_id for row in rows if row.row.depth == 0 and row.row.parent_id is not None]
    assert query.namespace is not None
    chains = await engine.storage.load_structures(thread.key, query.namespace, wanted) if rows else None
    entries = []
    if chains is not None:
        structure = _Structure.of(engine, codec, cipher, chains, query.namespace)
        rows_left = [row for row in rows if row.row.checkpoint_id in structure.chain.rows]
        await structure.load_triggers(engine, rows_left)
        entries = [structure.entry(engine, row) for row in rows_left]
    return _Page(entries, rows[-1] if rows and len(rows) == query.limit else None)


@dataclass(frozen=True, slots=True)
class _Structure:
    """The chains of a page, and the segments with items that say which nodes run next."""

    codec: Codec
    cipher: Cipher | None
    chain: Chain
    segments: dict[int, OpenSegment]

    @classmethod
    def of(cls, engine: Engine, codec: Codec, cipher: Cipher | None, chains: Chains, namespace: str) -> _Structure:
        ignored = engine.options.ignored_channels
        segments = unpacked(chains.thread, chains.segments, cipher)
        chain = Chain.of(chains.thread, namespace, chains.rows, segments, ignored, cipher)
        return cls(codec, cipher, chain, dict(chain.segments))

    async def load_triggers(self, engine: Engine, listed: Sequence[ListEntry]) -> None:
        """Reads what `next_nodes` needs and is not there yet; what cannot be read is left out."""
        states = filter(None, (self._state(entry.row.checkpoint_id) for entry in listed))
        needed = {
            each
            for state in states
            for channel, value in state.values.items()
            if is_plumbing(channel)
            for each in value.pieces.segment_ids()
        }
        wanted = needed - self.segments.keys()
        rows = [self.chain.spare[each] for each in wanted & self.chain.spare.keys()]
        if missing := sorted(wanted - self.chain.spare.keys()):
            loaded = await engine.storage.load_segments(self.chain.thread.key, missing)
            rows += [row for row in unpacked(self.chain.thread, loaded, self.cipher) if row.segment_id in wanted]
        for row in rows:
            with suppress(StoredDataError):
                self.segments[row.segment_id] = open_segment(self.chain.thread, row, self.cipher)

    def entry(self, engine: Engine, listed: ListEntry) -> HistoryEntry:
        """One checkpoint's entry."""
        row = listed.row
        volatile, shared = engine.reader.metadata(listed, self.cipher)
        known = metadatas.join(volatile, {})
        writes = effective(self.chain.writes.get(row.checkpoint_id, ()))
        entry = HistoryEntry(
            unpack_checkpoint_id(row.checkpoint_id),
            None if row.parent_id is None or row.orphaned else unpack_checkpoint_id(row.parent_id),
            known.get("step"),
            known.get("source"),
            None,
            (),
            (),
            len(writes),
            status_of(writes),
            shared_metadata(self.codec, shared, describe(listed.thread, row.namespace, row.checkpoint_id)),
        )
        try:
            state = self.chain.state(row.checkpoint_id)
        except StoredDataError as error:
            return replace(entry, problem=str(error))
        return replace(
            entry,
            saved_at=state.header.timestamp,
            next=next_nodes(state, (), self.elements),
            changes=tuple(changes(self._state(row.parent_id), state, metadatas.delta_channels(volatile))),
        )

    def _state(self, checkpoint_id: bytes | None) -> State | None:
        if checkpoint_id is None or checkpoint_id not in self.chain.rows:
            return None
        try:
            return self.chain.state(checkpoint_id)
        except StoredDataError:
            return None

    def elements(self, channel: str, value: Value) -> list[Any] | None:
        """The elements of a value, if they were read."""
        try:
            items = ItemReader(channel, self.segments).read(value.pieces)
        except StoredDataError:
            return None
        return [read_item(self.codec, item, channel) for item in items]


def changes(parent: State | None, state: State, delta_channels: frozenset[str]) -> Iterator[ChannelChange]:
    """What a checkpoint changed, as versions and piece lists tell. Inputs and what only steers the graph are left out.

    Args:
        parent: The parent's state; None if there is none.
        state: The checkpoint's state.
        delta_channels: DeltaChannels that grew since their last snapshot.
    """
    versions = state.header.versions
    before = {} if parent is None else parent.header.versions
    for channel in (*versions, *(each for each in before if each not in versions)):
        if (
            channel == START
            or is_plumbing(channel)
            or (channel in before and same(before[channel], versions.get(channel)))
        ):
            continue
        had_value = parent is not None and channel in parent.values
        old = None if parent is None else _size(parent, channel)
        if channel in state.values:
            yield ChannelChange(channel, "changed" if channel in before else "new", old, _size(state, channel))
        elif channel in delta_channels:
            yield ChannelChange(channel, "written", _written(parent, channel), _written(state, channel))
        elif had_value:
            yield ChannelChange(channel, "gone", old)


def _size(state: State, channel: str) -> int | None:
    """How many elements a channel has; None for a value that is no container, or none."""
    value = state.values.get(channel)
    if value is None or value.kind & ~SNAPSHOT == ValueKind.OPAQUE:
        return None
    return len(value.pieces.places)


def _written(parent: State | None, channel: str) -> int:
    if parent is None or channel not in parent.histories:
        return 0
    return len(parent.histories[channel].writes.places)
