"""How the engine works: one record, given once."""

from __future__ import annotations

from dataclasses import dataclass

from deltastore.errors import InvalidConfigError


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the engine works.

    Attributes:
        snapshot_frequency: An anchor every so many steps along each branch; at least 1.
        inline_bytes: New items up to this size are kept in the checkpoint's row.
        cache_bytes: Bound of the cache, all threads together.
        ignored_channels: Channels that never hold a value (LangGraph's markers), which get no history.
    """

    snapshot_frequency: int = 50
    inline_bytes: int = 1024
    cache_bytes: int = 64 * 1024 * 1024
    ignored_channels: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if type(self.snapshot_frequency) is not int or self.snapshot_frequency < 1:
            raise InvalidConfigError(f"snapshot_frequency must be a positive integer, got {self.snapshot_frequency!r}")
        if type(self.cache_bytes) is not int or self.cache_bytes < 0:
            raise InvalidConfigError(f"cache_bytes must be a non-negative integer, got {self.cache_bytes!r}")
