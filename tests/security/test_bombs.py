"""Stored rows that lie about their size: refused before memory is allocated, by every call that meets them."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest
from zstandard import FORMAT_ZSTD1_MAGICLESS, ZstdCompressionParameters, ZstdCompressor

from deltastore import CorruptPayloadError, DeltaSaver
from deltastore.core.compress import Codec
from deltastore.core.frame import FORMAT_VERSION, _checksum, _encode_length
from deltastore.core.model import CheckpointRow, SegmentKind
from deltastore.core.payload import checkpoint_binding, metadata_binding, segment_binding
from tests.faults.stories import Story, config_of

GROWTH_BYTES_MAX = 200 * 2**20


def frame_of(plain: bytes) -> bytes:
    parameters = ZstdCompressionParameters(
        format=FORMAT_ZSTD1_MAGICLESS, compression_level=3, write_content_size=False, write_checksum=False
    )
    return ZstdCompressor(compression_params=parameters).compress(plain)


def payload(declared_bytes: int, body: bytes, associated: bytes, codec: Codec = Codec.ZSTD) -> bytes:
    """A payload whose checksum is right, whatever else it says."""
    unchecked = bytes((0xD0 | FORMAT_VERSION, codec)) + _encode_length(declared_bytes) + body
    return unchecked + _checksum(unchecked, associated)


LIES: dict[str, Callable[[bytes], bytes]] = {
    "declares 10 GB": lambda associated: payload(10**10, frame_of(bytes(1000)), associated),
    "declares 1 GB for a little": lambda associated: payload(2**30 - 1, frame_of(bytes(1000)), associated),
    "gives 500 MB for a little": lambda associated: payload(1000, frame_of(bytes(500 * 2**20)), associated),
    "declares 500 MB, gives 600": lambda associated: payload(500 * 2**20, frame_of(bytes(600 * 2**20)), associated),
    "is no frame": lambda associated: payload(10**9, bytes(10_000), associated),
    "is stored but declares more": lambda associated: payload(10**9, b"abc", associated, Codec.STORED),
}
CALLS: dict[str, Callable[[DeltaSaver, Story], Any]] = {
    "aget_tuple": lambda saver, story: saver.aget_tuple(config_of("story")),
    "alist": lambda saver, story: listed(saver),
    "ahistory": lambda saver, story: saver.aget_delta_channel_history(config=config_of("story"), channels=["log"]),
    "aput": lambda saver, story: story.step(story.steps[-1]),
    "aprune": lambda saver, story: saver.aprune(["story"]),
}


async def listed(saver: DeltaSaver) -> list[Any]:
    return [each async for each in saver.alist(config_of("story"))]


@pytest.fixture
async def connection(database_dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(database_dsn)
    yield connection
    await connection.close()


async def plant(connection: asyncpg.Connection[Any], table: str, lie: Callable[[bytes], bytes]) -> None:
    """Lies in all rows of a table."""
    for row in await connection.fetch(f"SELECT * FROM deltastore.{table}"):
        if table == "delta_checkpoints":
            stored = CheckpointRow(
                row["namespace"], row["checkpoint_id"], row["parent_id"], row["depth"], (), b"", row["metadata_id"]
            )
            key, associated = "checkpoint_id", checkpoint_binding(stored)
        elif table == "delta_segments":
            kind = SegmentKind(row["kind"])
            key, associated = "segment_id", segment_binding(kind, row["namespace"], row["checkpoint_id"])
        else:
            key, associated = "metadata_id", metadata_binding(row["metadata_id"])
        await connection.execute(
            f"UPDATE deltastore.{table} SET payload = $1 WHERE {key} = $2", lie(associated), row[key]
        )


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("table", ["delta_checkpoints", "delta_segments", "delta_metadata"])
async def test_no_call_is_taken_in(
    database_dsn: str, connection: asyncpg.Connection[Any], table: str, lie: str
) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as writer:
        story = Story(writer, words_max=3000)
        await story.grow(3)
    await plant(connection, table, LIES[lie])
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for name, call in CALLS.items():
        async with DeltaSaver.from_conn_string(database_dsn) as saver:
            story.saver = saver
            if (name, table) in QUIET:
                await call(saver, story)
            else:
                with pytest.raises(CorruptPayloadError, match="story"):
                    await call(saver, story)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - peak_bytes < GROWTH_BYTES_MAX


QUIET = {("ahistory", "delta_metadata"), ("aput", "delta_metadata"), ("aprune", "delta_metadata")}
"""What these calls don't read, they can't notice."""
