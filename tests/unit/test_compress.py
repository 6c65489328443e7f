"""Compression: round trip, bombs, threads."""

from __future__ import annotations

import random
import threading
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zstandard import FORMAT_ZSTD1_MAGICLESS, ZstdCompressionParameters, ZstdCompressor

from deltastore.core.compress import DEFAULT_LEVEL, PLAIN_BYTES_MAX, Codec, compress, decompress
from deltastore.errors import CorruptPayloadError

MEGABYTE = 2**20


def words(count: int, seed: int = 0) -> bytes:
    chosen = random.Random(seed).choices(["the", "flight", "order", "is", "not", "found", "ok", "12", "true"], k=count)
    return " ".join(chosen).encode()


def frame_of_zeros(megabytes: int) -> bytes:
    """A zstd frame of as many zero bytes as wanted, made without holding them."""
    parameters = ZstdCompressionParameters(format=FORMAT_ZSTD1_MAGICLESS, write_content_size=False, window_log=20)
    compressor = ZstdCompressor(compression_params=parameters).compressobj()
    return b"".join(compressor.compress(bytes(MEGABYTE)) for _ in range(megabytes)) + compressor.flush()


@given(st.binary(max_size=3000) | st.binary(max_size=50).map(lambda part: part * 40), st.sampled_from([1, 3, 9, 19]))
def test_round_trip(plain: bytes, level: int) -> None:
    codec, body = compress(plain, level)
    assert len(body) <= len(plain)
    assert decompress(codec, body, len(plain)) == plain


@pytest.mark.parametrize("plain", [bytes(40 * MEGABYTE), words(500_000), random.Random(1).randbytes(3 * MEGABYTE)])
def test_round_trip_of_large_payloads(plain: bytes) -> None:
    codec, body = compress(plain, DEFAULT_LEVEL)
    assert decompress(codec, body, len(plain)) == plain


@pytest.mark.parametrize("plain_bytes", [0, 1, 1999, 2001, 4000, MEGABYTE * 5])
def test_other_length_than_declared_is_refused(plain_bytes: int) -> None:
    plain = words(1000)[:2000]
    for codec, body in (compress(plain, DEFAULT_LEVEL), (Codec.STORED, plain)):
        with pytest.raises(CorruptPayloadError):
            decompress(codec, body, plain_bytes)


def test_trailing_bytes_are_refused() -> None:
    plain = words(1000)
    codec, body = compress(plain, DEFAULT_LEVEL)
    with pytest.raises(CorruptPayloadError):
        decompress(codec, body + b"\0", len(plain))


@pytest.mark.parametrize("declared_bytes", [1000, 20 * MEGABYTE, 900 * MEGABYTE, PLAIN_BYTES_MAX])
def test_bomb_is_refused_without_allocating(declared_bytes: int) -> None:
    bomb = frame_of_zeros(400) + bytes(10_000)
    bombs = {"longer": frame_of_zeros(1100), "other": bomb, "cut": bomb[:5000]}
    for body in bombs.values():
        tracemalloc.start()
        try:
            with pytest.raises(CorruptPayloadError):
                decompress(Codec.ZSTD, body, declared_bytes)
            assert tracemalloc.get_traced_memory()[1] < 4 * MEGABYTE
        finally:
            tracemalloc.stop()


def test_threads_do_not_disturb_each_other() -> None:
    failures: list[int] = []

    def work(seed: int) -> None:
        for number in range(300):
            plain = words(50 + number * 7, seed * 1000 + number)
            codec, body = compress(plain, 1 + seed % 4)
            if decompress(codec, body, len(plain)) != plain:
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
