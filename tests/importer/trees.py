"""Random threads of a saver, with forks, subgraphs and DeltaChannels, and what the target holds of a thread."""

from __future__ import annotations

import random
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.core.archive_rows import Packing
from deltastore.core.identifiers import thread_key
from deltastore.postgres.storage import PostgresStorage

NAMESPACES = ("", "sub:1", "sub:2|deep:3")


class Tree:
    """A thread that grows at random.

    Args:
        saver: Where it is written.
        thread_id: Its id.
        seed: Of what happens.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any], thread_id: str, seed: int) -> None:
        self._saver = saver
        self._thread_id = thread_id
        self._random = random.Random(seed)
        self._number = 0
        self._nodes: dict[str, list[tuple[Any, dict[str, Any], dict[str, Any]]]] = {each: [] for each in NAMESPACES}
        self.heads: dict[str, Any] = {}

    async def grow(self, count: int) -> None:
        """Adds checkpoints, most of them behind the newest of a namespace."""
        for _ in range(count):
            await self._put(self._random.choice(NAMESPACES))

    async def _put(self, namespace: str) -> None:
        chance, nodes = self._random, self._nodes[namespace]
        self._number += 1
        config: Any = {"configurable": {"thread_id": self._thread_id, "checkpoint_ns": namespace}}
        values: dict[str, Any] = {}
        versions: dict[str, Any] = {}
        if nodes:
            config, values, versions = chance.choice(nodes) if chance.random() < 0.2 else nodes[-1]
        version = f"{self._number:032}.{self._number:016}"
        changes = self._changes(values)
        values = {name: value for name, value in {**values, **changes}.items() if name != "ephemeral"}
        values |= {"ephemeral": 1} if "ephemeral" in changes else {}
        if "delta" not in changes:
            values.pop("delta", None)
        new_versions: dict[str, Any] = dict.fromkeys([*changes, "delta"], version)
        versions = {**versions, **new_versions}
        checkpoint: Any = {
            "v": 4,
            "id": f"1f1ed167-7afc-6548-8001-{self._number:012}",
            "ts": f"2026-01-01T00:00:00.{self._number:06}+00:00",
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {"node": dict(list(versions.items())[:2])},
            "updated_channels": sorted(new_versions),
        }
        metadata: Any = {"source": "loop", "step": self._number, "user": f"user {self._number // 9}"}
        metadata["counters_since_delta_snapshot"] = {"delta": [1, 1]}
        config = await self._saver.aput(config, checkpoint, metadata, new_versions)
        for task in range(chance.randrange(3)):
            writes = [("delta", f"write {self._number} {task}"), ("log", ["x" * chance.choice([5, 2000])])]
            await self._saver.aput_writes(config, writes, f"task-{task}", f"~{task}")
        if chance.random() < 0.2:
            await self._saver.aput_writes(config, [("__interrupt__", ["why?"])], "task-0")
        nodes.append((config, values, versions))
        self.heads[namespace] = config

    def _changes(self, values: dict[str, Any]) -> dict[str, Any]:
        chance = self._random
        changes: dict[str, Any] = {}
        if chance.random() < 0.8:
            more = [f"line {self._number} {index} " + "y" * chance.choice([0, 30, 1500]) for index in range(30)]
            changes["log"] = [*values.get("log", []), *more]
        if chance.random() < 0.3:
            changes["facts"] = {**values.get("facts", {}), f"fact {self._number}": "z" * chance.choice([10, 3000])}
        if chance.random() < 0.3:
            changes["text"] = "t" * chance.choice([3, 40, 2000]) + str(self._number)
        if chance.random() < 0.2:
            changes["delta"] = _DeltaSnapshot([f"snapshot {self._number}"])
        if chance.random() < 0.2:
            changes["ephemeral"] = 1
        return changes


async def canonical(dsn: str, schema: str, thread_id: str) -> dict[str, list[Any]]:
    """All rows of a thread, opened and with segments numbered from 1: equal for equal threads, whatever their ids."""
    storage = await PostgresStorage.open(dsn, schema)
    async with storage.view(thread_key(thread_id)) as view:
        rows = await view.rows()
        assert rows is not None
        ids = [segment.segment_id for segment in rows.segments]
        segments = await view.segments(ids)
        documents = await view.documents([metadata_id for metadata_id, _ in rows.metadata])
    await storage.close()
    packing = Packing(rows.thread, ids, None)
    packed: dict[str, list[Any]] = {}
    for name, stored in (("checkpoints", rows.checkpoints), ("segments", segments), ("metadata", documents)):
        packed[name] = sorted(map(repr, map(packing.pack, stored)))
    return packed
