"""What an importer reads threads from: the seam between foreign savers and the importer.

A source gives a thread as checkpoints in an order in which each follows its parent, with values that are encoded as
deltastore keeps them. It need not decode anything: bytes that a serializer made are taken over as they are. A channel
whose value is proved to be the parent's is only named.

Reading is read-only and, within one `open`, as of one moment where the source can do that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from langgraph.checkpoint.base import CheckpointTuple

from deltastore.core.codec import EncodedValue


class SkipThread(Exception):  # noqa: N818 - not a failure of the program: a verdict on one thread
    """A thread cannot be read exactly. Its text says why, with namespace and checkpoint."""


@dataclass(frozen=True, slots=True)
class SourceWrite:
    """One pending write, encoded."""

    task_id: str
    task_path: str
    index: int
    channel: str
    value: EncodedValue


@dataclass(frozen=True, slots=True)
class Node:
    """A checkpoint's place in the tree; `parent_id` is what the source says, whether or not that one is there."""

    namespace: str
    checkpoint_id: str
    parent_id: str | None

    @property
    def key(self) -> tuple[str, str]:
        """What identifies it inside its thread."""
        return self.namespace, self.checkpoint_id


@dataclass(frozen=True, slots=True)
class SourceCheckpoint:
    """One checkpoint of a source.

    Attributes:
        node: Its place.
        checkpoint: LangGraph's checkpoint; its `channel_values` are not looked at.
        metadata: Its metadata.
        values: Encoded values of the channels that have one here which is not proved to be the parent's.
        kept: Channels that have the same value as at the parent.
        writes: Its pending writes, in the order in which a reader gets them.
        source_bytes: Bytes that were read for it.
    """

    node: Node
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    values: Mapping[str, EncodedValue]
    kept: frozenset[str] = frozenset()
    writes: Sequence[SourceWrite] = ()
    source_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ThreadShape:
    """The structure of a thread, cheap to read: what is compared to see whether anything is new.

    Attributes:
        nodes: All checkpoints.
        writes: All pending writes, as (namespace, checkpoint id, task id, index).
        changing: The values of special writes (negative index), which can be overwritten.
        source_bytes: Bytes of the stored values, about.
        newest: The time of the newest checkpoint in ISO form, if known.
    """

    nodes: Sequence[Node]
    writes: frozenset[tuple[str, str, str, int]]
    changing: Mapping[tuple[str, str, str, int], EncodedValue] = field(default_factory=dict)
    source_bytes: int = 0
    newest: str | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """What an earlier run that was stopped knew of a thread.

    Attributes:
        nodes: Checkpoints that it read. Where the order names one of them, then only as the parent of others: it was
            checked before.
        delta_channels: The DeltaChannels that it met.
    """

    nodes: frozenset[tuple[str, str]] = frozenset()
    delta_channels: frozenset[str] = frozenset()


NOTHING_BEFORE = Before()


class OpenThread(Protocol):
    """One thread of a source, read as of one moment."""

    async def shape(self) -> ThreadShape:
        """Its structure. Raises `SkipThread`."""

    def checkpoints(self, order: Sequence[Node], before: Before = NOTHING_BEFORE) -> AsyncIterator[SourceCheckpoint]:
        """Its checkpoints in this order, in which each one follows its parent. Raises `SkipThread`.

        Args:
            order: Which checkpoints. One whose parent is not among them is given with all its values.
            before: What is known of those that are not among them.
        """

    def orphans(self) -> AsyncIterator[tuple[Node, Sequence[SourceWrite]]]:
        """Pending writes to checkpoints that are not there."""

    async def load(self, node: Node) -> CheckpointTuple:
        """One checkpoint, decoded as the source's own saver does: what the imported one is compared with."""


class Source(Protocol):
    """Threads of another saver."""

    def threads(self) -> AsyncIterator[str]:
        """The ids of all threads, in a fixed order."""

    def open(self, thread_id: str) -> AbstractAsyncContextManager[OpenThread]:
        """Opens one thread for reading."""

    async def close(self) -> None:
        """Gives back what the source opened."""
