"""A checkpointer that hands every save to several others and reads from the first.

So one run of a graph, with its random ids and clock, is stored by several savers alike, and all that they give back can
be compared exactly. What is saved is copied first, because a graph goes on changing it between one saver and the next.
Only deltastore, which comes first, gets the graph's own objects: it recognises those that it knows.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from deltastore import DeltaSaver
from tests.support.exact import address, exact_history, exact_tuple

T = TypeVar("T")


class TeeSaver(BaseCheckpointSaver[Any]):
    """Saves with all, reads with the first."""

    def __init__(self, *savers: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=savers[0].serde)
        self.savers = savers

    def _given(self, live: T) -> list[tuple[BaseCheckpointSaver[Any], T]]:
        """Each saver with what it is to save, in the order in which they save."""
        copied = copy.deepcopy(live)
        pairs = [(saver, live if isinstance(saver, DeltaSaver) else copied) for saver in self.savers]
        return sorted(pairs, key=lambda pair: pair[1] is copied)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        given = self._given((checkpoint, metadata, new_versions))
        answers = {saver: saver.put(config, *each) for saver, each in given}
        return answers[self.savers[0]]

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        for saver, each in self._given(writes):
            saver.put_writes(config, each, task_id, task_path)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.savers[0].get_tuple(config)

    def list(self, config: RunnableConfig | None, **conditions: Any) -> Iterator[CheckpointTuple]:
        return self.savers[0].list(config, **conditions)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self.savers[0].get_delta_channel_history(config=config, channels=channels)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        given = self._given((checkpoint, metadata, new_versions))
        answers = {saver: await saver.aput(config, *each) for saver, each in given}
        return answers[self.savers[0]]

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        for saver, each in self._given(writes):
            await saver.aput_writes(config, each, task_id, task_path)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self.savers[0].aget_tuple(config)

    async def alist(self, config: RunnableConfig | None, **conditions: Any) -> AsyncIterator[CheckpointTuple]:
        async for each in self.savers[0].alist(config, **conditions):
            yield each

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self.savers[0].aget_delta_channel_history(config=config, channels=channels)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.savers[0].get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> TeeSaver:
        return TeeSaver(*(saver.with_allowlist(extra_allowlist) for saver in self.savers))


def assert_same_checkpoints(expected: BaseCheckpointSaver[Any], found: BaseCheckpointSaver[Any], *, delta: bool) -> int:
    """Compares what two savers say of every checkpoint of all threads; returns how many there are.

    Without DeltaChannels (`delta`) LangGraph lets a put overtake writes to its parent. What comes late counts for the
    expected histories of the child and not for those of deltastore (README, Limits), so these may lack some of them.
    """
    listed = {address(each.config): each for each in expected.list(None)}
    ours = {address(each.config): each for each in found.list(None)}
    assert ours.keys() == listed.keys()
    for place, each in listed.items():
        assert place is not None
        assert exact_tuple(ours[place]) == exact_tuple(each), place
        assert exact_tuple(found.get_tuple(config_at(place))) == exact_tuple(each), place
        _assert_same_histories(expected, found, each, may_lack=not delta)
    return len(ours)


def assert_same_listings(expected: BaseCheckpointSaver[Any], found: BaseCheckpointSaver[Any]) -> None:
    """Compares heads and listings of all root namespaces, and those of one other namespace of each thread."""
    places = [address(each.config) for each in expected.list(None)]
    namespaces = {(thread_id, bool(namespace)): namespace for thread_id, namespace, _ in filter(None, places)}
    for (thread_id, _), namespace in namespaces.items():
        _assert_same_listings(expected, found, thread_id, namespace)


def config_at(place: tuple[str, str, str]) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": dict(zip(("thread_id", "checkpoint_ns", "checkpoint_id"), place, strict=True))}


def _assert_same_histories(
    expected: BaseCheckpointSaver[Any], found: BaseCheckpointSaver[Any], each: CheckpointTuple, *, may_lack: bool
) -> None:
    channels = sorted(each.checkpoint["channel_versions"])
    wanted, ours = (
        exact_history(saver.get_delta_channel_history(config=each.config, channels=channels))
        for saver in (expected, found)
    )
    if may_lack:
        for channel, entry in ours.items():
            all_writes = iter(wanted[channel]["writes"])
            wanted[channel]["writes"] = [write for write in entry["writes"] if write in all_writes]
    assert ours == wanted, address(each.config)


def _assert_same_listings(
    expected: BaseCheckpointSaver[Any], found: BaseCheckpointSaver[Any], thread_id: str, namespace: str
) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
    head = expected.get_tuple(config)
    assert exact_tuple(found.get_tuple(config)) == exact_tuple(head)
    everything = [address(each.config) for each in expected.list(config)]
    assert [address(each.config) for each in found.list(config)] == everything
    middle = everything[len(everything) // 2]
    assert middle is not None
    for conditions in (
        {"limit": 2},
        {"before": config_at(middle)},
        {"before": config_at(middle), "limit": 1},
        {"filter": {"source": "loop"}},
        {"filter": {"source": "input"}, "limit": 1},
        {"filter": {"step": 1}},
        {"filter": {"step": 0, "source": "loop"}, "before": config_at(middle)},
    ):
        wanted = [exact_tuple(each) for each in expected.list(config, **conditions)]
        assert [exact_tuple(each) for each in found.list(config, **conditions)] == wanted, conditions
