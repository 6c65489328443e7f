"""What a target is: a saver that can be opened again and again on the same stored data, and the size of that data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

Saver = BaseCheckpointSaver[Any]


@dataclass(frozen=True)
class TableBytes:
    """Stored bytes of one table.

    Args:
        table_bytes: The rows themselves, with free space and the free-space and visibility maps.
        index_bytes: All indexes of the table.
        toast_bytes: Its out-of-line storage, with the index of that.
    """

    name: str
    table_bytes: int
    index_bytes: int = 0
    toast_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Everything."""
        return self.table_bytes + self.index_bytes + self.toast_bytes


@dataclass(frozen=True)
class Place:
    """Where a target keeps the data of one run.

    Args:
        dsn: An empty PostgreSQL database of its own; empty text for targets that need no server.
        folder: A folder of its own.
    """

    dsn: str
    folder: Path


class Target(ABC):
    """A kind of saver, on one place."""

    needs_server: bool = True

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    def open(self, *, dsn: str | None = None) -> AbstractAsyncContextManager[Saver]:
        """A new saver on the data of the place, with nothing cached; `dsn` to go there by another way (a proxy)."""

    async def setup(self) -> None:  # noqa: B027 - most savers need none
        """Creates tables where the saver wants that done first."""

    @abstractmethod
    async def stored(self) -> list[TableBytes]:
        """Stored bytes by table, as they are now."""
