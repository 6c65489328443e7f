from __future__ import annotations

import struct

import asyncpg
import psycopg
import pytest

from bench.wire import Traffic, _Frames, counting_proxy


def message(kind: str, body: bytes) -> bytes:
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
def test_frames_are_found_however_they_are_cut(size: int):
    startup = struct.pack("!II", 20, 196_608) + b"user\0me\0db\0\0"[:12]
    stream = startup + message("Q", b"SELECT 1\0") + message("S", b"") + message("D", b"x" * 50)
    frames = _Frames(first_is_startup=True)
    found = [kind for start in range(0, len(stream), size) for kind in frames.feed(stream[start : start + size])]
    assert found == list(b"QSD")


async def test_asyncpg_is_counted(server_dsn: str):
    async with counting_proxy(server_dsn) as (dsn, counter):
        connection = await asyncpg.connect(dsn)
        before = counter.traffic
        rows = await connection.fetch("SELECT n, repeat('x', 100) FROM generate_series(1, 42) n")
        one = counter.traffic - before
        await connection.fetch("SELECT n, repeat('x', 100) FROM generate_series(1, 42) n")
        again = counter.traffic - before
        await connection.close()
    assert len(rows) == 42
    assert (one.statements, one.rows) == (1, 42)
    assert one.round_trips == 2  # prepare, then execute
    assert (again.statements, again.rows, again.round_trips) == (2, 84, 3)
    assert 42 * 100 < one.received_bytes < 42 * 100 + 2_000


async def test_psycopg_is_counted(server_dsn: str):
    async with counting_proxy(server_dsn) as (dsn, counter):
        connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
        before = counter.traffic
        await connection.execute("SELECT %s::int FROM generate_series(1, 3)", (1,))
        seen = counter.traffic - before
        await connection.close()
    assert (seen.statements, seen.rows, seen.round_trips) == (1, 3, 1)


async def test_a_server_that_is_away_is_the_clients_error():
    async with counting_proxy("postgresql://postgres@/x?host=/nowhere") as (dsn, _):
        with pytest.raises((OSError, asyncpg.PostgresError)):
            await asyncpg.connect(dsn, timeout=5)


def test_traffic_is_subtracted():
    assert Traffic(5, 4, 3, 2, 1) - Traffic(1, 1, 1, 1, 1) == Traffic(4, 3, 2, 1, 0)
