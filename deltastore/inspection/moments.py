"""When a checkpoint was made, as far as its id tells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

_GREGORIAN = datetime(1582, 10, 15, tzinfo=UTC)
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_UNIX_MILLISECONDS_MAX = 250_000_000_000_000
"""Later than the year 9000: not a time."""


def moment_of(checkpoint_id: str) -> datetime | None:
    """The time in a UUID of version 6 (LangGraph's), 1 or 7; None for any other id."""
    try:
        number = UUID(checkpoint_id)
    except ValueError:
        return None
    bits = number.int
    if number.version == 6:
        ticks = (bits >> 80) << 12 | (bits >> 64 & 0xFFF)
        return _GREGORIAN + timedelta(microseconds=ticks // 10)
    if number.version == 1:
        return _GREGORIAN + timedelta(microseconds=number.time // 10)
    if number.version == 7 and bits >> 80 < _UNIX_MILLISECONDS_MAX:
        return _UNIX + timedelta(milliseconds=bits >> 80)
    return None
