"""The calls: count a database, weigh a thread."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from dataclasses import replace

from deltastore.connect import DeltaSaver
from deltastore.conversion import validate
from deltastore.core.codec import Codec
from deltastore.core.frame import Cipher
from deltastore.core.identifiers import THREAD_KEY_BYTES
from deltastore.core.model import ThreadRef
from deltastore.core.statistics import (
    DAY_SECONDS,
    Counts,
    DatabaseStatistics,
    Sample,
    ThreadWeight,
    earliest_key,
)
from deltastore.core.weighing import Weighing
from deltastore.engine import Engine
from deltastore.errors import InvalidConfigError, StoredDataError

SAMPLE_THREADS = 20
DAYS_MAX = 3650


async def database_statistics(
    saver: DeltaSaver, *, days: int = 7, limit: int = 10, sample: int = SAMPLE_THREADS
) -> DatabaseStatistics:
    """Counts a database.

    The database counts rows and payloads by itself, in one pass over its tables. What it cannot know (compression, what
    the stock saver would have stored, unbounded channels) is computed from a few threads chosen by chance.

    Args:
        saver: Where the threads are.
        days: Growth is told for so many days back, today included (UTC).
        limit: How many of the largest and of the fastest-growing threads are named.
        sample: So many threads are read; 0 for none.

    Raises:
        InvalidConfigError: A number is out of range.
        DatabaseError: The database is away or refuses.
    """
    _check("days", days, 1, DAYS_MAX)
    _check("limit", limit, 0, 10_000)
    _check("sample", sample, 0, 1_000_000)
    bounds = _days(days)

    async def call(engine: Engine, _: Codec, cipher: Cipher | None) -> DatabaseStatistics:
        counts = await engine.storage.count(bounds, limit)
        weights = []
        for thread in await _chosen(engine, sample):
            try:
                weight = await _weigh(engine, thread, cipher)
            except StoredDataError:
                continue
            if weight is not None:
                weights.append(weight)
        return DatabaseStatistics(counts, _sample_of(weights, counts))

    return await saver.acall(call)


async def thread_statistics(saver: DeltaSaver, thread_id: str, *, days: int = 7) -> ThreadWeight | None:
    """Weighs a thread: by kind of row, and each channel. Reads all of it, as of one moment; decodes no value.

    Args:
        saver: Where the thread is.
        thread_id: The thread.
        days: Growth is told for so many days back, today included (UTC).

    Returns:
        The weights, or None if there is no such thread.

    Raises:
        InvalidConfigError: The id or the number has a wrong form.
        DatabaseError: The database is away or refuses.
        StoredDataError: The thread is damaged: `deltastore.verification` says how.
    """
    thread = validate.thread(thread_id)
    _check("days", days, 1, DAYS_MAX)
    bounds = _days(days)

    async def call(engine: Engine, _: Codec, cipher: Cipher | None) -> ThreadWeight | None:
        weight = await _weigh(engine, thread, cipher)
        return weight and replace(weight, days=await engine.storage.count_days(thread.key, bounds))

    return await saver.acall(call)


async def _weigh(engine: Engine, thread: ThreadRef, cipher: Cipher | None) -> ThreadWeight | None:
    async with engine.storage.survey(thread.key) as survey:
        rows = await survey.rows()
        if rows.is_empty:
            return None
        weighing = Weighing(rows, thread, cipher, engine.options.ignored_channels)
        for batch in weighing.batches():
            payloads = await survey.payloads(batch)
            await asyncio.to_thread(weighing.take, payloads)
    return await asyncio.to_thread(weighing.finish)


async def _chosen(engine: Engine, count: int) -> list[ThreadRef]:
    """Threads by chance: keys are digests, so those behind a random key are as random as any."""
    if count == 0:
        return []
    start = secrets.token_bytes(THREAD_KEY_BYTES)
    found = await engine.storage.list_threads(start, count)
    if len(found) < count:
        more = await engine.storage.list_threads(b"", count - len(found))
        found += [thread for thread in more if thread.key <= start]
    return found


def _sample_of(weights: list[ThreadWeight], counts: Counts) -> Sample:
    stored_bytes = sum(weight.payload_bytes for weight in weights)
    if not stored_bytes:
        return Sample()
    plain_bytes = sum(sum(weight.plain_bytes.values()) for weight in weights)
    stock_bytes = sum(weight.stock_bytes for weight in weights)
    unbounded = Counter((each.namespace, each.channel) for weight in weights for each in weight.unbounded)
    return Sample(
        len(weights),
        round(plain_bytes / stored_bytes, 2),
        stock_bytes * counts.payload_bytes // stored_bytes,
        tuple((*channel, threads) for channel, threads in unbounded.most_common()),
    )


def _days(count: int) -> list[tuple[int, bytes]]:
    """Beginnings of days in UTC, the oldest first, with the first keys that a checkpoint of that day can have."""
    today = int(time.time()) // DAY_SECONDS
    return [(day * DAY_SECONDS, earliest_key(day * DAY_SECONDS)) for day in range(today - count + 1, today + 1)]


def _check(name: str, value: int, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InvalidConfigError(f"{name} must be an integer from {least} to {most}, got {value!r}")
