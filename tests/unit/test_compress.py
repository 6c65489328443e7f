"""Compression: round trip, bombs, threads."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import tracemalloc
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zstandard import FORMAT_ZSTD1_MAGICLESS, ZstdCompressionParameters, ZstdCompressor

from deltastore.core import compress as compress_module
from deltastore.core.compress import PLAIN_BYTES_MAX, Codec, compress, decompress
from deltastore.errors import CorruptPayloadError

MEGABYTE = 2**20
ROOT = Path(__file__).parent.parent.parent
TRAINED_WITH = {
    "zstandard": "0.25.0",
    "langchain-core": "1.8.3",
    "langgraph-checkpoint": "4.3.2",
    "ormsgpack": "1.13.1",
}


def words(count: int, seed: int = 0) -> bytes:
    chosen = random.Random(seed).choices(["the", "flight", "order", "is", "not", "found", "ok", "12", "true"], k=count)
    return " ".join(chosen).encode()


def frame_of_zeros(megabytes: int) -> bytes:
    """A zstd frame of as many zero bytes as wanted, made without holding them."""
    parameters = ZstdCompressionParameters(format=FORMAT_ZSTD1_MAGICLESS, write_content_size=False, window_log=20)
    compressor = ZstdCompressor(compression_params=parameters).compressobj()
    return b"".join(compressor.compress(bytes(MEGABYTE)) for _ in range(megabytes)) + compressor.flush()


@given(
    st.binary(max_size=3000) | st.binary(max_size=50).map(lambda part: part * 40), st.sampled_from([None, 1, 3, 9, 19])
)
def test_round_trip(plain: bytes, level: int) -> None:
    codec, body = compress(plain, level)
    assert len(body) <= len(plain)
    assert decompress(codec, body, len(plain)) == plain


@pytest.mark.parametrize("plain", [bytes(40 * MEGABYTE), words(500_000), random.Random(1).randbytes(3 * MEGABYTE)])
def test_round_trip_of_large_payloads(plain: bytes) -> None:
    codec, body = compress(plain)
    assert decompress(codec, body, len(plain)) == plain


@pytest.mark.parametrize("plain_bytes", [0, 1, 1999, 2001, 4000, MEGABYTE * 5])
def test_other_length_than_declared_is_refused(plain_bytes: int) -> None:
    plain = words(1000)[:2000]
    for codec, body in (compress(plain), (Codec.STORED, plain)):
        with pytest.raises(CorruptPayloadError):
            decompress(codec, body, plain_bytes)


def test_trailing_bytes_are_refused() -> None:
    plain = words(1000)
    codec, body = compress(plain)
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


def dictionaries() -> dict[str, bytes]:
    folder = files("deltastore.core") / "dictionaries"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith(".zdict")}


def test_dictionaries_never_change() -> None:
    frozen = json.loads((ROOT / "tests" / "golden" / "frame_v1.json").read_text())["dictionaries"]
    assert {name: sha256(data).hexdigest() for name, data in dictionaries().items()} == {
        f"{number}.zdict": digest for number, digest in frozen.items()
    }


def test_every_dictionary_codec_has_its_dictionary() -> None:
    assert {f"{codec.dictionary_id}.zdict" for codec in Codec if codec.dictionary_id} == set(dictionaries())


def test_damaged_dictionary_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compress_module, "_DICTIONARY_SHA256", {1: "0" * 64})
    with pytest.raises(CorruptPayloadError, match="install"):
        compress_module._dictionary.__wrapped__(1)


@pytest.mark.skipif(
    {name: version(name) for name in TRAINED_WITH} != TRAINED_WITH, reason="trained with other versions"
)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="another Python")
def test_dictionary_can_be_trained_again(tmp_path: Path) -> None:
    output = tmp_path / "1.zdict"
    subprocess.run([sys.executable, ROOT / "tools" / "train_dictionary.py", output], check=True, capture_output=True)
    assert output.read_bytes() == dictionaries()["1.zdict"]
