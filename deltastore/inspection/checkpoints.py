"""One checkpoint with its values, for people."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.conversion import convert, validate
from deltastore.core import metadata as metadatas
from deltastore.core.codec import SNAPSHOT, Codec
from deltastore.core.frame import Cipher
from deltastore.core.identifiers import pack_checkpoint_id, shown_namespace, unpack_checkpoint_id
from deltastore.core.model import ListQuery, ThreadRef
from deltastore.core.state import Value
from deltastore.engine import Engine
from deltastore.errors import InvalidConfigError
from deltastore.inspection.folding import Reducer, folded
from deltastore.inspection.following import is_plumbing, next_nodes, node_of, send_targets, status_of
from deltastore.inspection.records import ChannelView, CheckpointView, WriteView
from deltastore.inspection.threads import find_thread, shared_metadata
from deltastore.inspection.values import read_item, read_value, unopened_names
from deltastore.langgraph.saver import EngineSaver
from deltastore.loaded import ChannelHistory, Loaded

LAST_CHARACTER = "\U0010ffff"


async def show(
    saver: EngineSaver,
    thread_id: str,
    *,
    at: str | None = None,
    namespace: str = "",
    channels: Collection[str] | None = None,
    reducers: Mapping[str, Reducer] | None = None,
) -> CheckpointView:
    """One checkpoint: its values, its pending writes, and what was to come next.

    A DeltaChannel is folded with the reducer that is given for it, or if it holds messages with LangGraph's; else it
    is `unfolded`. A value of a class that may not be built is shown as `Unopened`.

    Args:
        saver: An open saver.
        thread_id: The thread.
        at: The id of the checkpoint, or the beginning of one; None for the newest.
        namespace: The namespace; `""` is the root graph's.
        channels: Only these channels; None for all but LangGraph's own.
        reducers: Reducers of DeltaChannels by channel: `(value, writes) -> value`.

    Raises:
        InvalidConfigError: There is no such thread, checkpoint or channel, or several checkpoints begin with `at`.
        DatabaseError: The database is away, or not set up.
        StoredDataError: The state cannot be rebuilt exactly.
    """
    snapshot = await load(saver, thread_id, at, namespace, {*(channels or ()), *(reducers or ())})
    return view(snapshot, channels, reducers or {}, is_present=at is None)


class Snapshot:
    """A checkpoint as it was read: its parts, and the histories of its DeltaChannels."""

    def __init__(self, codec: Codec, loaded: Loaded, histories: Mapping[str, ChannelHistory]) -> None:
        self.codec = codec
        self.loaded = loaded
        self.histories = histories

    @property
    def checkpoint_id(self) -> str:
        """Its id."""
        return unpack_checkpoint_id(self.loaded.checkpoint_id)

    def elements(self, channel: str, value: Value) -> list[Any]:
        """The elements of a channel's value."""
        return [read_item(self.codec, item, channel) for item in self.loaded.items.read(value.pieces)]

    def channel(self, channel: str, reducer: Reducer | None) -> ChannelView:
        """One channel's view."""
        stored = self.loaded.state.values.get(channel)
        if stored is None:
            return folded(self.codec, channel, self.histories[channel], reducer)
        where = f"{self.loaded.where}, channel {channel!r}"
        value = read_value(self.codec, convert.encoded(self.loaded.items, stored.kind, stored.pieces), where)
        names = unopened_names(value)
        return ChannelView(
            channel,
            "snapshot" if stored.kind & SNAPSHOT else "stored",
            value.value if isinstance(value, _DeltaSnapshot) else value,
            problem=f"not opened: {', '.join(sorted(names))}" if names else "",
        )


