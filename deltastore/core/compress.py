"""Compression of payload bodies: as small as it pays, and safe to undo whatever the stored bytes are.

Frames are zstd's "magicless" ones without content size, checksum or dictionary id, since the envelope (`frame.py`) says
all of that in fewer bytes. A body that would not get smaller is stored as it is.

Undoing trusts nothing. The declared size bounds the output, a body that yields more or less than declared is refused,
and a body that declares implausibly much for its length is first decompressed into a small scratch buffer that is
thrown away, only to count: memory for the output is allocated when the size has been proved.

Small payloads are compressed with a dictionary of what LangGraph programs store (`dictionaries/1.zdict`), which more
than halves them. A dictionary is part of the format and has a codec number of its own; it is never changed, and its
digest is checked when it is read. Payloads too long to gain from it do without.

zstd contexts must not be used by two threads at once, and creating one costs more than compressing a small payload, so
that each thread keeps its own; the digested dictionaries are shared.
"""

from __future__ import annotations

import threading
from enum import IntEnum
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from zstandard import (
    DICT_TYPE_FULLDICT,
    FORMAT_ZSTD1_MAGICLESS,
    ZstdCompressionDict,
    ZstdCompressionParameters,
    ZstdCompressor,
    ZstdDecompressor,
    ZstdError,
)

from deltastore.errors import CorruptPayloadError

PLAIN_BYTES_MAX: Final = 2**30 - 1
"""Longest plain payload: as much as PostgreSQL takes in one field if nothing can be compressed."""

_DICTIONARY_SHA256: Final = {1: "d493059eab1a243cd48b67b12eb017526c4ca671de54839abbc334747d10bc70"}
_WINDOW_BYTES_MAX: Final = 2**23
_TRUSTED_BYTES: Final = 2**20
_TRUSTED_RATIO: Final = 256
_SCRATCH_BYTES: Final = 2**18


class Codec(IntEnum):
    """How a body is compressed: one byte of the envelope. Dictionary n has number n + 1."""

    STORED = 0
    ZSTD = 1
    ZSTD_DICTIONARY_1 = 2

    @property
    def dictionary_id(self) -> int:
        """The number of the dictionary file; 0 for none."""
        return max(self - 1, 0)


_CHOICES: Final = (
    (2**18, Codec.ZSTD_DICTIONARY_1, 6),
    (PLAIN_BYTES_MAX, Codec.ZSTD, 3),
)
"""Codec and level for payloads up to a length; the measurements behind them: `docs/decisions/0003-compression.md`."""


class _Contexts(threading.local):
    """The zstd contexts of the current thread."""

    def __init__(self) -> None:
        self.compressors: dict[tuple[Codec, int], ZstdCompressor] = {}
        self.decompressors: dict[Codec, ZstdDecompressor] = {}

    def compressor(self, codec: Codec, level: int) -> ZstdCompressor:
        if (codec, level) not in self.compressors:
            self.compressors[codec, level] = _new_compressor(codec, level)
        return self.compressors[codec, level]

    def decompressor(self, codec: Codec) -> ZstdDecompressor:
        if codec not in self.decompressors:
            self.decompressors[codec] = ZstdDecompressor(
                dict_data=_dictionary(codec.dictionary_id),
                format=FORMAT_ZSTD1_MAGICLESS,
                max_window_size=_WINDOW_BYTES_MAX,
            )
        return self.decompressors[codec]


_contexts: Final = _Contexts()


def _new_compressor(codec: Codec, level: int) -> ZstdCompressor:
    parameters = ZstdCompressionParameters(
        format=FORMAT_ZSTD1_MAGICLESS,
        compression_level=level,
        write_content_size=False,
        write_checksum=False,
        write_dict_id=False,
    )
    return ZstdCompressor(compression_params=parameters, dict_data=_dictionary(codec.dictionary_id, level))


@cache
def _dictionary(dictionary_id: int, level: int | None = None) -> ZstdCompressionDict | None:
    """A shipped dictionary, digested for decompression or for compression at a level; None for number 0."""
    if not dictionary_id:
        return None
    data = (files("deltastore.core") / "dictionaries" / f"{dictionary_id}.zdict").read_bytes()
    found, expected = sha256(data).hexdigest(), _DICTIONARY_SHA256[dictionary_id]
    if found != expected:
        raise CorruptPayloadError(
            f"compression dictionary {dictionary_id} of this installation is damaged",
            detail=f"sha256 {found}, expected {expected}",
            hint="install langgraph-checkpoint-deltastore again; the stored data are not affected",
        )
    dictionary = ZstdCompressionDict(data, dict_type=DICT_TYPE_FULLDICT)
    if level is not None:
        dictionary.precompute_compress(level=level)
    return dictionary


def compress(plain: bytes, level: int | None = None) -> tuple[Codec, bytes]:
    """Compresses a payload if that makes it smaller.

    Args:
        plain: The bytes, at most `PLAIN_BYTES_MAX`.
        level: zstd level, 1 (fast) to 19 (small); by default one that suits the length.

    Returns:
        The codec used and the body.
    """
    codec, usual_level = next((codec, level) for length, codec, level in _CHOICES if len(plain) <= length)
    body = _contexts.compressor(codec, level or usual_level).compress(plain)
    return (codec, body) if len(body) < len(plain) else (Codec.STORED, plain)


def decompress(codec: Codec, body: bytes, plain_bytes: int) -> bytes:
    """Undoes `compress`.

    Args:
        codec: The codec that `compress` answered.
        body: The body.
        plain_bytes: The length that the result must have; at most `PLAIN_BYTES_MAX`.

    Raises:
        CorruptPayloadError: The body is not what the codec makes, or of another length than it should be.
    """
    plain = body if codec is Codec.STORED else _decompress_frame(_contexts.decompressor(codec), body, plain_bytes)
    if len(plain) != plain_bytes:
        raise _wrong_length(f"{len(plain)}", plain_bytes)
    return plain


def _decompress_frame(decompressor: ZstdDecompressor, body: bytes, plain_bytes: int) -> bytes:
    try:
        if plain_bytes > max(_TRUSTED_BYTES, _TRUSTED_RATIO * len(body)):
            _prove_length(decompressor, body, plain_bytes)
        return decompressor.decompress(body, max_output_size=plain_bytes, allow_extra_data=False)
    except ZstdError as error:
        raise CorruptPayloadError(
            "a payload does not decompress",
            detail=f"{len(body)} bytes that should give {plain_bytes}: {error}",
            hint="restore the row from a backup",
        ) from error


def _prove_length(decompressor: ZstdDecompressor, body: bytes, plain_bytes: int) -> None:
    """Decompresses into a scratch buffer and refuses a length other than the declared one."""
    scratch = bytearray(_SCRATCH_BYTES)
    found_bytes = 0
    with decompressor.stream_reader(body) as reader:
        while found_bytes <= plain_bytes and (read_bytes := reader.readinto(scratch)):
            found_bytes += read_bytes
    if found_bytes != plain_bytes:
        raise _wrong_length("more" if found_bytes > plain_bytes else f"{found_bytes}", plain_bytes)


def _wrong_length(found: str, expected_bytes: int) -> CorruptPayloadError:
    return CorruptPayloadError(
        "a payload has another length than it declares",
        detail=f"found {found} bytes, expected {expected_bytes}",
        hint="restore the row from a backup",
    )
