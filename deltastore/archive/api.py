"""The calls: move threads of a saver into files, bring them back, and look into a file without a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from time import time

from langgraph.checkpoint.serde.base import SerializerProtocol

from deltastore.archive.archiver import Archiver
from deltastore.archive.files import prove
from deltastore.archive.places import Place, matching, opener
from deltastore.archive.report import Outcome, Report, Status
from deltastore.archive.restoring import Restorer
from deltastore.connect import DeltaSaver
from deltastore.conversion import validate
from deltastore.conversion.convert import codec_of
from deltastore.core.codec import Codec
from deltastore.core.frame import Cipher
from deltastore.core.model import ThreadRef
from deltastore.core.retention import RetentionPolicy
from deltastore.engine import Engine
from deltastore.errors import InvalidConfigError, StoredDataError

Threads = Iterable[str] | AsyncIterable[str]


async def archive_threads(
    saver: DeltaSaver,
    thread_ids: Threads,
    to: str,
    *,
    keep: bool = False,
    dry_run: bool = False,
    progress: Callable[[Outcome], None] = lambda _: None,
) -> Report:
    """Moves threads into files, one for each. Safe to repeat, and to stop at any moment: nothing is lost.

    Args:
        saver: Where the threads are. Its serializer's cipher, if there is one, ciphers the files.
        thread_ids: Which threads.
        to: The folder: `file:///…`, `s3://…`, or whatever else fsspec knows. Made if it is missing, but no bucket is.
        keep: Leave the threads in the database.
        dry_run: Write and remove nothing; the outcomes say which threads would be archived, and into which files.
        progress: Told each thread's outcome when it is done.

    Returns:
        What became of the threads. One that is written to meanwhile stays as it is, and so does one that is damaged.

    Raises:
        InvalidConfigError: The folder cannot be written to; the thread in question is left as it was.
        DatabaseError: The database is away; what is archived already is archived.
    """
    report = Report()
    place = Place(to)
    async for thread_id in _each(thread_ids):
        thread = validate.thread(thread_id)
        outcome = await saver.acall(_Job(thread, place, keep, dry_run))
        report.add(outcome)
        progress(outcome)
    return report


async def archive_by_policy(
    saver: DeltaSaver,
    policy: RetentionPolicy,
    to: str,
    *,
    keep: bool = False,
    dry_run: bool = False,
    now: datetime | None = None,
    progress: Callable[[Outcome], None] = lambda _: None,
) -> Report:
    """Moves the threads into files that a retention policy would delete as a whole. Otherwise as `archive_threads`.

    What the policy would thin out is left alone. Run this before `aretain`, which deletes what is not archived.

    Args:
        saver: Where the threads are.
        policy: Which threads.
        to: The folder.
        keep: Leave the threads in the database.
        dry_run: Write and remove nothing; the outcomes say which threads would be archived, and into which files.
        now: The time that ages are counted to, with a time zone; None for the time of the call.
        progress: Told each thread's outcome when it is done; not of those that the policy wants to keep.
    """
    report, place = Report(), Place(to)
    if now is not None and now.tzinfo is None:
        raise InvalidConfigError(f"now must have a time zone, got {now!r}")
    now_seconds = time() if now is None else now.timestamp()
    for thread in await saver.acall(partial(_candidates, policy, now_seconds)):
        outcome = await saver.acall(_Job(thread, place, keep, dry_run, policy, now_seconds))
        if outcome.status is not Status.KEPT:
            report.add(outcome)
            progress(outcome)
    return report


async def restore_archives(
    saver: DeltaSaver,
    urls: Iterable[str],
    *,
    thread_id: str | None = None,
    replace: bool = False,
    go_on: bool = False,
    progress: Callable[[Outcome], None] = lambda _: None,
) -> Report:
    """Brings archived threads back, each whole or not at all. The files stay.

    Args:
        saver: Where they go. Its serializer's cipher reads the files, and ciphers the threads.
        urls: The files. `*` in an address stands for any part of a name.
        thread_id: What the thread is to be called, if there is one file; by default as it was.
        replace: Replace threads that are there already.
        go_on: Report what is wrong with one file as its outcome, and go on with the others, instead of raising it.
        progress: Told each thread's outcome when it is done.

    Returns:
        What became of them.

    Raises:
        InvalidConfigError: A file cannot be opened, or its thread is there already. Files before it are restored. Or
            one name is given for several threads.
        StoredDataError: A file is damaged or cannot be deciphered; nothing of it was written.
        DatabaseError: The database did not take it; nothing of it was written.
    """
    urls = list(urls)
    if thread_id is not None and (len(urls) > 1 or "*" in "".join(urls)):
        raise InvalidConfigError("one name for several threads", hint="restore one file with --as (thread_id=…)")
    return await _report(urls, lambda url: saver.acall(partial(_restore, url, thread_id, replace)), go_on, progress)


async def check_archives(
    urls: Iterable[str],
    *,
    serde: SerializerProtocol | None = None,
    progress: Callable[[Outcome], None] = lambda _: None,
) -> Report:
    """Reads archives in full, without a database.

    Args:
        urls: The files, as for `restore_archives`.
        serde: The serializer of the threads, if it encrypts.
        progress: Told each file's outcome.

    Returns:
        What became of them: sound, or failed or refused with the reason.

    Raises:
        InvalidConfigError: fsspec is not installed.
    """
    cipher = None if serde is None else codec_of(serde)[1]
    return await _report(urls, partial(_check, cipher), go_on=True, progress=progress)


async def open_archive(url: str, *, serde: SerializerProtocol | None = None) -> DeltaSaver:
    """An archive as a saver in memory, with the thread under its own name. What is put into it is not kept.

    Args:
        url: The file.
        serde: The serializer of the thread, if it is not the default one.

    Raises:
        InvalidConfigError: The file cannot be opened.
        StoredDataError: It is damaged or cannot be deciphered.
    """
    saver = DeltaSaver.in_memory(serde=serde)
    await restore_archives(saver, [url])
    return saver


def check_target(to: str, *, make_folder: bool = False) -> None:
    """Looks whether threads can be archived there, before anything is done: a local folder must be there.

    Args:
        to: The folder, as for `archive_threads`. Places other than local folders show it with the first file.
        make_folder: It may be missing, if it can be made.

    Raises:
        InvalidConfigError: The folder is missing, or cannot be written to.
    """
    Place(to).check(make=make_folder)


async def _report(
    urls: Iterable[str],
    job: Callable[[str], Awaitable[Outcome]],
    go_on: bool,
    progress: Callable[[Outcome], None],
) -> Report:
    """Does the job with each file, and says what became of it."""
    opener()  # what is missing for all files is no matter of one
    report = Report()
    for url in urls:
        async for outcome in _outcomes(url, job, go_on):
            report.add(outcome)
            progress(outcome)
    return report


async def _outcomes(url: str, job: Callable[[str], Awaitable[Outcome]], go_on: bool) -> AsyncIterator[Outcome]:
    try:
        files = await asyncio.to_thread(matching, url)
    except InvalidConfigError as error:
        if not go_on:
            raise
        yield _failed(url, error)
        return
    for file in files:
        try:
            yield await job(file)
        except (InvalidConfigError, StoredDataError) as error:
            if not go_on:
                raise
            yield _failed(file, error)


async def _check(cipher: Cipher | None, url: str) -> Outcome:
    header = await asyncio.to_thread(prove, url, cipher)
    return Outcome(header.thread_id, Status.SOUND, file=url, checkpoints=header.checkpoints)


def _failed(url: str, error: InvalidConfigError | StoredDataError) -> Outcome:
    status = Status.FAILED if isinstance(error, StoredDataError) else Status.REFUSED
    return Outcome("", status, str(error), file=url)


@dataclass(frozen=True, slots=True)
class _Job:
    """One thread to be archived."""

    thread: ThreadRef
    place: Place
    keep: bool
    dry_run: bool
    policy: RetentionPolicy | None = None
    now_seconds: float | None = None

    async def __call__(self, engine: Engine, _: Codec, cipher: Cipher | None) -> Outcome:
        archiver = Archiver(engine.storage, self.place, cipher, self.keep, self.dry_run)
        if self.policy is None:
            outcome = await archiver.archive(self.thread)
        else:
            choice = engine.retention.choose(self.policy, cipher, now_seconds=self.now_seconds)
            outcome = await archiver.archive(self.thread, choice.includes)
        engine.cache.forget(self.thread.key)
        return outcome


async def _candidates(
    policy: RetentionPolicy, now_seconds: float, engine: Engine, _: Codec, cipher: Cipher | None
) -> list[ThreadRef]:
    choice = engine.retention.choose(policy, cipher, now_seconds=now_seconds)
    return [thread async for thread in choice.candidates()]


async def _restore(
    url: str, thread_id: str | None, replace: bool, engine: Engine, _: Codec, cipher: Cipher | None
) -> Outcome:
    outcome = await Restorer(engine.storage, cipher, replace).restore(url, thread_id)
    engine.cache.forget(validate.thread(outcome.thread_id).key)
    return outcome


async def _each(thread_ids: Threads) -> AsyncIterable[str]:
    if isinstance(thread_ids, AsyncIterable):
        async for thread_id in thread_ids:
            yield thread_id
    else:
        for thread_id in thread_ids:
            yield thread_id
