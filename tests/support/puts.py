"""Checkpoints put through the saver's interface, without a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from tests.support.exact import exact_history


class _Nothing:
    """Stands for a channel that gets a new version and no value, as DeltaChannels and cleared channels do."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = _Nothing()


def uuid_of(number: int) -> str:
    """The `number`-th checkpoint id: a UUID, larger than those before."""
    return f"{number:08x}-0000-4000-8000-000000000000"


@dataclass
class Puts:
    """Puts checkpoints and writes into one namespace of a thread, and remembers their versions.

    Attributes:
        saver: The saver.
        thread_id: The thread.
        namespace: The namespace.
    """

    saver: BaseCheckpointSaver[Any]
    thread_id: str = "t"
    namespace: str = ""
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: count(1))

    def config(self, checkpoint_id: str | None = None) -> RunnableConfig:
        """The config that names a checkpoint, or the head."""
        settings = {"thread_id": self.thread_id, "checkpoint_ns": self.namespace}
        return {"configurable": settings if checkpoint_id is None else {**settings, "checkpoint_id": checkpoint_id}}

    def put(
        self,
        parent: str | None,
        values: Mapping[str, Any],
        *,
        checkpoint_id: str | None = None,
        versions: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Puts a checkpoint.

        Args:
            parent: The parent's id.
            values: The channels that get a new version, with their values or `NOTHING`.
            checkpoint_id: Its id; by default the next one.
            versions: Versions of all other channels; by default the parent's.
            metadata: Its metadata.

        Returns:
            Its id.
        """
        number = next(self.numbers)
        checkpoint_id = checkpoint_id or uuid_of(number)
        old = self.versions.get(parent or "", {}) if versions is None else versions
        new = dict.fromkeys(values, number)
        self.versions[checkpoint_id] = {**old, **new}
        checkpoint: Any = {
            "v": 2,
            "id": checkpoint_id,
            "ts": "2024-05-04T06:32:42.235444+00:00",
            "channel_values": {name: value for name, value in values.items() if value is not NOTHING},
            "channel_versions": self.versions[checkpoint_id],
            "versions_seen": {},
            "updated_channels": sorted(values),
        }
        given: Any = {"source": "loop", "step": number, "parents": {}, **(metadata or {})}
        self.saver.put(self.config(parent), checkpoint, given, new)
        return checkpoint_id

    def write(self, checkpoint_id: str, writes: Sequence[tuple[str, Any]], task: str = "task", path: str = "") -> None:
        """Stores a task's writes to a checkpoint."""
        self.saver.put_writes(self.config(checkpoint_id), writes, task, path)

    def step(self, parent: str, channel: str, *values: Any, **more: Any) -> str:
        """One super-step of a DeltaChannel: writes to the parent, and a child without a value for the channel."""
        self.write(parent, [(channel, value) for value in values], task=f"task of {parent}")
        return self.put(parent, {channel: NOTHING}, **more)

    def found(self, checkpoint_id: str | None = None) -> CheckpointTuple:
        """The stored checkpoint, or the head."""
        found = self.saver.get_tuple(self.config(checkpoint_id))
        assert found is not None
        return found

    def values(self, checkpoint_id: str | None = None) -> dict[str, Any]:
        """Its channel values."""
        return self.found(checkpoint_id).checkpoint["channel_values"]

    def history(self, checkpoint_id: str | None, channel: str) -> tuple[Any, list[Any]]:
        """The seed (or `NOTHING`) and the values of the writes of one channel."""
        entry = self.saver.get_delta_channel_history(config=self.config(checkpoint_id), channels=[channel])[channel]
        return entry.get("seed", NOTHING), [value for _, _, value in entry["writes"]]

    def exact_history(self, checkpoint_id: str | None, *channels: str) -> Any:
        """The whole history in a form that can be compared."""
        return exact_history(
            self.saver.get_delta_channel_history(config=self.config(checkpoint_id), channels=list(channels))
        )
