"""The calls: compact threads of a saver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from time import time

from deltastore.connect import DeltaSaver
from deltastore.conversion import validate
from deltastore.core.codec import Codec
from deltastore.core.compacted import CompactedThread, Compaction, CompactionReport
from deltastore.core.frame import Cipher
from deltastore.core.model import ThreadRef
from deltastore.core.retention import RetentionPolicy
from deltastore.engine import Engine
from deltastore.errors import InvalidConfigError, StoredDataError, ThreadBusyError, UnserializableValueError

THREADS_PAGE = 256


async def compact_threads(
    saver: DeltaSaver,
    thread_ids: Iterable[str] | None = None,
    *,
    dry_run: bool = False,
    progress: Callable[[CompactedThread], None] = lambda _: None,
) -> CompactionReport:
    """Re-packs threads in place, one after the other. Safe to repeat, and to stop at any moment: nothing is half done.

    Every checkpoint reads as before, and runs may go on. A thread that is written to while it is read is tried again
    some times, and else left as it is.

    Args:
        saver: Where the threads are. Its serializer's cipher, if there is one, opens and ciphers them.
        thread_ids: Which threads; None for all.
        dry_run: Change nothing; the outcomes say which threads would get smaller, and by how much. As much is computed.
        progress: Told each thread's outcome when it is done.

    Returns:
        What became of the threads. Damaged ones stay as they are.

    Raises:
        InvalidConfigError: A thread id has a wrong form; nothing was done.
        DatabaseError: The database is away; what is compacted already stays so.
    """
    report = CompactionReport()
    if thread_ids is None:
        async for thread in _all(saver):
            _told(report, await saver.acall(_Job(thread, dry_run)), progress)
    else:
        for thread in [validate.thread(each) for each in thread_ids]:
            _told(report, await saver.acall(_Job(thread, dry_run)), progress)
    return report


async def compact_by_policy(
    saver: DeltaSaver,
    policy: RetentionPolicy,
    *,
    dry_run: bool = False,
    now: datetime | None = None,
    progress: Callable[[CompactedThread], None] = lambda _: None,
) -> CompactionReport:
    """Re-packs the threads that a retention policy would delete as a whole: idle ones, say. Else as `compact_threads`.

    Args:
        saver: Where the threads are.
        policy: Which threads; pinned ones are not among them.
        dry_run: Change nothing; the outcomes say which threads would get smaller, and by how much.
        now: The time that ages are counted to, with a time zone; None for the time of the call.
        progress: Told each thread's outcome when it is done; not of those that the policy wants to keep.
    """
    if now is not None and now.tzinfo is None:
        raise InvalidConfigError(f"now must have a time zone, got {now!r}")
    report, now_seconds = CompactionReport(), time() if now is None else now.timestamp()
    for thread in await saver.acall(partial(_candidates, policy, now_seconds)):
        outcome = await saver.acall(_Job(thread, dry_run, policy, now_seconds))
        if outcome.status is not Compaction.KEPT:
            _told(report, outcome, progress)
    return report


def _told(report: CompactionReport, outcome: CompactedThread, progress: Callable[[CompactedThread], None]) -> None:
    report.add(outcome)
    progress(outcome)


@dataclass(frozen=True, slots=True)
class _Job:
    """One thread to be compacted."""

    thread: ThreadRef
    dry_run: bool
    policy: RetentionPolicy | None = None
    now_seconds: float | None = None

    async def __call__(self, engine: Engine, _: Codec, cipher: Cipher | None) -> CompactedThread:
        wanted = None
        if self.policy is not None:
            wanted = engine.retention.choose(self.policy, cipher, now_seconds=self.now_seconds).includes
        try:
            return await engine.repacking.compact(self.thread, cipher, wanted, dry_run=self.dry_run)
        except ThreadBusyError as error:
            return CompactedThread(self.thread.thread_id, Compaction.BUSY, error.message)
        except (StoredDataError, UnserializableValueError) as error:
            return CompactedThread(self.thread.thread_id, Compaction.FAILED, str(error))


async def _candidates(
    policy: RetentionPolicy, now_seconds: float, engine: Engine, _: Codec, cipher: Cipher | None
) -> list[ThreadRef]:
    choice = engine.retention.choose(policy, cipher, now_seconds=now_seconds)
    return [thread async for thread in choice.candidates()]


async def _all(saver: DeltaSaver) -> AsyncIterator[ThreadRef]:
    """All threads, page by page in the order of their keys."""
    page: list[ThreadRef] = []
    while page := await saver.acall(partial(_page, page[-1].key if page else b"")):
        for thread in page:
            yield thread


async def _page(after: bytes, engine: Engine, _: Codec, __: Cipher | None) -> list[ThreadRef]:
    return await engine.storage.list_threads(after, THREADS_PAGE)
