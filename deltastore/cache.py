"""What the engine remembers of threads between calls: a bounded cache, never a source of truth.

For each thread: states of recently used checkpoints (structure only), the write segments known for them, encoded items
of segments, and the two-way index between an item's digest and its place. All of it is immutable as long as the
thread's epoch stands, so the only rule of freshness is: another epoch, another cache. Nothing decoded is kept, so no
object that a graph could change is ever handed out twice.

Items are what is large. They count against a bound for all threads together; beyond it whole threads go, the least
recently used first, and a thread that is larger than the bound by itself keeps its index but not its items.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

from deltastore.core.digests import digest
from deltastore.core.model import Location, location
from deltastore.core.state import State
from deltastore.core.writes import OpenSegment

STATES_PER_THREAD = 16
WRITES_PER_THREAD = 1024
"""Checkpoints whose writes are remembered: a fast graph runs far ahead of its saves with durability "async"."""
JUST_LOADED_PER_THREAD = 64
INDEX_ENTRY_BYTES = 200
"""About what one item costs in the index: two dict entries, a digest and an integer."""

STATE_BYTES = 4096
WRITES_BYTES = 512
"""About what a state, and the writes of a checkpoint, cost without their items."""
JUST_LOADED_SECONDS = 2.0
CALLS_PER_TRIM = 32
THREADS_PER_CALL = 4
"""With many threads their sizes are summed up less often, so that a call pays for so many of them on average."""

NodeKey = tuple[str, bytes]


@dataclass(slots=True)
class CachedThread:
    """What is remembered of one thread at one epoch.

    `just_loaded` has states of checkpoints loaded a moment ago: LangGraph asks for their histories next, once.
    """

    epoch: int
    states: OrderedDict[NodeKey, State] = field(default_factory=OrderedDict)
    writes: OrderedDict[NodeKey, list[OpenSegment]] = field(default_factory=OrderedDict)
    segments: dict[int, OpenSegment] = field(default_factory=dict)
    metadata_ids: set[int] = field(default_factory=set)
    just_loaded: OrderedDict[NodeKey, tuple[float, State]] = field(default_factory=OrderedDict)
    items_bytes: int = 0
    _marks: dict[int, bytes] = field(default_factory=dict)
    _places: dict[bytes, int] = field(default_factory=dict)
    _to_index: deque[int] = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        structure_bytes = STATE_BYTES * (1 + len(self.states)) + WRITES_BYTES * len(self.writes)
        return self.items_bytes + INDEX_ENTRY_BYTES * len(self._marks) + structure_bytes

    def remember_state(self, key: NodeKey, state: State) -> None:
        """Keeps a state; the oldest goes when there are too many."""
        self.states[key] = state
        self.states.move_to_end(key)
        while len(self.states) > STATES_PER_THREAD:
            self.states.popitem(last=False)

    def remember_loaded(self, key: NodeKey, state: State) -> None:
        """Keeps a state until its history is asked for, which LangGraph does at once or not at all."""
        self.just_loaded[key] = monotonic(), state
        while len(self.just_loaded) > JUST_LOADED_PER_THREAD:
            self.just_loaded.popitem(last=False)

    def take_loaded(self, key: NodeKey) -> State | None:
        """The state that was loaded a moment ago, once."""
        loaded, state = self.just_loaded.pop(key, (0.0, None))
        return state if monotonic() - loaded <= JUST_LOADED_SECONDS else None

    def states_of(self, namespace: str) -> dict[bytes, State]:
        """The states of a namespace by ordered checkpoint key."""
        return {key[1]: state for key, state in self.states.items() if key[0] == namespace}

    def remember_writes(self, key: NodeKey, segments: Iterable[OpenSegment]) -> None:
        """Replaces what is known of the writes of a checkpoint."""
        self.writes[key] = [*segments]
        self.writes.move_to_end(key)
        while len(self.writes) > WRITES_PER_THREAD:
            self.writes.popitem(last=False)

    def add_writes(self, key: NodeKey, segment: OpenSegment) -> None:
        """Adds one write segment to what is known of a checkpoint."""
        known = self.writes.get(key, [])
        if all(each.segment_id != segment.segment_id for each in known):
            self.remember_writes(key, [*known, segment])

    def remember_segment(self, segment: OpenSegment, marks: Sequence[bytes] = ()) -> None:
        """Keeps an opened segment; its items are indexed now if all digests are given, else when they are asked for."""
        segment_id = segment.segment_id
        if segment_id not in self.segments:
            self.segments[segment_id] = segment
            self.items_bytes += segment.size_bytes
            if segment.items and location(segment_id, 0) not in self._marks:
                if len(marks) == len(segment.items):
                    self._note(segment_id, marks)
                else:
                    self._to_index.append(segment_id)

    def place(self, mark: bytes) -> int | None:
        """Where the item with this digest is stored, if that is known."""
        self._index()
        return self._places.get(mark)

    def mark(self, place: Location) -> bytes | None:
        """The digest of the item at a place, or None if the item was not seen at this epoch."""
        if isinstance(place, bytes):
            return digest(place)
        self._index()
        return self._marks.get(place)

    def knows(self, segment_id: int) -> bool:
        """Whether the digests of a segment's items are known."""
        return segment_id in self.segments or location(segment_id, 0) in self._marks

    def drop_segments(self) -> None:
        """Forgets the segments but not their digests, nor the writes."""
        self._index()
        self.segments.clear()
        self.items_bytes = 0
        for key, segments in self.writes.items():
            self.writes[key] = [each._replace(items=()) for each in segments]

    def _index(self) -> None:
        """Marks may be asked for in another thread than the event loop's, which then waits until all are there.

        A segment leaves the list only when it is indexed, so that nobody finds the list empty before.
        """
        if not self._to_index:
            return
        with self._lock:
            while self._to_index:
                segment = self.segments.get(self._to_index[0])
                self._note(self._to_index[0], () if segment is None else map(digest, segment.items))
                self._to_index.popleft()

    def _note(self, segment_id: int, marks: Iterable[bytes]) -> None:
        for place, mark in enumerate(marks, location(segment_id, 0)):
            self._marks[place] = mark
            self._places.setdefault(mark, place)


class Cache:
    """Threads by key, the most recently used last, at most `bytes_max` bytes of them (about)."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._calls = 0
        self._threads: OrderedDict[bytes, CachedThread] = OrderedDict()

    def get(self, thread_key: bytes) -> CachedThread | None:
        """What is remembered of a thread."""
        thread = self._threads.get(thread_key)
        if thread is not None:
            self._threads.move_to_end(thread_key)
        return thread

    def at_epoch(self, thread_key: bytes, epoch: int) -> CachedThread:
        """The thread's cache, emptied first if it is of another epoch."""
        thread = self.get(thread_key)
        if thread is None or thread.epoch != epoch:
            thread = self._threads[thread_key] = CachedThread(epoch)
        return thread

    def forget(self, thread_key: bytes) -> None:
        """Forgets a thread."""
        self._threads.pop(thread_key, None)

    def trim(self) -> None:
        """Keeps the bound. Called often, so it looks only now and then."""
        self._calls += 1
        if self._calls < max(CALLS_PER_TRIM, len(self._threads) // THREADS_PER_CALL):
            return
        self._calls = 0
        total = sum(thread.size_bytes for thread in self._threads.values())
        while total > self._bytes_max and len(self._threads) > 1:
            _, thread = self._threads.popitem(last=False)
            total -= thread.size_bytes
        for thread in self._threads.values():
            if thread.size_bytes > self._bytes_max:
                thread.drop_segments()
