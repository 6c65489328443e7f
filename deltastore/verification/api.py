"""The call: verify threads of a saver, and repair them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from deltastore.connect import DeltaSaver
from deltastore.conversion import validate
from deltastore.core.codec import Codec
from deltastore.core.findings import ThreadFindings
from deltastore.core.frame import Cipher
from deltastore.engine import Engine
from deltastore.errors import InvalidConfigError
from deltastore.verification.report import Report
from deltastore.verification.verifier import Verifier


async def verify_threads(
    saver: DeltaSaver,
    thread_ids: Iterable[str] | None = None,
    *,
    sample: int | None = None,
    progress: Callable[[ThreadFindings], None] = lambda _: None,
) -> Report:
    """Verifies threads: opens every row, walks every chain, reads every value with the saver's serializer.

    Each thread is read as of one moment; saves go on meanwhile. One thread at a time is held in memory, without the
    values of its segments.

    Args:
        saver: Where the threads are.
        thread_ids: Which threads; None for all.
        sample: Only so many, chosen by chance.
        progress: Told each thread's findings when it is done.

    Returns:
        What was found. Threads that do not exist are passed over.

    Raises:
        InvalidConfigError: A thread id or the sample has a wrong form.
        DatabaseError: The database is away or refuses.
    """
    if sample is not None and (type(sample) is not int or sample < 1 or thread_ids is not None):
        raise InvalidConfigError(f"a sample is a number of threads from 1 on, and of all threads; got {sample!r}")
    threads = None if thread_ids is None else [validate.thread(each) for each in thread_ids]

    async def verify(engine: Engine, codec: Codec, cipher: Cipher | None) -> Report:
        report, verifier = Report(), Verifier(engine, codec, cipher)

        async def wanted() -> AsyncIterator[tuple[bytes, str | None]]:
            if threads is None:
                async for key in verifier.keys(sample):
                    yield key, None
            for thread in threads or ():
                yield thread.key, thread.thread_id

        async for key, thread_id in wanted():
            found = await verifier.verify(key, thread_id)
            if found is not None:
                report.add(found)
                progress(found)
        return report

    return await saver.acall(verify)