async def load(saver: EngineSaver, thread_id: str, at: str | None, namespace: str, more: Collection[str]) -> Snapshot:
    """Reads a checkpoint, with the histories of its DeltaChannels, and of `more` channels if they have any.

    Raises:
        InvalidConfigError, DatabaseError, StoredDataError: As `show`.
    """
    thread, space = validate.thread(thread_id), validate.namespace(namespace)
    wanted = None if at is None else await _find(saver, thread, space, at)

    async def call(engine: Engine, codec: Codec, cipher: Cipher | None) -> Snapshot | None:
        loaded = await engine.reader.load(thread, space, wanted, cipher)
        if loaded is None:
            return None
        names = {*metadatas.delta_channels(loaded.volatile), *more} & loaded.state.histories.keys()
        ordered = [name for name in loaded.state.header.versions if name in names]
        ordered += sorted(names.difference(ordered))
        histories: Mapping[str, ChannelHistory] = {}
        if ordered:
            histories = await engine.reader.history(thread, space, loaded.checkpoint_id, ordered, cipher)
        if histories.keys() != names:
            return None  # deleted meanwhile
        return Snapshot(codec, loaded, histories)

    found = await saver.acall(call)
    if found is None:
        await find_thread(saver, thread_id)
        raise InvalidConfigError(
            f"thread {thread.thread_id!r} has no checkpoint in namespace {shown_namespace(space)}",
            hint="deltastore history --namespaces lists the namespaces of a thread",
        )
    return found


def view(
    snapshot: Snapshot, channels: Collection[str] | None, reducers: Mapping[str, Reducer], *, is_present: bool
) -> CheckpointView:
    """A checkpoint as a record. Raises `InvalidConfigError` for a channel that it does not have."""
    loaded, codec = snapshot.loaded, snapshot.codec
    known = metadatas.join(loaded.volatile, {})
    sends = tuple(send_targets(loaded.state, snapshot.elements))
    writes = tuple(
        WriteView(
            each.write.task_id,
            node_of(each.write.task_path, sends),
            each.write.channel,
            read_value(
                codec,
                convert.encoded(loaded.items, each.write.kind, each.write.pieces),
                f"{loaded.where}, write to {each.write.channel!r}",
            ),
        )
        for each in loaded.writes
    )
    return CheckpointView(
        loaded.thread.thread_id,
        loaded.namespace,
        snapshot.checkpoint_id,
        None if loaded.parent_id is None else unpack_checkpoint_id(loaded.parent_id),
        known.get("step"),
        known.get("source"),
        loaded.state.header.timestamp,
        shared_metadata(codec, loaded.shared, loaded.where),
        next_nodes(loaded.state, loaded.writes if is_present else (), snapshot.elements),
        status_of(loaded.writes),
        tuple(snapshot.channel(name, reducers.get(name)) for name in names_of(snapshot, channels)),
        writes,
    )


def names_of(snapshot: Snapshot, channels: Collection[str] | None) -> Sequence[str]:
    """The channels to show, in the order of the checkpoint. Raises `InvalidConfigError` for one that is not there."""
    available = [*snapshot.loaded.state.values, *snapshot.histories]
    order = [name for name in snapshot.loaded.state.header.versions if name in available]
    order += [name for name in available if name not in order]
    if channels is None:
        return [name for name in order if not is_plumbing(name)]
    if missing := [name for name in channels if name not in order]:
        raise InvalidConfigError(
            f"{snapshot.loaded.where} has no value for channel {missing[0]!r}",
            detail=f"it has {', '.join(map(repr, order)) or 'none'}",
        )
    return [name for name in order if name in channels]


async def _find(saver: EngineSaver, thread: ThreadRef, namespace: str, at: str) -> bytes:
    """The ordered key of the checkpoint whose id is `at`, or begins with it."""
    exact, above = validate.checkpoint_key(at), pack_checkpoint_id(at + LAST_CHARACTER)

    async def call(engine: Engine, *_: object) -> list[str]:
        query = ListQuery(thread.key, namespace, checkpoint_id=exact, limit=1)
        entries = await engine.storage.list_checkpoints(query)
        if not entries:
            entries = await engine.storage.list_checkpoints(ListQuery(thread.key, namespace, before=above, limit=2))
        return [unpack_checkpoint_id(entry.row.checkpoint_id) for entry in entries]

    found = [each for each in await saver.acall(call) if each.startswith(at)]
    if len(found) == 1:
        return pack_checkpoint_id(found[0])
    await find_thread(saver, thread.thread_id)
    where = f"thread {thread.thread_id!r}, namespace {shown_namespace(namespace)}"
    if found:
        raise InvalidConfigError(
            f"{where}: several checkpoints begin with {at!r}", detail=f"such as {', '.join(found)}"
        )
    raise InvalidConfigError(f"{where} has no checkpoint {at!r}", hint="deltastore history lists them")
