"""The records that the layers hand to each other.

Storage speaks in these: keys, bytes and searchable metadata. Nothing here knows a channel value; what the payloads
mean is said in `payload.py`, and how rows fold to a state in `chain.py`.

A *location* says where one encoded item is kept. It is a plain integer, `segment_id << ITEM_BITS | item_index`, because
states of long threads hold tens of thousands of them; or, for a small item, the encoded item itself as `bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

ITEM_BITS = 20
"""Bits of a location that hold the item's index in its segment: at most 2**20 items in one segment."""

Location = int | bytes


def location(segment_id: int, index: int) -> int:
    """The location of item `index` in segment `segment_id`."""
    return segment_id << ITEM_BITS | index


def segment_of(place: int) -> int:
    """The segment id of an integer location."""
    return place >> ITEM_BITS


def index_of(place: int) -> int:
    """The item index of an integer location."""
    return place & ((1 << ITEM_BITS) - 1)


class SegmentKind(IntEnum):
    """What a segment holds; stored as a smallint."""

    VALUES = 1
    """Items that a checkpoint brought and no earlier segment held."""
    PAGES = 2
    """A run of locations of one long container, shared by later anchors."""
    WRITES = 3
    """The pending writes of one `put_writes` call, with their items."""
    PACK = 4
    """Many segments of the other kinds, compressed together (`packing.py`)."""


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One stored checkpoint: structure only, no value.

    Attributes:
        namespace: LangGraph's checkpoint namespace, `""` for the root graph.
        checkpoint_id: The ordered key of the id (`identifiers.pack_checkpoint_id`).
        parent_id: The ordered key of the parent's id, or None for a root.
        depth: Steps back to the anchor; 0 means that the row is an anchor.
        segments: Segment ids that the payload refers to by position: the row's own first, then older pages.
        payload: The sealed payload (`payload.py`).
        metadata_id: Which metadata document of the thread belongs to the row.
        hidden: Deleted for readers, kept because a visible descendant still needs it (a support row).
        orphaned: The parent was deleted: readers are told that there is none.
    """

    namespace: str
    checkpoint_id: bytes
    parent_id: bytes | None
    depth: int
    segments: tuple[int, ...]
    payload: bytes
    metadata_id: int
    hidden: bool = False
    orphaned: bool = False

    @property
    def key(self) -> tuple[str, bytes]:
        """What identifies the row inside its thread."""
        return self.namespace, self.checkpoint_id


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment to insert; storage assigns its id, larger than every id it assigned before in the thread."""

    kind: SegmentKind
    payload: bytes
    references: tuple[int, ...] = ()
    """Ids of other segments that its payload refers to (rare: a write that repeats stored items; pages)."""


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One stored segment, or one out of a pack.

    Attributes:
        segment_id: Its id; of a pack, the largest of those that it holds.
        kind: What it is.
        namespace: The namespace of the checkpoint; of a pack, empty.
        checkpoint_id: The checkpoint that it was written with (for writes: written to); of a pack, the largest.
        payload: What is sealed; plain where the segment comes out of a pack.
        references: Other segments that it names; of a pack, those that its writes name and it does not hold.
        first_checkpoint_id: Of a pack, the smallest checkpoint id of its segments; else None.
        pack_id: The pack that it comes out of; None for a row of its own.
    """

    segment_id: int
    kind: SegmentKind
    namespace: str
    checkpoint_id: bytes
    payload: bytes
    references: tuple[int, ...] = ()
    first_checkpoint_id: bytes | None = None
    pack_id: int | None = None

    @property
    def stored_id(self) -> int:
        """The id of the row that it is in: its own, or that of its pack."""
        return self.segment_id if self.pack_id is None else self.pack_id


@dataclass(frozen=True, slots=True)
class MetadataRow:
    """The part of checkpoint metadata that many checkpoints of a thread share.

    Attributes:
        metadata_id: A signed 64-bit digest of the payload's plain bytes.
        document: JSON text that storage can search by containment.
        payload: The sealed exact metadata.
    """

    metadata_id: int
    document: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class ThreadRef:
    """A thread: its 16-byte key and its id as text."""

    key: bytes
    thread_id: str


@dataclass(frozen=True, slots=True)
class Save:
    """One `put`: lands whole or not at all.

    Attributes:
        thread: The thread; its row is created if it is not there.
        row: The checkpoint. `row.segments` holds only ids of older segments; storage puts the new ones before them.
        new_segments: Segments to insert with the row, in order.
        metadata: The metadata document to store if it is not there yet; None if it is known to be.
        epoch: The epoch of the thread for which the row's references are known to exist; None if it has none.
        parent_writes: How many write segments the parent is expected to have, without packed ones, which are proved by
            the epoch; None if it doesn't matter.
        held_id: The oldest checkpoint that the caller's config names: the parent's id, and those of the graphs around
            a subgraph. A save that names one of a deleted thread is refused.
    """

    thread: ThreadRef
    row: CheckpointRow
    new_segments: tuple[NewSegment, ...] = ()
    metadata: MetadataRow | None = None
    epoch: int | None = None
    parent_writes: int | None = None
    held_id: bytes | None = None

    @property
    def payload_bytes(self) -> int:
        """Size of the payloads that it brings."""
        return len(self.row.payload) + sum(len(segment.payload) for segment in self.new_segments)


@dataclass(frozen=True, slots=True)
class SaveWrites:
    """One `put_writes`: one segment of kind WRITES. The checkpoint need not exist yet. `held_id` as for `Save`."""

    thread: ThreadRef
    namespace: str
    checkpoint_id: bytes
    segment: NewSegment
    epoch: int | None = None
    held_id: bytes | None = None

    @property
    def payload_bytes(self) -> int:
        """Size of the payload that it brings."""
        return len(self.segment.payload)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a save answers: the thread's epoch and the ids of the new segments, in order.

    Attributes:
        server_seconds: How long its statement ran on the server, without the commit; 0 if there is no server.
        is_amid_packs: Whether a pack may hold writes that came before their checkpoint, the saved one.
    """

    epoch: int
    segment_ids: tuple[int, ...]
    server_seconds: float = field(default=0.0, compare=False)
    is_amid_packs: bool = field(default=False, compare=False)


