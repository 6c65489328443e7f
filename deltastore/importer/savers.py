"""Threads of any LangGraph saver, read by its own methods.

Checkpoints come as decoded objects and are encoded with the target's serializer. The saver's methods do not tell the
index and task path of a pending write: indexes are counted as LangGraph gives them, and where writes do not come in the
order of task and index, paths are made up that keep the order.

A saver has no snapshot over many calls: import a thread while nobody writes to it, or catch up with a later pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import accumulate, pairwise
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple

from deltastore.core.codec import Codec, EncodedValue
from deltastore.errors import InvalidConfigError
from deltastore.importer.reading import encoded, kept_of
from deltastore.importer.source import (
    NOTHING_BEFORE,
    Before,
    Node,
    OpenThread,
    SkipThread,
    SourceCheckpoint,
    SourceWrite,
    ThreadShape,
)
from deltastore.importer.tree import Ancestors


class SaverSource:
    """Threads of a saver.

    Args:
        saver: The saver, open. Its synchronous methods are called in a thread where it has no asynchronous ones.
        codec: The target's.
        thread_ids: The threads, where the saver can't list them or listing all would take too long.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any], codec: Codec, thread_ids: Sequence[str] | None = None) -> None:
        self._saver = saver
        self._codec = codec
        self._thread_ids = thread_ids
        self._named: dict[str, list[Any]] = {}

    async def threads(self) -> AsyncIterator[str]:
        """The ids of all threads: the given ones, else those that the saver lists."""
        if self._thread_ids is not None:
            for thread_id in self._thread_ids:
                yield thread_id
            return
        self._named.clear()
        try:
            async for found in _listing(self._saver, None):
                own_id = found.config["configurable"]["thread_id"]
                names = self._named.setdefault(str(own_id), [])
                if own_id not in names:
                    names.append(own_id)
        except SkipThread as reason:
            raise InvalidConfigError(
                "the source's saver cannot list its threads", detail=str(reason), hint="name them with --threads"
            ) from reason
        for thread_id in sorted(self._named):
            yield thread_id

    @asynccontextmanager
    async def open(self, thread_id: str) -> AsyncIterator[OpenThread]:
        """Opens one thread for reading."""
        names = self._named.get(thread_id, [thread_id])
        if len(names) > 1:
            raise SkipThread(f"the saver has {len(names)} threads whose ids are the same as texts: {names!r}")
        yield _SaverThread(self._saver, self._codec, names[0])

    async def close(self) -> None:
        """Nothing: the saver is the caller's."""


