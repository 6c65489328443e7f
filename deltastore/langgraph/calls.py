"""Calls of the saver, checked and encoded, as functions of the engine.

Making a call is the synchronous half: it runs in the caller's thread, before anything is awaited, and raises if
something given is wrong. The function that it returns is the other half: it runs on the engine's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from deltastore.conversion import convert, validate
from deltastore.core import metadata as metadatas
from deltastore.core.codec import Codec
from deltastore.core.compacted import CompactedThread, Compaction
from deltastore.core.containment import contains
from deltastore.core.frame import Cipher
from deltastore.core.memo import Memos
from deltastore.core.model import ListQuery
from deltastore.core.retained import RetentionReport
from deltastore.core.retention import RetentionPolicy
from deltastore.core.templates import Templates
from deltastore.engine import Engine
from deltastore.errors import InvalidConfigError
from deltastore.loaded import ItemReader, Loaded
from deltastore.reading import Wanted

LIST_PAGE = 32
PRUNE_STRATEGIES = ("keep_latest", "delete")
OFF_LOOP_BYTES = 6 * 1024 * 1024
"""States with more encoded bytes than this are decoded in a thread. Less takes under 40 ms, and a thread that decodes
holds the interpreter while the event loop wants it, which costs more than it gives."""

T = TypeVar("T")
Call = Callable[[Engine], Coroutine[Any, Any, T]]


@dataclass(frozen=True, slots=True)
class Calls:
    """Makes calls with one serializer.

    Attributes:
        codec: Encodes and decodes values.
        cipher: Encrypts payloads, if the serializer is an encrypting one.
        memos: What is remembered of encoded objects.
    """

    codec: Codec
    cipher: Cipher | None
    memos: Memos

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[Call[None], RunnableConfig]:
        """Stores a checkpoint; and the config that will name it."""
        codec, cipher = self.codec, self.cipher
        thread, put = convert.put_of(codec, config, checkpoint, metadata, new_versions, self.memos)
        stored = convert.config_of(thread, put.namespace, validate.checkpoint_id(checkpoint["id"]))
        return lambda engine: engine.save(thread, put, cipher), stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Call[None] | None:
        """Stores writes; None if there are none."""
        codec, cipher = self.codec, self.cipher
        thread, put = convert.writes_of(codec, config, writes, task_id, task_path, self.memos)
        return (lambda engine: engine.writer.save_writes(thread, put, cipher)) if put.writes else None

    def get_tuple(self, config: RunnableConfig) -> Call[CheckpointTuple | None]:
        """Loads a checkpoint."""
        cipher = self.cipher
        thread, namespace, checkpoint_id = validate.place_of(config)

        async def call(engine: Engine) -> CheckpointTuple | None:
            loaded = await engine.reader.load(thread, namespace, checkpoint_id, cipher)
            if loaded is None:
                return None
            return await _decoded(loaded.items, partial(self._hand_out, loaded))

        return call

    def _hand_out(self, loaded: Loaded) -> CheckpointTuple:
        memo = self.memos.of(loaded.thread.key, loaded.namespace, self.codec.serializer)
        found = convert.tuple_of(self.codec, loaded, memo.values)
        convert.remember_loaded(memo, loaded, found.checkpoint["channel_values"])
        return found

    def list(
        self,
        config: RunnableConfig | None,
        filters: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Call[Sequence[CheckpointTuple]]:
        """A call that gives the next checkpoint each time, in a sequence of one, and an empty one at the end."""
        codec, cipher = self.codec, self.cipher
        conditions, most = validate.filter_of(filters), validate.limit(limit)
        query = _query(config, conditions, validate.before_of(before), most)
        wanted = _metadata_test(codec, conditions) if conditions else None
        templates = Templates()
        source: Any = None

        async def call(engine: Engine) -> Sequence[CheckpointTuple]:
            nonlocal source
            if source is None:
                source = engine.reader.listing(query, most, cipher, wanted)
            loaded = await anext(source, None)
            return (
                []
                if loaded is None
                else [await _decoded(loaded.items, partial(convert.tuple_of, codec, loaded, templates))]
            )

        return call

    def history(self, config: RunnableConfig, channels: Sequence[str]) -> Call[Mapping[str, DeltaChannelHistory]]:
        """Loads the histories of DeltaChannels."""
        codec, cipher = self.codec, self.cipher
        thread, namespace, checkpoint_id = validate.place_of(config)
        names = validate.texts(channels, "channels")

        async def call(engine: Engine) -> Mapping[str, DeltaChannelHistory]:
            if not names:
                return {}
            histories = await engine.reader.history(thread, namespace, checkpoint_id, names, cipher)
            if not histories:
                return convert.histories_of(codec, {}, names)
            reader = next(iter(histories.values())).items
            templates = self.memos.of(thread.key, namespace, codec.serializer).histories
            return await _decoded(reader, partial(convert.histories_of, codec, histories, names, templates))

        return call

    def delete_thread(self, thread_id: str) -> Call[None]:
        """Deletes a thread."""
        key = validate.thread(thread_id).key
        self.memos.forget(key)
        return lambda engine: engine.maintenance.delete_thread(key)

    def undelete_thread(self, thread_id: str) -> Call[bool]:
        """Forgets that a thread was deleted."""
        key = validate.thread(thread_id).key
        return lambda engine: engine.storage.forget_deletion(key)

    def pin(self, thread_id: str, *, pinned: bool) -> Call[None]:
        """Pins a thread, or takes the pin away."""
        thread = validate.thread(thread_id)

        async def call(engine: Engine) -> None:
            if not await engine.storage.pin(thread.key, pinned):
                raise InvalidConfigError(f"there is no thread {thread.thread_id!r}", hint="is its id right?")

        return call

    def retain(self, policy: RetentionPolicy, *, dry_run: bool, now: datetime | None) -> Call[RetentionReport]:
        """Applies a retention policy."""
        given: Any = policy
        if not isinstance(given, RetentionPolicy):
            raise InvalidConfigError(
                f"a RetentionPolicy is expected, got {type(given).__name__}", hint="RetentionPolicy.from_toml reads one"
            )
        if now is not None and now.tzinfo is None:
            raise InvalidConfigError(f"now must have a time zone, got {now!r}")
        cipher, now_seconds = self.cipher, None if now is None else now.timestamp()
        return lambda engine: engine.retention.retain(policy, cipher, dry_run=dry_run, now_seconds=now_seconds)

    def delete_for_runs(self, run_ids: Sequence[str]) -> Call[None]:
        """Deletes the checkpoints of runs."""
        ids = validate.texts(run_ids, "run_ids")
        cipher = self.cipher

        async def call(engine: Engine) -> None:
            if ids:
                await engine.maintenance.delete_runs(ids, cipher)

        return call

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> Call[None]:
        """Copies a thread."""
        source, target = validate.thread(source_thread_id), validate.thread(target_thread_id)
        if source.key == target.key:
            raise InvalidConfigError(f"thread {source.thread_id!r} cannot be copied onto itself")

        async def call(engine: Engine) -> None:
            if not await engine.maintenance.copy_thread(source.key, target):
                raise InvalidConfigError(
                    f"thread {target.thread_id!r} exists, so thread {source.thread_id!r} was not copied onto it",
                    hint="delete the target first, or copy to another id",
                )

        return call

    def compact_thread(self, thread_id: str) -> Call[CompactedThread]:
        """Compacts a thread."""
        thread, cipher = validate.thread(thread_id), self.cipher

        async def call(engine: Engine) -> CompactedThread:
            outcome = await engine.repacking.compact(thread, cipher)
            if outcome.status is Compaction.MISSING:
                raise InvalidConfigError(f"there is no thread {thread.thread_id!r}")
            return outcome

        return call

    def prune(self, thread_ids: Sequence[str], strategy: str) -> Call[None]:
        """Prunes threads."""
        keys = [validate.thread(each).key for each in validate.texts(thread_ids, "thread_ids")]
        if strategy not in PRUNE_STRATEGIES:
            raise InvalidConfigError(f"unknown prune strategy {strategy!r}, expected one of {PRUNE_STRATEGIES}")
        cipher = self.cipher

        async def call(engine: Engine) -> None:
            for key in keys:
                if strategy == "delete":
                    await engine.maintenance.delete_thread(key)
                else:
                    await engine.maintenance.keep_latest(key, cipher)

        return call


def _query(
    config: RunnableConfig | None, conditions: Mapping[str, Any], before: bytes | None, limit: int | None
) -> ListQuery:
    shared = {key: value for key, value in conditions.items() if key not in metadatas.VOLATILE}
    document = metadatas.searchable(shared) if shared else None
    page = LIST_PAGE if limit is None or conditions else max(1, min(limit, LIST_PAGE))
    if config is None:
        return ListQuery(before=before, document=document, limit=page)
    is_named = validate.configurable(config).get("checkpoint_ns") is not None
    thread, namespace, checkpoint_id = validate.place_of(config)
    return ListQuery(
        thread.key,
        namespace if is_named else None,
        checkpoint_id,
        before,
        document,
        limit=page,
    )


def _metadata_test(codec: Codec, conditions: Mapping[str, Any]) -> Wanted:
    """Whether metadata contains the conditions, exactly: the database was asked about the shared part only."""
    query = metadatas.searchable(conditions)

    def test(volatile: Sequence[Any], shared: bytes) -> bool:
        metadata = convert.metadata_of(codec, [*volatile], shared, "a listed checkpoint")
        return contains(metadatas.searchable(metadata), query)

    return test


async def _decoded(items: ItemReader, decode: Callable[[], T]) -> T:
    """Runs a decoding, in a thread if there is much to decode."""
    total_bytes = sum(segment.size_bytes for segment in items.segments.values())
    return decode() if total_bytes < OFF_LOOP_BYTES else await asyncio.to_thread(decode)
