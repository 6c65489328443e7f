"""The call: verify threads of a saver, and repair them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from deltastore.connect import DeltaSaver
from deltastore.conversion import validate
from deltastore.core.codec import Codec
from deltastore.core.frame import Cipher
from deltastore.core.model import ThreadRef
from deltastore.engine import Engine
from deltastore.errors import InvalidConfigError
from deltastore.verification.report import Outcome, Report, Status
from deltastore.verification.verifier import Verifier


async def verify_threads(
    saver: DeltaSaver,
    thread_ids: Iterable[str] | None = None,
    *,
    sample: int | None = None,
    repair: bool = False,
    planned: Callable[[Outcome], None] = lambda _: None,
    progress: Callable[[Outcome], None] = lambda _: None,
) -> Report:
    """Verifies threads: opens every row, walks every chain, reads every value with the saver's serializer.

    Each thread is read as of one moment; saves go on meanwhile. One thread at a time is held in memory, without the
    values of its segments. The report says how each damaged thread would be repaired; `repair` does it, each thread in
    one transaction under its lock, and verifies it again. A repair never destroys: what is beyond help is moved to the
    table `delta_quarantine`.

    Args:
        saver: Where the threads are.
        thread_ids: Which threads; None for all.
        sample: Only so many, chosen by chance.
        repair: Repair what can be repaired.
        planned: Told what was found in a damaged thread, and what is going to be done, before it is done.
        progress: Told each thread's outcome when it is done.

    Returns:
        What was found and done.

    Raises:
        InvalidConfigError: A thread id or the sample has a wrong form, or nothing is stored of a thread that is named;
            then nothing was done.
        DatabaseError: The database is away or refuses; threads that are repaired already stay so.
    """
    if sample is not None and (type(sample) is not int or sample < 1 or thread_ids is not None):
        raise InvalidConfigError(f"a sample is a number of threads from 1 on, and of all threads; got {sample!r}")
    threads = None if thread_ids is None else [validate.thread(each) for each in thread_ids]

    async def verify(engine: Engine, codec: Codec, cipher: Cipher | None) -> Report:
        report, verifier = Report(), Verifier(engine, codec, cipher)
        for thread in threads or ():
            if not await verifier.is_known(thread.key):
                raise InvalidConfigError(
                    f"there is no thread {thread.thread_id!r}", hint="deltastore threads lists them"
                )
        async for key, thread_id in _wanted(verifier, threads, sample):
            outcome = await _look(verifier, key, thread_id)
            if outcome is None:
                continue
            if repair and outcome.plan.repairs is not None:
                planned(outcome)
                outcome = await _repaired(verifier, key, thread_id, outcome)
            report.add(outcome)
            progress(outcome)
        return report

    return await saver.acall(verify)


async def _wanted(
    verifier: Verifier, threads: Sequence[ThreadRef] | None, sample: int | None
) -> AsyncIterator[tuple[bytes, str | None]]:
    if threads is None:
        async for key in verifier.keys(sample):
            yield key, None
    for thread in threads or ():
        yield thread.key, thread.thread_id


async def _look(verifier: Verifier, key: bytes, thread_id: str | None) -> Outcome | None:
    looked = await verifier.verify(key, thread_id)
    if looked is None:
        return None
    found, plan = looked
    if found.is_sound:
        return Outcome(Status.SOUND, found)
    return Outcome(Status.LEFT if plan.repairs is None else Status.DAMAGED, found, plan)


async def _repaired(verifier: Verifier, key: bytes, thread_id: str | None, outcome: Outcome) -> Outcome:
    if not await verifier.repair(key, thread_id, outcome.plan):
        return Outcome(Status.CHANGED, outcome.found, outcome.plan)
    looked = await verifier.verify(key, thread_id)
    return Outcome(Status.REPAIRED, outcome.found, outcome.plan, None if looked is None else looked[0])
