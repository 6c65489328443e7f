"""Savers that do not do what they should, as a user's own might not. Factories for `--target`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

DROPPED_EVERY = 7


class DropsWrites(AsyncPostgresSaver):
    """Acknowledges every seventh put_writes without storing it."""

    calls = 0

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.calls += 1
        if self.calls % DROPPED_EVERY:
            await super().aput_writes(config, writes, task_id, task_path)


class DropsCheckpoints(AsyncPostgresSaver):
    """Acknowledges every seventh put without storing it."""

    calls = 0

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.calls += 1
        if self.calls % DROPPED_EVERY:
            return await super().aput(config, checkpoint, metadata, new_versions)
        return {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}


class SwapsMetadata(AsyncPostgresSaver):
    """Stores every seventh checkpoint with the metadata of the one before."""

    calls = 0
    last: Any = None

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.calls += 1
        stored, self.last = metadata if self.calls % DROPPED_EVERY else self.last, metadata
        return await super().aput(config, checkpoint, stored, new_versions)


class SwapsParents(AsyncPostgresSaver):
    """Stores every seventh checkpoint as a child of its grandparent."""

    calls = 0
    last: Any = None

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.calls += 1
        parent, self.last = config if self.calls % DROPPED_EVERY else self.last, config
        return await super().aput(parent, checkpoint, metadata, new_versions)


class LosesVersions(AsyncPostgresSaver):
    """Loads checkpoints by id without what their nodes have seen."""

    async def aget_tuple(self, config: Any) -> Any:
        found = await super().aget_tuple(config)
        if found is None or "checkpoint_id" not in config["configurable"]:
            return found
        return found._replace(checkpoint={**found.checkpoint, "versions_seen": {}})


class ListsLess(AsyncPostgresSaver):
    """Leaves every seventh checkpoint of a thread out of its history."""

    async def alist(self, config: Any, **rest: Any) -> Any:
        async for item in super().alist(config, **rest):
            if (item.metadata["step"] + 2) % DROPPED_EVERY:
                yield item


class ListsBackwards(AsyncPostgresSaver):
    """Lists a history oldest first."""

    async def alist(self, config: Any, **rest: Any) -> Any:
        for item in reversed([item async for item in super().alist(config, **rest)]):
            yield item


class Refuses(AsyncPostgresSaver):
    """Fails at the twentieth put, as on a full disk."""

    calls = 0

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.calls += 1
        if self.calls == 20:
            raise OSError(28, "No space left on device")
        return await super().aput(config, checkpoint, metadata, new_versions)


@asynccontextmanager
async def _opened(kind: type[AsyncPostgresSaver], dsn: str) -> AsyncIterator[AsyncPostgresSaver]:
    settings: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(dsn, min_size=1, max_size=4, kwargs=settings, open=False)
    async with pool:
        saver = kind(pool)
        await saver.setup()
        yield saver


def drops_writes(dsn: str) -> Any:
    return _opened(DropsWrites, dsn)


def drops_checkpoints(dsn: str) -> Any:
    return _opened(DropsCheckpoints, dsn)


def swaps_metadata(dsn: str) -> Any:
    return _opened(SwapsMetadata, dsn)


def swaps_parents(dsn: str) -> Any:
    return _opened(SwapsParents, dsn)


def loses_versions(dsn: str) -> Any:
    return _opened(LosesVersions, dsn)


def lists_less(dsn: str) -> Any:
    return _opened(ListsLess, dsn)


def lists_backwards(dsn: str) -> Any:
    return _opened(ListsBackwards, dsn)


def refuses(dsn: str) -> Any:
    return _opened(Refuses, dsn)


@asynccontextmanager
async def no_saver(dsn: str) -> AsyncIterator[Any]:
    yield object()


not_callable = 3
