"""Histories of DeltaChannels, rebuilt from a source as LangGraph's savers rebuild them.

A DeltaChannel without a value at a checkpoint is made of the value at the nearest ancestor that has one and of all
writes to it from there on. Ancestors are loaded one by one; of each only digests are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltastore.core.digests import digest
from deltastore.importer.source import Node, OpenThread

Marks = list[tuple[str, bytes]]


@dataclass(slots=True)
class SourceHistories:
    """Histories of one thread.

    Attributes:
        source: The thread in the source.
        tree: All of its checkpoints.
        fingerprint: Gives equal things for equal values of equal types.
    """

    source: OpenThread
    tree: Sequence[Node]
    fingerprint: Callable[[Any], Any]
    _nodes: dict[tuple[str, str], Node] = field(init=False)
    _seen: dict[tuple[str, str], tuple[frozenset[str], Mapping[str, bytes], Mapping[str, Marks]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self._nodes = {node.key: node for node in self.tree}

    async def of(self, node: Node, channels: frozenset[str]) -> dict[str, tuple[bytes | None, Marks]]:
        """The mark of the seed, if there is one, and tasks and marks of the writes, oldest first, of each channel."""
        seeds: dict[str, bytes] = {}
        steps: dict[str, list[Marks]] = {channel: [] for channel in channels}
        left = set(channels)
        ancestor = self._parent_of(node)
        while ancestor is not None and left:
            values, writes = await self._marks_of(ancestor, channels)
            for channel in left:
                steps[channel].append(writes.get(channel, []))
            seeds |= {channel: values[channel] for channel in left & values.keys()}
            left -= values.keys()
            ancestor = self._parent_of(ancestor)
        return {
            channel: (seeds.get(channel), [mark for step in reversed(steps[channel]) for mark in step])
            for channel in channels
        }

    def _parent_of(self, node: Node) -> Node | None:
        return None if node.parent_id is None else self._nodes.get((node.namespace, node.parent_id))

    async def _marks_of(self, node: Node, channels: frozenset[str]) -> tuple[Mapping[str, bytes], Mapping[str, Marks]]:
        """Marks of the values and writes that a checkpoint has of these channels."""
        if node.key in self._seen:
            known, values, writes = self._seen[node.key]
            if channels <= known:
                return values, writes
            channels = channels | known
        found = await self.source.load(node)
        loaded = found.checkpoint["channel_values"]
        values = {channel: marked(self.fingerprint(loaded[channel])) for channel in channels & loaded.keys()}
        writes = {}
        for task_id, channel, value in found.pending_writes or ():
            if channel in channels:
                writes.setdefault(channel, []).append((task_id, marked(self.fingerprint(value))))
        self._seen[node.key] = channels, values, writes
        return values, writes


def marked(fingerprint: Any) -> bytes:
    """A short stand-in for a fingerprint."""
    return digest(fingerprint if isinstance(fingerprint, bytes) else repr(fingerprint).encode())
