"""What is counted of a database and of a thread: the records, and days as ranges of checkpoint ids.

Rows carry no times. But LangGraph's checkpoint ids are UUIDs of version 6, which begin with theirs, and keys sort as
ids do; so a day is a range of keys, and growth can be counted by the database without opening a row. Ids of other forms
fall before or after all days.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from deltastore.core.identifiers import pack_checkpoint_id

DAY_SECONDS = 86_400
_UUID_EPOCH_SECONDS = -12_219_292_800
"""1582-10-15, from which UUIDs of version 6 count, in seconds of Unix time."""


def earliest_key(moment_seconds: int) -> bytes:
    """The key of the smallest UUID of version 6 of a moment in Unix time."""
    ticks = (moment_seconds - _UUID_EPOCH_SECONDS) * 10_000_000
    digits = f"{ticks:015x}"
    return pack_checkpoint_id(f"{digits[:8]}-{digits[8:12]}-6{digits[12:]}-0000-000000000000")


@dataclass(frozen=True, slots=True)
class Volume:
    """Rows of one kind.

    Attributes:
        rows: How many.
        payload_bytes: Their payloads, as stored.
    """

    rows: int = 0
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Chains:
    """How far checkpoints are from their anchors.

    Attributes:
        anchors: Checkpoints stored in full.
        mean_steps: Steps back to the anchor, on average.
        p95_steps: No more than this for 95 of 100 checkpoints.
        max_steps: The longest chain.
    """

    anchors: int = 0
    mean_steps: float = 0.0
    p95_steps: int = 0
    max_steps: int = 0


@dataclass(frozen=True, slots=True)
class Day:
    """What one day brought. `start_seconds` is its beginning in Unix time."""

    start_seconds: int
    checkpoints: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class ThreadSize:
    """A thread by its size, or by what it gained. `thread_id` is None if the thread's row is missing."""

    thread_id: str | None
    checkpoints: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What the database counts.

    Attributes:
        threads: Threads.
        checkpoints: Visible checkpoints.
        hidden: Deleted checkpoints that others need, or that the next sweep removes.
        volumes: Rows by kind: `checkpoints`, `values`, `pages`, `writes`, `packs`, `metadata`, `quarantine`.
        chains: Distances to anchors.
        disk_bytes: Each table with its indexes on disk, where the storage has such.
        days: Growth, oldest day first.
        largest: The largest threads.
        fastest: The threads that gained most in the days counted.
    """

    threads: int
    checkpoints: int
    hidden: int
    volumes: dict[str, Volume]
    chains: Chains
    disk_bytes: dict[str, int]
    days: tuple[Day, ...]
    largest: tuple[ThreadSize, ...]
    fastest: tuple[ThreadSize, ...]

    @property
    def payload_bytes(self) -> int:
        """All payloads."""
        return sum(volume.payload_bytes for volume in self.volumes.values())


@dataclass(frozen=True, slots=True)
class ChannelWeight:
    """One channel of a namespace.

    Attributes:
        namespace: The namespace.
        channel: The channel.
        kind: `list`, `dict`, `value`, `snapshots` or `writes` (a DeltaChannel with or without stored values).
        changes: Checkpoints with another value than their parent's.
        length: Elements, entries, or writes since the last stored value, at the newest checkpoint.
        value_bytes: The value at the newest checkpoint, serialised; with the writes since.
        new_bytes: What checkpoints brought that the thread did not have, serialised and before compression.
        stock_bytes: What the stock saver would store for it (estimate).
        is_unbounded: It grew with every change, and nothing was ever cut.
    """

    namespace: str
    channel: str
    kind: str
    changes: int
    length: int
    value_bytes: int
    new_bytes: int
    stock_bytes: int
    is_unbounded: bool


@dataclass(frozen=True, slots=True)
class ThreadWeight:
    """One thread.

    Attributes:
        thread_id: The thread.
        checkpoints: Visible checkpoints.
        hidden: Deleted ones that others need, or that the next sweep removes.
        volumes: Rows by kind, as in `Counts`.
        plain_bytes: The same payloads before compression, by kind.
        chains: Distances to anchors.
        stock_bytes: What the stock saver would store for all of it (estimate).
        channels: Its channels, the largest first.
        days: Growth, oldest day first.
    """

    thread_id: str
    checkpoints: int
    hidden: int
    volumes: dict[str, Volume]
    plain_bytes: dict[str, int]
    chains: Chains
    stock_bytes: int
    channels: tuple[ChannelWeight, ...]
    days: tuple[Day, ...] = ()

    @property
    def payload_bytes(self) -> int:
        """All payloads, as stored."""
        return sum(volume.payload_bytes for volume in self.volumes.values())

    @property
    def compression(self) -> float:
        """How many times smaller the stored payloads are than before compression."""
        return sum(self.plain_bytes.values()) / max(self.payload_bytes, 1)

    @property
    def unbounded(self) -> tuple[ChannelWeight, ...]:
        """The channels that only ever grow."""
        return tuple(channel for channel in self.channels if channel.is_unbounded)

    def as_json(self) -> dict[str, Any]:
        """The thread as JSON."""
        return {**asdict(self), "payload_bytes": self.payload_bytes, "compression": round(self.compression, 2)}


@dataclass(frozen=True, slots=True)
class Sample:
    """What was computed from some threads, for all of them.

    Attributes:
        threads: How many threads were read.
        compression: How many times smaller their payloads are than before compression.
        stock_bytes: What the stock saver would store for all threads of the database (estimate).
        unbounded: Channels that only ever grow, `(namespace, channel)`, with the number of sampled threads.
    """

    threads: int = 0
    compression: float = 1.0
    stock_bytes: int = 0
    unbounded: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DatabaseStatistics:
    """A database: what it counts, and what a sample tells."""

    counts: Counts
    sample: Sample = field(default_factory=Sample)

    def as_json(self) -> dict[str, Any]:
        """The database as JSON."""
        return {**asdict(self.counts), "payload_bytes": self.counts.payload_bytes, "sample": asdict(self.sample)}
