"""Archives in S3, as a user reaches it: over HTTP, with the endpoint and the keys in the environment."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec.config import conf
from s3fs import S3FileSystem

from deltastore import DeltaSaver, InvalidConfigError
from deltastore.archive import (
    Outcome,
    Status,
    archive_threads,
    check_archives,
    open_archive,
    read_header,
    restore_archives,
)
from deltastore.archive.files import prove
from deltastore.archive.places import matching
from deltastore.core import archive as layout
from tests.archive.rows import rows_of
from tests.archive.s3 import LISTED_AT_ONCE, Bucket, environment, is_of_s3, line_to, s3_server, without_s3
from tests.faults.stories import Story, assert_reads_as, config_of

BLOCK_BYTES = 5 * 2**20
"""The smallest part of an upload in parts."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket; the environment says how to reach it, and that an attempt is enough."""
    for name in filter(is_of_s3, list(os.environ)):
        monkeypatch.delenv(name)
    reach(endpoint, monkeypatch)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(S3FileSystem, "retries", 1)
    bucket = Bucket(endpoint, f"bucket-{uuid4().hex}")
    bucket.client.create_bucket(Bucket=bucket.name)
    yield bucket
    S3FileSystem.clear_instance_cache()


def reach(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on S3 is there."""
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()


@pytest.fixture
async def stored(database_dsn: str) -> AsyncIterator[DeltaSaver]:
    """A saver with nothing in it, on PostgreSQL."""
    async with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
        yield saver


async def archive(saver: DeltaSaver, url: str) -> Outcome:
    report = await archive_threads(saver, ["story"], url)
    return report.outcomes[0]


async def test_there_and_back(saver: DeltaSaver, bucket: Bucket) -> None:
    told = Story(saver, seed=5, words_max=1500)
    await told.grow(12)
    before = await rows_of(saver, "story")
    outcome = await archive(saver, bucket.url)
    assert outcome.status is Status.ARCHIVED
    assert bucket.archives() == [outcome.file]
    assert await rows_of(saver, "story") is None
    assert read_header(outcome.file).thread_id == "story"
    opened = await open_archive(outcome.file)
    await restore_archives(saver, [outcome.file])
    assert await rows_of(saver, "story") == before
    for step in told.steps:
        await assert_reads_as(opened, step)
        await assert_reads_as(saver, step)
    assert bucket.archives() == [outcome.file]


async def test_a_file_that_is_not_what_was_written_keeps_its_thread(
    saver: DeltaSaver, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Story(saver)
    await told.grow(3)

    def proving(url: str, *given: Any) -> Any:
        [key] = bucket.keys()
        data = bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read()
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=data[:-1] + bytes([data[-1] ^ 1]))
        return prove(url, *given)

    monkeypatch.setattr("deltastore.archive.archiver.prove", proving)
    outcome = await archive(saver, bucket.url)
    assert outcome.status is Status.FAILED
    assert "is damaged" in outcome.reason
    assert bucket.keys() == []
    for step in told.steps:
        await assert_reads_as(saver, step)


async def test_places_that_refuse(saver: DeltaSaver, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Story(saver)
    await told.grow(3)
    before = await rows_of(saver, "story")

    async def refused(url: str, *words: str) -> None:
        with pytest.raises(InvalidConfigError) as found:
            await archive(saver, url)
        for word in (url, "still in the database", *words):
            assert word in str(found.value)
        assert await rows_of(saver, "story") == before

    await refused("s3://no-such-bucket/threads", "FileNotFoundError: The specified bucket does not exist")
    assert [each["Name"] for each in bucket.client.list_buckets()["Buckets"] if each["Name"].startswith("no-")] == []
    await refused("s3://No_Bucket At All/threads", "Invalid bucket name")
    bucket.deny("PutObject")
    await refused(bucket.url, "PermissionError")
    assert bucket.keys() == []
    bucket.deny("GetObject")
    with pytest.raises(InvalidConfigError, match="cannot be read; PermissionError"):
        await archive(saver, bucket.url)
    assert await rows_of(saver, "story") == before
    bucket.allow()
    assert bucket.keys() == []
    reach("http://127.0.0.1:9", monkeypatch)
    await refused(bucket.url, 'Could not connect to the endpoint URL: "http://127.0.0.1:9/')
    with pytest.raises(InvalidConfigError, match=r"nothing\.deltastore cannot be read"):
        await restore_archives(saver, [f"{bucket.url}/nothing.deltastore"])
    reach(bucket.endpoint, monkeypatch)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nowhere")
    S3FileSystem.clear_instance_cache()
    await refused(bucket.url, "NoCredentialsError")
    with pytest.raises(InvalidConfigError, match=r"nothing\.deltastore cannot be read"):
        await restore_archives(saver, [f"{bucket.url}/nothing.deltastore"])


async def test_a_line_that_breaks_at_any_point(
    stored: DeltaSaver, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is served by the loop of the saver, so this also finds calls that hold the loop up."""
    told = Story(stored)
    await told.grow(4)
    before = await rows_of(stored, "story")
    results: list[bool] = []
    async with line_to(bucket.endpoint) as line:
        reach(line.endpoint, monkeypatch)
        assert (await archive(stored, bucket.url)).status is Status.ARCHIVED
        passed = line.passed
        await restore_archives(stored, bucket.archives())
        for at in [at for start, end in pairwise(passed) for at in ((start + end) // 2, end)]:
            bucket.clear()
            line.mend(at)
            try:
                results.append((await archive(stored, bucket.url)).status is Status.ARCHIVED)
            except InvalidConfigError:
                results.append(False)
                assert await rows_of(stored, "story") == before
            line.mend(float("inf"))
            report = await check_archives(bucket.archives())
            assert {outcome.status for outcome in report.outcomes} <= {Status.SOUND}
            if results[-1]:
                assert await rows_of(stored, "story") is None
                await restore_archives(stored, bucket.archives())
                assert await rows_of(stored, "story") == before
    assert not results[0]
    assert results.count(False) > len(results) // 2
    for step in told.steps:
        await assert_reads_as(stored, step)


async def large_in_parts(stored: DeltaSaver, monkeypatch: pytest.MonkeyPatch) -> Story:
    """A thread whose archive is larger than what is uploaded at once."""
    monkeypatch.setattr(layout, "LEVEL", 1)
    monkeypatch.setitem(conf, "s3", {"default_block_size": BLOCK_BYTES})
    told = Story(stored)
    await told.grow(2)
    large = random.Random(1).randbytes(2 * BLOCK_BYTES)
    await stored.aput_writes(told.steps[-1].config, [("text", large)], "large")
    told.steps[-1].pending.append(("large", "text", large))
    return told


async def test_a_line_that_breaks_in_the_middle_of_a_large_upload(
    stored: DeltaSaver, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await large_in_parts(stored, monkeypatch)
    async with line_to(bucket.endpoint) as line:
        reach(line.endpoint, monkeypatch)
        for at in (BLOCK_BYTES // 2, 3 * BLOCK_BYTES // 2, 2 * BLOCK_BYTES + 2000):
            line.mend(at)
            with pytest.raises(InvalidConfigError, match="cannot be written to"):
                await archive(stored, bucket.url)
            assert bucket.keys() == []
            for step in told.steps:
                await assert_reads_as(stored, step)
        line.mend(float("inf"))
        outcome = await archive(stored, bucket.url)
    assert outcome.status is Status.ARCHIVED
    assert outcome.file_bytes > 2 * BLOCK_BYTES
    reach(bucket.endpoint, monkeypatch)
    await restore_archives(stored, bucket.archives())
    for step in told.steps:
        await assert_reads_as(stored, step)


async def test_an_upload_in_parts_is_given_up_when_it_fails(
    stored: DeltaSaver, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of one is not listed, but paid for."""
    await large_in_parts(stored, monkeypatch)
    began = []

    def failing(*_: Any) -> bytes:
        began.extend(bucket.client.list_multipart_uploads(Bucket=bucket.name)["Uploads"])
        raise MemoryError

    monkeypatch.setattr(layout.ArchiveWriter, "end", failing)
    with pytest.raises(MemoryError):
        await archive(stored, bucket.url)
    assert len(began) == 1
    assert "Uploads" not in bucket.client.list_multipart_uploads(Bucket=bucket.name)
    assert bucket.keys() == []


async def test_many_archives(saver: DeltaSaver, bucket: Bucket) -> None:
    stories = [Story(saver, f"thread {number}", seed=number) for number in range(12)]
    assert len(stories) > 2 * LISTED_AT_ONCE
    for story in stories:
        await story.grow(2)
    report = await archive_threads(saver, [story.thread_id for story in stories], bucket.url)
    files = sorted(outcome.file for outcome in report.outcomes)
    assert matching(f"{bucket.url}/*.deltastore") == files
    client = bucket.client
    client.copy_object(Bucket=bucket.name, Key="threads/new.deltastore", CopySource=files[0].removeprefix("s3://"))
    assert matching(f"{bucket.url}/*.deltastore") == sorted([*files, f"{bucket.url}/new.deltastore"])
    client.delete_object(Bucket=bucket.name, Key="threads/new.deltastore")
    report = await restore_archives(saver, [f"{bucket.url}/thread-1*.deltastore"])
    assert sorted(outcome.thread_id for outcome in report.outcomes) == ["thread 1", "thread 10", "thread 11"]
    report = await restore_archives(saver, [f"{bucket.url}/*.deltastore", f"{bucket.url}/x*"], go_on=True)
    assert report.counts == {Status.RESTORED: 9, Status.REFUSED: 4}
    assert report.outcomes[-1].reason == f"no file matches {bucket.url}/x*"
    for step in [step for story in stories for step in story.steps]:
        await assert_reads_as(saver, step)
    with pytest.raises(InvalidConfigError, match="one name for several threads"):
        await restore_archives(saver, [f"{bucket.url}/*.deltastore"], thread_id="all", replace=True)


async def test_the_command_with_each_way_to_say_where_s3_is(database_dsn: str, bucket: Bucket, tmp_path: Path) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        told = Story(saver)
        await told.grow(3)

        def command(*arguments: str, **given: str) -> str:
            ended = subprocess.run(
                [sys.executable, "-m", "deltastore.cli", *arguments],
                env={**without_s3(), "HOME": str(tmp_path), **given},
                capture_output=True,
                text=True,
                check=False,
            )
            assert (ended.returncode, ended.stderr) == (0, "")
            return ended.stdout

        printed = command("archive", "story", "--to", bucket.url, "--dsn", database_dsn, **environment(bucket.endpoint))
        assert printed.startswith(f"archived  story: 3 checkpoints, {bucket.url}/story.")
        keys = environment(bucket.endpoint)
        printed = command(
            *("restore", "--to", database_dsn, f"{bucket.url}/*.deltastore"),
            FSSPEC_S3_ENDPOINT_URL=bucket.endpoint,
            FSSPEC_S3_KEY=keys["AWS_ACCESS_KEY_ID"],
            FSSPEC_S3_SECRET=keys["AWS_SECRET_ACCESS_KEY"],
        )
        assert printed.startswith(f"restored  story: 3 checkpoints, {bucket.url}/story.")
        folder = tmp_path / ".config" / "fsspec"
        folder.mkdir(parents=True)
        configured = {"endpoint_url": bucket.endpoint, "key": "archiver", "secret": "secret"}
        (folder / "conf.json").write_text(json.dumps({"s3": configured}), encoding="utf-8")
        [file] = bucket.archives()
        assert json.loads(command("show", "--archive", file, "--json"))["checkpoint_id"] == told.steps[-1].id
        for step in told.steps:
            await assert_reads_as(saver, step)
        assert await saver.aget_tuple(config_of("story")) is not None
