"""What deltastore promises, in the simplest form: a model that keeps every value in full.

A checkpoint is an object; it refers to its parent's object, as it was when the checkpoint was put. So nothing that
happens to other checkpoints later can change what it means, which is the promise. Values are kept as the bytes that
LangGraph's serializer makes of the whole value.

Where deltastore's answer depends on whether a deleted parent is still stored as a support row, the caller says so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple, get_checkpoint_metadata, writes_sort_key
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tests.support.exact import exact

Bytes = tuple[str, bytes]
Write = tuple[str, str, int, str, Bytes]
"""task path, task id, index, channel, value"""

Place = tuple[str, str, str]
"""thread, namespace, checkpoint id"""


@dataclass
class Node:
    """One checkpoint.

    Attributes:
        place: Where it is.
        parent_id: The parent's id as readers see it.
        parent: The parent as it was when this one was put, None if it was not there.
        checkpoint: The checkpoint without its values.
        values: The value of each channel that has one.
        metadata: The metadata.
        consumed: The parent's writes that were there when this one was put.
        borrowed: Histories of channels that were kept by their version from elsewhere in the namespace.
        hidden: Deleted.
        is_unsure: A history goes through a deleted checkpoint, whose writes may be gone.
    """

    place: Place
    parent_id: str | None
    parent: Node | None
    checkpoint: dict[str, Any]
    values: dict[str, Bytes]
    metadata: Bytes
    consumed: list[Write] = field(default_factory=list)
    borrowed: dict[str, tuple[Bytes | None, list[Write]]] = field(default_factory=dict)
    hidden: bool = False
    is_unsure: bool = False

    def history(self, channel: str) -> tuple[Bytes | None, list[Write]]:
        """The seed, if there is any, and the writes since, oldest first."""
        if channel in self.borrowed:
            return self.borrowed[channel]
        if self.parent is None:
            return None, []
        gained = [write for write in self.consumed if write[3] == channel and write[2] >= 0]
        seed = self.parent.values.get(channel)
        before: list[Any] = []
        if seed is None:
            seed, before = self.parent.history(channel)
        return seed, before + gained


class Model:
    """Threads as objects."""

    def __init__(self) -> None:
        self.serde = JsonPlusSerializer()
        self.nodes: dict[Place, Node] = {}
        self.writes: dict[Place, dict[tuple[str, int], Write]] = {}
        self.deleted_through: dict[str, str] = {}

    # --- saving

    def refuses(self, config: RunnableConfig, stored: Collection[Place] | None, *, is_put: bool) -> bool:
        """Whether a save names a checkpoint of a deleted thread; `stored` is None if the thread is not there."""
        settings = config["configurable"]
        through, named = self.deleted_through.get(settings["thread_id"]), settings.get("checkpoint_id")
        if through is None or named is None:
            return False
        if not is_put:
            return stored is None
        parent = settings["thread_id"], settings["checkpoint_ns"], named
        return stored is None or (parent not in stored and named <= through)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Mapping[str, Any],
        metadata: Any,
        new_versions: Mapping[str, Any],
        is_stored: Callable[[Place], bool],
    ) -> None:
        """Puts a checkpoint; `is_stored` says of a deleted parent whether it is there as a support row."""
        settings = config["configurable"]
        place = settings["thread_id"], settings["checkpoint_ns"], checkpoint["id"]
        parent_id = settings.get("checkpoint_id")
        above = (place[0], place[1], str(parent_id))
        parent = self.nodes.get(above)
        if parent is not None and parent.hidden and not is_stored(above):
            parent = None
        node = Node(
            place,
            None if parent is not None and parent.hidden else parent_id,
            parent,
            copy.deepcopy({key: value for key, value in checkpoint.items() if key != "channel_values"}),
            {} if parent is None else {c: v for c, v in parent.values.items() if c in checkpoint["channel_versions"]},
            self.serde.dumps_typed(get_checkpoint_metadata(config, metadata)),
            [] if parent is None else self.ordered_writes(above),
            is_unsure=parent is not None and (parent.hidden or parent.is_unsure),
        )
        named = checkpoint["channel_versions"].keys() & new_versions.keys()
        for channel in named:
            node.values.pop(channel, None)
            if channel in checkpoint["channel_values"]:
                node.values[channel] = self.serde.dumps_typed(checkpoint["channel_values"][channel])
        self._borrow(node, named)
        stored = self.nodes.get(place)
        if stored is None or not self._same(stored, node, named):
            self.nodes[place] = node

    def _borrow(self, node: Node, named: set[str]) -> None:
        """Finds the values or histories of channels whose version is neither new nor the parent's."""
        before = {} if node.parent is None else node.parent.checkpoint["channel_versions"]
        for channel, version in node.checkpoint["channel_versions"].items():
            if channel in named or (channel in before and exact(before[channel]) == exact(version)):
                continue
            node.values.pop(channel, None)
            for other in self.visible(node.place[:2]):
                if exact(other.checkpoint["channel_versions"].get(channel)) == exact(version):
                    if channel in other.values:
                        node.values[channel] = other.values[channel]
                    elif other.history(channel) != (None, []):
                        node.borrowed[channel] = other.history(channel)
                        node.is_unsure = node.is_unsure or other.is_unsure
                    break

    def _same(self, stored: Node, node: Node, named: set[str]) -> bool:
        """Whether a checkpoint that is put again is the one that is stored, so that nothing happens."""
        return (
            not stored.hidden
            and stored.parent_id == node.parent_id
            and exact(stored.checkpoint) == exact(node.checkpoint)
            and stored.metadata == node.metadata
            and all(stored.values.get(channel) == node.values.get(channel) for channel in named)
        )

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, path: str) -> None:
        """Stores writes."""
        settings = config["configurable"]
        stored = self.writes.setdefault(
            (settings["thread_id"], settings["checkpoint_ns"], settings["checkpoint_id"]), {}
        )
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            if index < 0 or (task_id, index) not in stored:
                stored[task_id, index] = (path, task_id, index, channel, self.serde.dumps_typed(value))

    def ordered_writes(self, place: Place) -> list[Write]:
        """The writes that count, in order."""
        return sorted(self.writes.get(place, {}).values(), key=lambda write: writes_sort_key(*write[:3]))

    # --- reading

    def visible(self, prefix: tuple[str, ...] = ()) -> Iterator[Node]:
        """Checkpoints that are not deleted, those with the largest ids first."""
        found = [node for place, node in self.nodes.items() if not node.hidden and place[: len(prefix)] == prefix]
        return iter(sorted(found, key=lambda node: node.place[2], reverse=True))

    def tuple_of(self, node: Node) -> CheckpointTuple:
        """A checkpoint as a saver gives it."""
        load = self.serde.loads_typed
        thread, namespace, _ = node.place
        values = {channel: load(value) for channel, value in node.values.items()}
        checkpoint: Any = {**copy.deepcopy(node.checkpoint), "channel_values": values}
        return CheckpointTuple(
            config_of(*node.place),
            checkpoint,
            load(node.metadata),
            None if node.parent_id is None else config_of(thread, namespace, node.parent_id),
            [(task, channel, load(value)) for _, task, _, channel, value in self.ordered_writes(node.place)],
        )

    def history_of(self, node: Node, channels: Sequence[str]) -> dict[str, Any]:
        """The histories as a saver gives them."""
        load = self.serde.loads_typed
        histories: dict[str, Any] = {}
        for channel in channels:
            seed, writes = node.history(channel)
            histories[channel] = {"writes": [(task, channel, load(value)) for _, task, _, _, value in writes]}
            if seed is not None:
                histories[channel]["seed"] = load(seed)
        return histories

    # --- deleting and copying

    def delete_thread(self, thread: str, ids: Collection[str]) -> None:
        """Removes a thread, which had rows of these checkpoints; a later save that names one is refused."""
        if ids:
            self.deleted_through[thread] = max([*ids, self.deleted_through.get(thread, "")])
        for kept in (self.nodes, self.writes):
            for place in [place for place in kept if place[0] == thread]:
                del kept[place]

    def hide(self, deleted: Sequence[Node]) -> None:
        """Deletes checkpoints; their children have no parent any more, as far as readers see."""
        places = {node.place for node in deleted}
        for node in deleted:
            node.hidden = True
        for node in self.nodes.values():
            if node.parent_id is not None and (*node.place[:2], node.parent_id) in places:
                node.parent_id = None

    def delete_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Deletes the checkpoints of runs; the threads that have any."""
        deleted = [node for node in self.visible() if self.serde.loads_typed(node.metadata).get("run_id") in run_ids]
        self.hide(deleted)
        return {node.place[0] for node in deleted}

    def keep_latest(self, thread: str) -> None:
        """Deletes all but the heads."""
        heads: dict[str, Node] = {}
        for node in self.visible((thread,)):
            heads.setdefault(node.place[1], node)
        self.hide([node for node in self.visible((thread,)) if node not in heads.values()])
        for node in heads.values():
            node.parent_id = None

    def forget_writes(self, thread: str, are_stored: Callable[[Place], bool]) -> None:
        """Drops writes that nobody can see after a deletion.

        Args:
            thread: The thread.
            are_stored: Whether writes are kept whose checkpoint has not arrived.
        """
        for place in [place for place in self.writes if place[0] == thread]:
            node = self.nodes.get(place)
            if node.hidden if node is not None else not are_stored(place):
                del self.writes[place]

    def copy_thread(self, source: str, target: str) -> None:
        """Copies a thread; the copies refer to the same parents, which never change."""
        for (thread, *rest), node in [*self.nodes.items()]:
            if thread == source:
                place = target, rest[0], rest[1]
                self.nodes[place] = replace(node, place=place)
        for (thread, *rest), writes in [*self.writes.items()]:
            if thread == source:
                self.writes[target, rest[0], rest[1]] = {**writes}


def config_of(thread: str, namespace: str, checkpoint_id: str | None = None) -> RunnableConfig:
    """The config that names a checkpoint, or a namespace."""
    settings = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": settings if checkpoint_id is None else {**settings, "checkpoint_id": checkpoint_id}}
