"""What identifies an encoded item in memory. Never stored."""

from __future__ import annotations

from hashlib import blake2b


def digest(item: bytes) -> bytes:
    """16 bytes of BLAKE2b."""
    return blake2b(item, digest_size=16).digest()