class Refusal(IntEnum):
    """Why a save stored nothing."""

    STALE = 1
    """The thread's epoch moved on (something was removed), or the parent has other writes: load again and retry."""
    EXISTS = 2
    """A checkpoint with this id is stored already."""
    DELETED = 3
    """The thread was deleted, and the caller names a checkpoint of what it was."""
    EARLY = 4
    """The thread was deleted, and the caller names a newer checkpoint: perhaps of a run that begins it anew."""


@dataclass(frozen=True, slots=True)
class Known:
    """Checkpoints of a namespace whose state is known already: a chain need not be read beyond them.

    Holds for one epoch of the thread; at another one the storage takes no notice of it.
    """

    epoch: int
    checkpoint_ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Chains:
    """Rows of one namespace that are enough to rebuild the `targets`.

    Attributes:
        thread: The thread.
        epoch: The thread's epoch when the rows were read.
        targets: Ordered keys of the requested checkpoints that exist and are visible, in the order of the request.
        rows: The targets and their ancestors back to the nearest anchors or known checkpoints, each once, in any order.
        segments: All segments that a row's `segments` names, and all writes to the rows; those in packs as whole packs.
        metadata: The metadata documents of the targets.
    """

    thread: ThreadRef
    epoch: int
    targets: tuple[bytes, ...]
    rows: tuple[CheckpointRow, ...]
    segments: tuple[SegmentRow, ...]
    metadata: tuple[MetadataRow, ...]


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which checkpoints to list; None means no condition.

    Attributes:
        thread_key: Only this thread.
        namespace: Only this namespace.
        checkpoint_id: Only this ordered key.
        before: Only ordered keys smaller than this.
        document: JSON text; only checkpoints whose metadata document contains it (jsonb `@>`).
        cursor: Continue after this entry of an earlier page.
        limit: Entries in one page.
    """

    thread_key: bytes | None = None
    namespace: str | None = None
    checkpoint_id: bytes | None = None
    before: bytes | None = None
    document: str | None = None
    cursor: ListCursor | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, order=True)
class ListCursor:
    """Position in a listing, which is ordered by checkpoint id, then thread key, then namespace, all descending."""

    checkpoint_id: bytes
    thread_key: bytes
    namespace: str


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One visible checkpoint in a listing, with what a metadata filter needs and no state."""

    thread: ThreadRef
    row: CheckpointRow
    metadata: MetadataRow

    @property
    def cursor(self) -> ListCursor:
        """Where the next page starts."""
        return ListCursor(self.row.checkpoint_id, self.thread.key, self.row.namespace)
