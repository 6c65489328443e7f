"""What the functions of `deltastore.inspection` give. Every record has a form in JSON, the same as `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from deltastore.inspection.values import plain


@dataclass(frozen=True, slots=True)
class _Record:
    """A record with a JSON form."""

    def as_json(self) -> dict[str, Any]:
        """The record as `json.dumps` takes it; values that JSON does not know become their text."""
        return {field.name: _json(getattr(self, field.name)) for field in fields(self)}


def _json(value: Any) -> Any:
    if isinstance(value, _Record):
        return value.as_json()
    if isinstance(value, tuple):
        return [_json(each) for each in value]
    return value.isoformat() if isinstance(value, datetime) else plain(value)


@dataclass(frozen=True, slots=True)
class ThreadSummary(_Record):
    """One thread, known without its state.

    Attributes:
        thread_id: The thread.
        checkpoint_id: The newest checkpoint of the root namespace; None if there is none.
        step: Its step.
        source: Its source: `input`, `loop`, `update` or `fork`.
        saved_at: When it was made, as its id tells; None if the id holds no time.
        created_at: When the thread got its first row.
        pinned: Whether the thread is exempt from retention.
        metadata: The rest of its metadata.
        cursor: Names this place in the order, for `after`.
    """

    thread_id: str
    checkpoint_id: str | None
    step: int | None
    source: str | None
    saved_at: datetime | None
    created_at: datetime
    pinned: bool
    metadata: Mapping[str, Any]
    cursor: str


@dataclass(frozen=True, slots=True)
class NamespaceSummary(_Record):
    """One namespace of a thread: its name, its newest checkpoint, and when that was made, if its id tells."""

    namespace: str
    checkpoint_id: str
    saved_at: datetime | None


@dataclass(frozen=True, slots=True)
class ChannelChange(_Record):
    """What one checkpoint did to a channel.

    Attributes:
        channel: The channel.
        how: `new`, `changed`, `gone` (it has no value any more), or `written` (a DeltaChannel got writes).
        before: Number of elements before, in a list or dict; for `written` the number of writes since the seed.
        after: The same afterwards.
    """

    channel: str
    how: str
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryEntry(_Record):
    """One checkpoint in a thread's history, known without its values.

    Attributes:
        checkpoint_id: The checkpoint.
        parent_id: Its parent; None for a root, also where the parent was deleted.
        step: Its step.
        source: Its source.
        saved_at: Its timestamp (`ts`), as it was stored.
        next: The nodes that were to run next, as far as the stored data tells (see `next_nodes`).
        changes: What changed against the parent.
        writes: How many pending writes there are.
        status: `interrupted`, `failed` or empty, as the pending writes tell.
        metadata: The rest of its metadata.
        problem: Why the structure cannot be rebuilt; empty if it can. `next` and `changes` are empty then.
    """

    checkpoint_id: str
    parent_id: str | None
    step: int | None
    source: str | None
    saved_at: str | None
    next: tuple[str, ...]
    changes: tuple[ChannelChange, ...]
    writes: int
    status: str
    metadata: Mapping[str, Any]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ChannelView(_Record):
    """One channel at a checkpoint.

    Attributes:
        channel: The channel.
        origin: `stored`; `snapshot`, a DeltaChannel's; `folded`, a DeltaChannel rebuilt by its reducer; or `unfolded`.
        value: The value, what could not be decoded as `Unopened`. Of an `unfolded` channel the seed, or None.
        writes: Of an `unfolded` channel the writes since the seed, oldest first.
        problem: Why it could not be folded, or which classes were not opened; empty if all is well.
    """

    channel: str
    origin: str
    value: Any
    writes: tuple[Any, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WriteView(_Record):
    """One pending write: the task, its node (None if its path names none), the channel and the value."""

    task_id: str
    node: str | None
    channel: str
    value: Any


@dataclass(frozen=True, slots=True)
class CheckpointView(_Record):
    """One checkpoint with its values.

    Attributes:
        thread_id: The thread.
        namespace: The namespace.
        checkpoint_id: The checkpoint.
        parent_id: Its parent, or None.
        step: Its step.
        source: Its source.
        saved_at: Its timestamp.
        metadata: The rest of its metadata.
        next: The nodes that were to run next (see `next_nodes`).
        status: `interrupted`, `failed` or empty.
        channels: Its channels.
        writes: Its pending writes, in order.
    """

    thread_id: str
    namespace: str
    checkpoint_id: str
    parent_id: str | None
    step: int | None
    source: str | None
    saved_at: str | None
    metadata: Mapping[str, Any]
    next: tuple[str, ...]
    status: str
    channels: tuple[ChannelView, ...]
    writes: tuple[WriteView, ...]


@dataclass(frozen=True, slots=True)
class ItemDifference(_Record):
    """One element of a channel that differs.

    Attributes:
        how: `added`, `removed` or `changed`.
        place: The position in the list (of a removed element: in the earlier one), the key in the dict, or None for a
            value that has no elements.
        before: The element before; None if it was added.
        after: The element after; None if it was removed.
    """

    how: str
    place: int | str | None
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class ChannelDifference(_Record):
    """One channel that differs between two checkpoints.

    Attributes:
        channel: The channel.
        how: `added`, `removed`, `changed`, or `unknown` if a DeltaChannel differs and cannot be folded.
        items: What differs in it.
        problem: Why it is not known.
    """

    channel: str
    how: str
    items: Sequence[ItemDifference] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Difference(_Record):
    """What differs between two checkpoints of a thread; channels that are equal are left out."""

    thread_id: str
    namespace: str
    first: str
    second: str
    channels: tuple[ChannelDifference, ...]
