"""Compression of payload bodies: as small as it pays, and safe to undo whatever the stored bytes are.

Frames are zstd's "magicless" ones without content size, checksum or dictionary id, since the envelope (`frame.py`) says
all of that in fewer bytes. A body that would not get smaller is stored as it is.

Undoing trusts nothing. The declared size bounds the output, a body that yields more or less than declared is refused,
and a body that declares implausibly much for its length is first decompressed into a small scratch buffer that is
thrown away, only to count: memory for the output is allocated when the size has been proved.

zstd contexts must not be used by two threads at once, and creating one costs more than compressing a small payload
(8 µs against 2 µs), so that each thread keeps its own.
"""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import Final

from zstandard import (
    FORMAT_ZSTD1_MAGICLESS,
    ZstdCompressionParameters,
    ZstdCompressor,
    ZstdDecompressor,
    ZstdError,
)

from deltastore.errors import CorruptPayloadError

DEFAULT_LEVEL: Final = 3
"""zstd level of new payloads; `docs/decisions/0003-compression.md` has the measurements behind it."""

PLAIN_BYTES_MAX: Final = 2**30 - 1
"""Largest plain payload: what PostgreSQL takes in one field if nothing can be compressed."""

_WINDOW_BYTES_MAX: Final = 2**23
_TRUSTED_BYTES: Final = 2**20
_TRUSTED_RATIO: Final = 256
_SCRATCH_BYTES: Final = 2**18


class Codec(IntEnum):
    """How a body is compressed; stored in four bits."""

    STORED = 0
    ZSTD = 1


class _Contexts(threading.local):
    """The zstd contexts of the current thread."""

    def __init__(self) -> None:
        self.compressors: dict[int, ZstdCompressor] = {}
        self.decompressor = ZstdDecompressor(format=FORMAT_ZSTD1_MAGICLESS, max_window_size=_WINDOW_BYTES_MAX)

    def compressor(self, level: int) -> ZstdCompressor:
        if level not in self.compressors:
            parameters = ZstdCompressionParameters(
                format=FORMAT_ZSTD1_MAGICLESS,
                compression_level=level,
                write_content_size=False,
                write_checksum=False,
                write_dict_id=False,
            )
            self.compressors[level] = ZstdCompressor(compression_params=parameters)
        return self.compressors[level]


_contexts: Final = _Contexts()


def compress(plain: bytes, level: int) -> tuple[Codec, bytes]:
    """Compresses a payload if that makes it smaller.

    Args:
        plain: The bytes.
        level: zstd level, 1 (fast) to 19 (small).

    Returns:
        The codec used and the body.
    """
    body = _contexts.compressor(level).compress(plain)
    return (Codec.ZSTD, body) if len(body) < len(plain) else (Codec.STORED, plain)


def decompress(codec: Codec, body: bytes, plain_bytes: int) -> bytes:
    """Undoes `compress`.

    Args:
        codec: The codec that `compress` answered.
        body: The body.
        plain_bytes: The length that the result must have; at most `PLAIN_BYTES_MAX`.

    Raises:
        CorruptPayloadError: The body is not what the codec makes, or of another length than it should be.
    """
    plain = body if codec is Codec.STORED else _decompress_frame(_contexts.decompressor, body, plain_bytes)
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
