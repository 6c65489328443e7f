"""The limits on the same data: what one compression, one decoding and one row would take."""

from __future__ import annotations

import asyncio
import itertools
import time

import asyncpg
import zstandard
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from bench.loads import decode_ms
from bench.measure import median
from bench.record import Limits
from bench.workloads.base import Workload

LEVEL = 3
TIMES = 15


def measure_limits(workload: Workload, turns: int, dsn: str | None) -> Limits:
    """Compresses, decodes and reads the final state of the first conversation; `dsn` is an empty database."""
    values = next(itertools.islice(workload.conversation(0).expected_states(), turns - 1, None))
    encoded = JsonPlusSerializer().dumps_typed(values)
    compressed = zstandard.ZstdCompressor(LEVEL).compress(encoded[1])
    return Limits(
        state_bytes=len(encoded[1]),
        zstd3_bytes=len(compressed),
        decode_ms=round(median(decode_ms(encoded) for _ in range(TIMES)), 3),
        row_ms=round(asyncio.run(_row_ms(dsn, compressed)), 3) if dsn else None,
    )


async def _row_ms(dsn: str, compressed: bytes) -> float:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE TABLE one_row (payload bytea)")
        await connection.execute("ALTER TABLE one_row ALTER payload SET STORAGE EXTERNAL")
        await connection.execute("INSERT INTO one_row VALUES ($1)", compressed)
        samples = []
        for _ in range(TIMES):
            started = time.perf_counter()
            payload = await connection.fetchval("SELECT payload FROM one_row")
            zstandard.ZstdDecompressor().decompress(payload)
            samples.append((time.perf_counter() - started) * 1000)
        return median(samples)
    finally:
        await connection.close()
