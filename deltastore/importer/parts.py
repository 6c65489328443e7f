"""The staged parts of one thread, as one run sees them.

A run reads the parts that are there in order, and goes on behind them. Nothing is locked between two parts: a part is
added only in the place behind the one that this run knows, and is sealed together with that one. So of two runs on one
thread one is told to stop, and parts of both never pass for those of one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from deltastore.core.digests import digest
from deltastore.core.edits import NewRows
from deltastore.core.model import ThreadRef
from deltastore.core.staging import open_part, seal_part
from deltastore.errors import CorruptPayloadError, StoredDataError
from deltastore.importer.replay import Replay
from deltastore.importer.source import Before, SkipThread
from deltastore.storage import Staging


@dataclass(slots=True)
class Parts:
    """Parts that follow each other, from the first on.

    Attributes:
        staging: Where they are.
        thread: The thread.
        count: How many of them this run has seen or added.
    """

    staging: Staging
    thread: ThreadRef
    count: int = 0
    _last: bytes = b""

    async def next(self) -> NewRows | None:
        """The rows of the part behind the last one, or None if there is none.

        Raises:
            CorruptPayloadError: It is damaged, or does not follow the last one.
        """
        sealed = await self.staging.load(self.thread.key, self.count)
        if sealed is None:
            return None
        rows = open_part(sealed, self.thread.key, self.count, self._last)
        self.count += 1
        self._last = digest(sealed)
        return rows

    async def add(self, rows: NewRows) -> None:
        """Adds a part behind the last one. Raises `SkipThread` if another run did that."""
        sealed = seal_part(rows, self.thread.key, self.count, self._last)
        if not await self.staging.add(self.thread, self.count, sealed):
            raise self._busy()
        self.count += 1
        self._last = digest(sealed)

    async def all(self) -> AsyncIterator[NewRows]:
        """The rows of all parts that this run has seen or added. Raises `SkipThread` if others changed them."""
        again = Parts(self.staging, self.thread)
        while again.count < self.count:
            try:
                rows = await again.next()
            except CorruptPayloadError:
                rows = None
            if rows is None:
                raise self._busy()
            yield rows
        if again._last != self._last:
            raise self._busy()

    def _busy(self) -> SkipThread:
        return SkipThread("another run moves this thread at the same time; start again when it has ended")


async def resume(
    staging: Staging, thread: ThreadRef, begin: Callable[[], Replay]
) -> tuple[Parts, Replay, Before, StoredDataError | None]:
    """Replays the parts that are there, up to the first one that does not fit or cannot be read; drops the rest.

    Args:
        staging: Where they are.
        thread: The thread.
        begin: Makes a replay that knows nothing.

    Returns:
        The parts, what they say, what the source is to be told, and why parts were dropped.
    """
    dropped: StoredDataError | None = None
    while True:
        parts, replay, at = Parts(staging, thread), begin(), 0
        try:
            while (rows := await parts.next()) is not None:
                replay.take(rows)
                at = parts.count
            await staging.drop(thread.key, at + 1)  # what two runs left behind a gap
            at = 0
            return parts, replay, replay.finish(), dropped
        except StoredDataError as error:
            dropped = dropped or error
            await staging.drop(thread.key, at)
