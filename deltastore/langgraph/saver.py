"""The checkpointer: every method converts, calls the engine, converts.

Encoding happens in the caller's thread before anything is awaited. Nothing is derived from `serde` in `__init__`:
LangGraph copies savers and assigns it, and so do tests.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from deltastore.conversion import convert
from deltastore.core.codec import Codec
from deltastore.core.frame import Cipher
from deltastore.core.memo import Memos
from deltastore.core.retained import RetentionReport
from deltastore.core.retention import RetentionPolicy
from deltastore.engine import Engine
from deltastore.langgraph.bridge import Bridge, Done, Open
from deltastore.langgraph.calls import Calls
from deltastore.langgraph.compacting import CompactingSaver
from deltastore.langgraph.observed import observed_calls
from deltastore.langgraph.serializer import LoadedTypesSerializer
from deltastore.observing import Observer

VERSION_RANDOM_BITS = 32
MEMO_BYTES = 64 * 1024 * 1024
"""Bound of what is remembered of encoded objects, all threads together."""

T = TypeVar("T")


class EngineSaver(CompactingSaver, BaseCheckpointSaver[Any]):
    """LangGraph's checkpointer over an engine. `DeltaSaver` adds the ways to make one."""

    def __init__(
        self, open_engine: Open, *, serde: SerializerProtocol | None = None, observer: Observer | None = None
    ) -> None:
        super().__init__(serde=serde or LoadedTypesSerializer())
        self._observer = observer
        self._bridge = Bridge(open_engine)
        self._memos = Memos(MEMO_BYTES)

    # --- opening and closing

    def adopt(self, engine: Engine, home: asyncio.AbstractEventLoop) -> None:
        """Opens the saver at once, on an engine and a loop that it never closes."""
        self._bridge.adopt(engine, home)

    async def __aenter__(self) -> Self:
        await self._bridge.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._bridge.close()

    def __enter__(self) -> Self:
        self._bridge.open_in_thread()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bridge.close_in_thread()

    def setup(self) -> Awaitable[None]:
        """Creates or migrates the schema; does nothing when it is up to date. Safe from many processes at once.

        Await it on the saver's own loop (after `async with`, or over a pool). Anywhere else the work is done when the
        call returns, and awaiting it is allowed.

        Raises:
            DatabaseError: The server is away, or the role may not create what is missing.
        """
        if self._bridge.is_home():
            return self._bridge.arun(_setup)
        self._bridge.run(_setup)
        return Done()

    # --- for other parts of deltastore

    async def acall(self, call: Callable[[Engine, Codec, Cipher | None], Coroutine[Any, Any, T]]) -> T:
        """Runs a function of the engine, the codec and the cipher of the serializer, on the saver's own loop.

        May be awaited on any loop. For what LangGraph has no method for, as `deltastore.inspection`.

        Raises:
            WrongLoopError: The saver is not open, or its loop has ended.
        """
        codec, cipher = convert.codec_of(self.serde)
        return await self._bridge.arun(lambda engine: call(engine, codec, cipher))

    # --- saving

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint.

        Only channels that `new_versions` names are taken from `channel_values`; every other channel keeps the value
        stored for its version. A checkpoint whose id is stored already is replaced; the same one again is a no-op.

        Args:
            config: Names thread and namespace, and the parent by `checkpoint_id`.
            checkpoint: The checkpoint.
            metadata: Its metadata; keys of the config's metadata are added as the stock savers do.
            new_versions: The channels that changed, with their new versions.

        Returns:
            The config that names the stored checkpoint.

        Raises:
            CallerError: Something given cannot be stored; nothing was.
            DatabaseError: The database did not store it, or (unavailable) it is not known whether it did.
            StoredDataError: The parent cannot be rebuilt.
            ThreadDeletedError: The thread was deleted, and the config names a checkpoint of what it was.
        """
        call, stored = self._calls().put(config, checkpoint, metadata, new_versions)
        await self._bridge.arun(call)
        return stored

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`aput`, waiting in this thread."""
        call, stored = self._calls().put(config, checkpoint, metadata, new_versions)
        self._bridge.run(call)
        return stored

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores the writes of a task to a checkpoint, which need not be stored yet.

        For an ordinary write the first one for its task and index counts, for a special one (error, interrupt, resume,
        scheduled) the last.

        Args:
            config: Names thread, namespace and checkpoint.
            writes: `(channel, value)` pairs in order.
            task_id: The task.
            task_path: Where the task is in the graph; the writes of a super-step are ordered by it.

        Raises:
            CallerError: Something given cannot be stored; nothing was.
            DatabaseError, ThreadDeletedError: As `aput`.
        """
        call = self._calls().put_writes(config, writes, task_id, task_path)
        if call is not None:
            await self._bridge.arun(call)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`aput_writes`, waiting in this thread."""
        call = self._calls().put_writes(config, writes, task_id, task_path)
        if call is not None:
            self._bridge.run(call)

    # --- loading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint with its pending writes: the one that `checkpoint_id` names, else the newest of the namespace.

        Raises:
            InvalidConfigError: The config names no thread, or an id has a wrong form.
            DatabaseError: The database did not answer.
            StoredDataError: The checkpoint is there but cannot be rebuilt exactly.
        """
        return await self._bridge.arun(self._calls().get_tuple(config))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`aget_tuple`, waiting in this thread."""
        return self._bridge.run(self._calls().get_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - part of the contract
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first (by id, then thread, then namespace), loaded as they are consumed.

        Args:
            config: Names the thread; optionally a namespace and a checkpoint. None lists all threads.
            filter: Only checkpoints whose metadata contains this, as PostgreSQL's `jsonb @>` means it.
            before: Only checkpoints with a smaller id than this config's.
            limit: At most so many; None for all.

        Raises:
            InvalidConfigError: An argument has a wrong form.
            DatabaseError, StoredDataError: As `aget_tuple`.
        """
        pages = self._calls().list(config, filter, before, limit)
        while True:
            tuples = await self._bridge.arun(pages)
            for each in tuples:
                yield each
            if not tuples:
                return

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - part of the contract
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """`alist`, waiting in this thread."""
        pages = self._calls().list(config, filter, before, limit)
        while tuples := self._bridge.run(pages):
            yield from tuples

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What DeltaChannels are rebuilt from at a checkpoint: the seed, and the writes since, oldest first.

        Args:
            config: Names thread and namespace, and the checkpoint (else the newest).
            channels: The channels.

        Raises:
            InvalidConfigError, DatabaseError, StoredDataError: As `aget_tuple`.
        """
        return await self._bridge.arun(self._calls().history(config, channels))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`aget_delta_channel_history`, waiting in this thread."""
        return self._bridge.run(self._calls().history(config, channels))

    # --- maintenance

    async def adelete_thread(self, thread_id: str) -> None:
        """Removes a thread with all namespaces, checkpoints and writes. No such thread: nothing happens.

        A run that still holds a checkpoint of it does not bring it back: its saves raise `ThreadDeletedError`. A save
        whose config names no checkpoint begins the thread anew.
        """
        await self._bridge.arun(self._calls().delete_thread(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """`adelete_thread`, waiting in this thread."""
        self._bridge.run(self._calls().delete_thread(thread_id))

    async def aundelete_thread(self, thread_id: str) -> bool:
        """Lets saves through again that hold a checkpoint of a deleted thread. What was deleted stays gone.

        Returns:
            Whether the thread was known to be deleted; retention forgets that after a while.
        """
        return await self._bridge.arun(self._calls().undelete_thread(thread_id))

    def undelete_thread(self, thread_id: str) -> bool:
        """`aundelete_thread`, waiting in this thread."""
        return self._bridge.run(self._calls().undelete_thread(thread_id))

    async def apin(self, thread_id: str) -> None:
        """Exempts a thread from retention. Deleting and pruning it by name is still possible.

        Raises:
            InvalidConfigError: There is no such thread.
        """
        await self._bridge.arun(self._calls().pin(thread_id, pinned=True))

    def pin(self, thread_id: str) -> None:
        """`apin`, waiting in this thread."""
        self._bridge.run(self._calls().pin(thread_id, pinned=True))

    async def aunpin(self, thread_id: str) -> None:
        """Takes the pin away again. Raises as `apin`."""
        await self._bridge.arun(self._calls().pin(thread_id, pinned=False))

    def unpin(self, thread_id: str) -> None:
        """`aunpin`, waiting in this thread."""
        self._bridge.run(self._calls().pin(thread_id, pinned=False))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Removes the checkpoints of runs, found by `run_id` in their metadata, from all threads and namespaces.

        Checkpoints of other runs rebuild to exactly what they did, also where they build on removed ones.
        """
        await self._bridge.arun(self._calls().delete_for_runs(run_ids))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`adelete_for_runs`, waiting in this thread."""
        self._bridge.run(self._calls().delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread with all namespaces, checkpoints and writes, as of one moment.

        A source that doesn't exist copies nothing. The two threads are independent afterwards.

        Raises:
            InvalidConfigError: Source and target are the same, or the target exists.
        """
        await self._bridge.arun(self._calls().copy_thread(source_thread_id, target_thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`acopy_thread`, waiting in this thread."""
        self._bridge.run(self._calls().copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prunes threads.

        Args:
            thread_ids: The threads. Those that don't exist are passed over.
            strategy: `"keep_latest"` keeps the newest checkpoint of each namespace, in full and with its pending
                writes, for threads with DeltaChannels too; `"delete"` removes the threads.

        Raises:
            TypeError: `thread_ids` is a single string.
            InvalidConfigError: Unknown strategy.
        """
        await self._bridge.arun(self._calls().prune(thread_ids, strategy))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`aprune`, waiting in this thread."""
        self._bridge.run(self._calls().prune(thread_ids, strategy))

    async def aretain(
        self, policy: RetentionPolicy, *, dry_run: bool = False, now: datetime | None = None
    ) -> RetentionReport:
        """Removes what a retention policy does not want to stay, from all threads.

        Every checkpoint that stays is what it was. Runs may go on meanwhile, and several such calls may run at once.
        Threads that cannot be read, or that others hold all the time, are left as they are and reported.

        Args:
            policy: What is to stay.
            dry_run: Remove nothing; the report says what would be removed.
            now: The time that ages are counted to, with a time zone; None for the time of the call.

        Raises:
            InvalidConfigError: An argument has a wrong form.
            DatabaseUnavailableError: The database is away. What was removed until then stays removed.
        """
        return await self._bridge.arun(self._calls().retain(policy, dry_run=dry_run, now=now))

    def retain(self, policy: RetentionPolicy, *, dry_run: bool = False, now: datetime | None = None) -> RetentionReport:
        """`aretain`, waiting in this thread."""
        return self._bridge.run(self._calls().retain(policy, dry_run=dry_run, now=now))

    # --- versions and serializer

    def get_next_version(self, current: Any, channel: None) -> Any:  # noqa: ARG002 - part of the contract
        """The version after `current`, of the same type; integers for new threads.

        The low 32 bits of an integer are random, and so is the fraction of a text, so that two branches of a thread do
        not give the same version to different values.
        """
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{random.random():016}"  # noqa: S311 - not a secret
        if isinstance(current, float):
            return float(int(current) + 1)
        step = 0 if current is None else current >> VERSION_RANDOM_BITS
        return (step + 1) << VERSION_RANDOM_BITS | random.getrandbits(VERSION_RANDOM_BITS)

    def _calls(self) -> Calls:
        codec, cipher = convert.codec_of(self.serde)
        return observed_calls(Calls(codec, cipher, self._memos), self._observer)


async def _setup(engine: Engine) -> None:
    await engine.storage.setup()
