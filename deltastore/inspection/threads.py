"""Which threads there are, and which namespaces a thread has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

from deltastore.conversion import validate
from deltastore.core import metadata as metadatas
from deltastore.core.codec import Codec, EncodedValue, ValueKind
from deltastore.core.frame import Cipher
from deltastore.core.identifiers import unpack_checkpoint_id
from deltastore.core.model import ThreadRef
from deltastore.core.overview import NamespaceEntry, ThreadEntry, ThreadsCursor, ThreadsQuery
from deltastore.engine import Engine
from deltastore.errors import InvalidConfigError
from deltastore.inspection.moments import moment_of
from deltastore.inspection.records import NamespaceSummary, ThreadSummary
from deltastore.inspection.values import Unopened, read_value
from deltastore.langgraph.saver import EngineSaver

FIRST_PAGE, PAGE = 100, 2000
"""Each page looks at all threads, so pages after the first are large."""


async def threads(
    saver: EngineSaver,
    *,
    filter: Mapping[str, Any] | None = None,  # noqa: A002 - as in LangGraph's list
    after: str | None = None,
    limit: int | None = None,
    pinned: bool = False,
) -> AsyncIterator[ThreadSummary]:
    """The threads, that with the newest checkpoint first. No state is loaded.

    Args:
        saver: An open saver.
        filter: Only threads with a checkpoint whose metadata contains this, as PostgreSQL's `jsonb @>` means it.
            `step` and `source` belong to single checkpoints and cannot be asked for.
        after: Continue after the thread with this `cursor`.
        limit: At most so many; None for all.
        pinned: Only those that are exempt from retention.

    Raises:
        InvalidConfigError: An argument has a wrong form.
        DatabaseError: The database is away, or not set up.
        StoredDataError: The row of a newest checkpoint cannot be read.
    """
    conditions, left = validate.filter_of(filter), validate.limit(limit)
    if refused := sorted(metadatas.VOLATILE & conditions.keys()):
        raise InvalidConfigError(
            f"threads cannot be found by {' and '.join(refused)}", hint="look for checkpoints with the saver's alist"
        )
    document = metadatas.searchable(conditions) if conditions else None
    cursor, page = None if after is None else _cursor(after), FIRST_PAGE
    while left is None or left > 0:
        query = ThreadsQuery(document, cursor, page if left is None else min(left, page), pinned)
        entries = await saver.acall(partial(_page, query=query))
        for summary in entries:
            yield summary
        if len(entries) < query.limit:
            return
        left = None if left is None else left - len(entries)
        cursor, page = _cursor(entries[-1].cursor), PAGE


async def namespaces(
    saver: EngineSaver, thread_id: str, *, limit: int | None = None
) -> AsyncIterator[NamespaceSummary]:
    """The namespaces of a thread in the order of their names, the root namespace (`""`) first.

    Args:
        saver: An open saver.
        thread_id: The thread.
        limit: At most so many; None for all.

    Raises:
        InvalidConfigError: An argument has a wrong form.
        DatabaseError: The database is away, or not set up.
    """
    key, left = validate.thread(thread_id).key, validate.limit(limit)
    after: str | None = None
    while left is None or left > 0:
        size = PAGE if left is None else min(left, PAGE)

        async def call(engine: Engine, *_: object, after: str | None = after, size: int = size) -> list[NamespaceEntry]:
            return await engine.storage.namespaces(key, after, size)

        entries = await saver.acall(call)
        for entry in entries:
            checkpoint_id = unpack_checkpoint_id(entry.newest)
            yield NamespaceSummary(entry.namespace, checkpoint_id, moment_of(checkpoint_id))
        if len(entries) < size:
            return
        after, left = entries[-1].namespace, None if left is None else left - size


async def find_thread(saver: EngineSaver, thread_id: str) -> ThreadRef:
    """The thread.

    Raises:
        InvalidConfigError: The id has a wrong form, or there is no such thread.
        DatabaseError: The database is away, or not set up.
    """
    thread = validate.thread(thread_id)

    async def call(engine: Engine, *_: object) -> bool:
        return await engine.storage.load_chains(thread.key, "", []) is not None

    if not await saver.acall(call):
        raise InvalidConfigError(f"there is no thread {thread.thread_id!r}", hint="deltastore threads lists them")
    return thread


def shared_metadata(codec: Codec, shared: bytes, where: str) -> dict[str, Any]:
    """The shared part of a checkpoint's metadata; what cannot be decoded is `Unopened`."""
    found = read_value(codec, EncodedValue(ValueKind.OPAQUE, [shared]), f"{where}, metadata")
    return {"": found} if isinstance(found, Unopened) else dict(found)


async def _page(engine: Engine, codec: Codec, cipher: Cipher | None, *, query: ThreadsQuery) -> list[ThreadSummary]:
    return [_summary(engine, codec, cipher, entry) for entry in await engine.storage.newest_threads(query)]


def _summary(engine: Engine, codec: Codec, cipher: Cipher | None, entry: ThreadEntry) -> ThreadSummary:
    cursor = f"{entry.newest.hex()}.{entry.thread.key.hex()}"
    if entry.head is None:
        return ThreadSummary(entry.thread.thread_id, None, None, None, None, entry.created_at, entry.pinned, {}, cursor)
    checkpoint_id = unpack_checkpoint_id(entry.head.row.checkpoint_id)
    volatile, shared = engine.reader.metadata(entry.head, cipher)
    known = metadatas.join(volatile, {})
    return ThreadSummary(
        entry.thread.thread_id,
        checkpoint_id,
        known.get("step"),
        known.get("source"),
        moment_of(checkpoint_id),
        entry.created_at,
        entry.pinned,
        shared_metadata(codec, shared, f"thread {entry.thread.thread_id!r}"),
        cursor,
    )


def _cursor(text: str) -> ThreadsCursor:
    newest, dot, key = text.partition(".")
    try:
        if dot:
            return ThreadsCursor(bytes.fromhex(newest), bytes.fromhex(key))
    except ValueError:
        pass
    raise InvalidConfigError(f"{text[:40]!r} is no place in a list of threads", hint="take the cursor of a thread")