class _SaverThread:
    """One thread of a saver."""

    def __init__(self, saver: BaseCheckpointSaver[Any], codec: Codec, thread_id: Any) -> None:
        self._saver = saver
        self._codec = codec
        self._thread_id = thread_id

    async def shape(self) -> ThreadShape:
        """Its structure; all of its checkpoints are loaded for it, one at a time."""
        nodes: list[Node] = []
        writes: set[tuple[str, str, str, int]] = set()
        changing: dict[tuple[str, str, str, int], EncodedValue] = {}
        source_bytes, newest = 0, ""
        async for found in _listing(self._saver, {"configurable": {"thread_id": self._thread_id}}):
            node = _node_of(found)
            nodes.append(node)
            newest = max(newest, found.checkpoint.get("ts") or "")
            for write in self._writes(node, found):
                key = (*node.key, write.task_id, write.index)
                writes.add(key)
                source_bytes += sum(map(len, write.value.items))
                if write.index < 0:
                    changing[key] = write.value
        return ThreadShape(nodes, frozenset(writes), changing, source_bytes, newest or None)

    async def checkpoints(
        self,
        order: Sequence[Node],
        before: Before = NOTHING_BEFORE,  # noqa: ARG002 - each checkpoint has all its values here
    ) -> AsyncIterator[SourceCheckpoint]:
        """Its checkpoints in this order."""
        ancestors: Ancestors[dict[str, EncodedValue]] = Ancestors(order)
        for node in order:
            found = await self.load(node)
            where = f"namespace {node.namespace!r}, checkpoint {node.checkpoint_id!r}"
            values = {
                channel: encoded(self._codec, value, f"{where}: channel {channel!r}")
                for channel, value in found.checkpoint["channel_values"].items()
            }
            parent_values = ancestors.parent_of(node) or {}
            kept = kept_of(parent_values, values)
            ancestors.keep(node, values)
            yield SourceCheckpoint(
                node,
                cast("dict[str, Any]", found.checkpoint),
                cast("dict[str, Any]", found.metadata),
                {channel: value for channel, value in values.items() if channel not in kept},
                kept,
                self._writes(node, found),
            )

    async def orphans(self) -> AsyncIterator[tuple[Node, Sequence[SourceWrite]]]:
        """None: a saver does not show writes without a checkpoint."""
        nothing: tuple[tuple[Node, Sequence[SourceWrite]], ...] = ()
        for each in nothing:
            yield each

    async def load(self, node: Node) -> CheckpointTuple:
        """One checkpoint."""
        config: RunnableConfig = {
            "configurable": {
                "thread_id": self._thread_id,
                "checkpoint_ns": node.namespace,
                "checkpoint_id": node.checkpoint_id,
            }
        }
        found = await _get(self._saver, config)
        if found is None:
            raise SkipThread(f"namespace {node.namespace!r}, checkpoint {node.checkpoint_id!r}: listed but not found")
        return found

    def _writes(self, node: Node, found: CheckpointTuple) -> list[SourceWrite]:
        pending = found.pending_writes or []
        counts: dict[str, int] = {}
        places: list[tuple[str, int]] = []
        for task_id, channel, _ in pending:
            index = WRITES_IDX_MAP.get(channel)
            if index is None:
                index = counts.get(task_id, 0)
                counts[task_id] = index + 1
            places.append((task_id, index))
        writes = []
        for (task_id, index), path, (_, channel, value) in zip(places, _paths(places), pending, strict=True):
            where = f"namespace {node.namespace!r}, checkpoint {node.checkpoint_id!r}: write to {channel!r}"
            writes.append(SourceWrite(task_id, path, index, channel, encoded(self._codec, value, where)))
        return writes


def _paths(places: Sequence[tuple[str, int]]) -> list[str]:
    """Task paths that keep writes in this order, as readers sort by path, task and index."""
    if list(places) == sorted(places):
        return [""] * len(places)
    falls = (place < before for before, place in pairwise(places))
    return [f"~{run:06}" for run in accumulate(falls, initial=0)]


def _node_of(found: CheckpointTuple) -> Node:
    settings = found.config["configurable"]
    parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    return Node(settings.get("checkpoint_ns", ""), settings["checkpoint_id"], parent or None)


async def _listing(saver: BaseCheckpointSaver[Any], config: RunnableConfig | None) -> AsyncIterator[CheckpointTuple]:
    try:
        count = 0
        if _is_own(saver, "alist"):
            try:
                async for found in saver.alist(config):
                    count += 1
                    yield found
            except NotImplementedError:  # a synchronous saver says so instead of leaving the method out
                if count:
                    raise
            else:
                return
        iterator = await asyncio.to_thread(lambda: iter(saver.list(config)))
        while (each := await asyncio.to_thread(next, iterator, None)) is not None:
            yield each
    except Exception as error:
        raise _failed(error) from error


async def _get(saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> CheckpointTuple | None:
    try:
        if _is_own(saver, "aget_tuple"):
            with suppress(NotImplementedError):
                return await saver.aget_tuple(config)
        return await asyncio.to_thread(saver.get_tuple, config)
    except Exception as error:
        raise _failed(error) from error


def _failed(error: Exception) -> SkipThread:
    return SkipThread(f"the source's saver failed: {type(error).__name__}: {error}")


def _is_own(saver: BaseCheckpointSaver[Any], method: str) -> bool:
    """Whether the saver has a method of its own in place of the base class's, which is not implemented."""
    return getattr(type(saver), method) is not getattr(BaseCheckpointSaver, method)
