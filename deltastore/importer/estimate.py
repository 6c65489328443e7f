"""What a migration would do: everything counted, a sample of threads built but not written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count

from deltastore.conversion import validate
from deltastore.core.model import ThreadRef
from deltastore.importer.builder import Numbers
from deltastore.importer.landing import landing_of
from deltastore.importer.migration import NO_CHECKPOINT, Migration, outcome_of
from deltastore.importer.report import Outcome, Report, Status
from deltastore.importer.source import Node, OpenThread, SkipThread
from deltastore.importer.tree import order_of

SAMPLE_BYTES = 256 * 1024 * 1024
SAMPLE_SECONDS = 30.0


async def estimate(migration: Migration) -> Report:
    """Counts all threads, and builds some of them to see how large they get and how long it takes. Writes nothing.

    Raises:
        DatabaseError: One of the databases is away or refuses.
    """
    report = Report(dry_run=True)
    sampled_bytes = built_bytes = 0
    started, building_seconds = time.monotonic(), 0.0
    async for thread_id in migration.thread_ids():
        wants_sample = sampled_bytes < SAMPLE_BYTES and time.monotonic() - started < SAMPLE_SECONDS
        began = time.monotonic()
        outcome = await outcome_of(thread_id, _look(migration, thread_id, build=wants_sample))
        if outcome.target_bytes:
            building_seconds += time.monotonic() - began
            sampled_bytes += outcome.source_bytes
            built_bytes += outcome.target_bytes
        report.add(outcome)
        migration.progress(outcome)
    if sampled_bytes:
        report.target_bytes = report.source_bytes * built_bytes // sampled_bytes
        report.estimated_seconds = round(report.source_bytes * building_seconds / sampled_bytes, 1)
    return report


async def _look(migration: Migration, thread_id: str, *, build: bool) -> Outcome:
    thread = validate.thread(thread_id)
    async with migration.source.open(thread_id) as opened:
        shape = await opened.shape()
        newer_than = migration.options.newer_than
        if newer_than is not None and (shape.newest or "") <= newer_than:
            return Outcome(thread_id, Status.FILTERED)
        order = order_of(shape.nodes)
        if not order:
            raise SkipThread(NO_CHECKPOINT)
        return Outcome(
            thread_id,
            Status.COUNTED,
            checkpoints=len(order),
            source_bytes=shape.source_bytes,
            target_bytes=await _built_bytes(migration, thread, opened, order) if build else 0,
        )


async def _built_bytes(migration: Migration, thread: ThreadRef, opened: OpenThread, order: Sequence[Node]) -> int:
    """How large a thread gets."""
    numbers = count(1)

    async def take(wanted: int) -> Sequence[int]:
        return [next(numbers) for _ in range(wanted)]

    landing = landing_of(thread, migration.target, order, lambda _: None)
    landing.builder.numbers = Numbers(take)
    async for _ in landing.checkpoints(opened):
        pass
    await landing.orphans(opened)
    return landing.builder.payload_bytes
