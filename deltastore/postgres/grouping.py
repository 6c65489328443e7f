"""Saves that wait at the same moment share one round trip and one commit.

With many threads of work in one process, most of what a save costs is not its statement but the way to it: a connection
taken and given back, a message each way, a commit. So while few saves are under way, each runs on its own at once; the
others are sent together, one after the other through the same prepared statement, as one transaction. Each still names
one thread. Nobody waits for a timer: a group is sent as soon as another one ends. Each caller is answered after the
commit that holds its rows.

Three rules keep one thread's trouble from the others:

- A group never waits for a thread that somebody edits: it skips the locked thread. A long edit would hold up all.
- Only `Saved` counts as an answer. Whatever else happens, a refusal, a locked thread, an error that undid the whole
  transaction, sends each save of the group on its own way, where it waits, is refused or fails for itself.
- Statements that take the server long run side by side, on all connections there are, and not in a row. The server
  says how long each took.

Rows of new threads are created in the order of their keys, so that two groups do not wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from deltastore.core.model import Refusal, Saved, ThreadRef
from deltastore.errors import DeltastoreError
from deltastore.observing import extra
from deltastore.postgres.failures import DRIVER_ERRORS

_LOG = logging.getLogger("deltastore.postgres")

ALONE_MAX = 2
"""Saves that run on their own at the same time, before others are sent together."""
GROUPS_MAX = 2
GROUP_SAVES = 64
PAYLOAD_BYTES_MAX = 64 * 1024
"""Larger saves always run on their own: others would wait for their bytes."""
QUICK_SECONDS = 0.002
"""Statements that take longer than this on the server, on average, run on their own."""
SAMPLE_SECONDS_MAX = 5 * QUICK_SECONDS
"""What one slow statement counts at most: a single one that waited for a lock says little about the next."""
SAMPLE_WEIGHT = 0.2


class Groupable(Protocol):
    """What the saves of a group have in common."""

    @property
    def thread(self) -> ThreadRef:
        """The thread that it belongs to."""

    @property
    def payload_bytes(self) -> int:
        """Size of its payloads."""


SaveT = TypeVar("SaveT", bound=Groupable)


class Group(Generic[SaveT]):
    """Runs saves of one kind, alone or together. Belongs to one event loop.

    Args:
        alone: Stores one save; waits as long as it takes.
        together: Stores some saves in one transaction that waits for no locked thread; None for what it did not store.
            A driver's error means that nothing is known to be stored.
    """

    def __init__(
        self,
        alone: Callable[[SaveT], Awaitable[Saved | Refusal]],
        together: Callable[[Sequence[SaveT]], Awaitable[Sequence[Saved | None]]],
    ) -> None:
        self._run_alone = alone
        self._run_together = together
        self._alone = 0
        self._groups: set[asyncio.Task[None]] = set()
        self._waiting: list[tuple[SaveT, asyncio.Future[Saved | None]]] = []
        self._average_seconds = SAMPLE_SECONDS_MAX

    async def save(self, save: SaveT) -> Saved | Refusal:
        """Stores a save. Raises what `alone` raises."""
        is_small = save.payload_bytes <= PAYLOAD_BYTES_MAX
        if self._alone >= ALONE_MAX and is_small and self._average_seconds <= QUICK_SECONDS:
            saved = await self._join(save)
            if saved is not None:
                return saved
        self._alone += 1
        try:
            answer = await self._run_alone(save)
        finally:
            self._alone -= 1
        self._learn(answer)
        return answer

    async def _join(self, save: SaveT) -> Saved | None:
        stored: asyncio.Future[Saved | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((save, stored))
        self._send()
        return await stored

    def _send(self) -> None:
        """Sends what waits, unless enough groups are under way: then the end of one will."""
        if self._waiting and len(self._groups) < GROUPS_MAX:
            group = asyncio.create_task(self._store())
            self._groups.add(group)
            group.add_done_callback(self._ended)

    def _ended(self, group: asyncio.Task[None]) -> None:
        self._groups.discard(group)
        self._send()

    async def _store(self) -> None:
        """Stores the saves that waited longest and answers those who wait for them."""
        sent, self._waiting = self._waiting[:GROUP_SAVES], self._waiting[GROUP_SAVES:]
        group = sorted((each for each in sent if not each[1].done()), key=lambda each: each[0].thread.key)
        if not group:
            return
        futures = [stored for _, stored in group]
        answers: Sequence[Saved | None] = [None] * len(group)
        try:
            answers = await self._run_together([save for save, _ in group])
        except DRIVER_ERRORS as error:
            _LOG.info("%d saves are sent alone, after %r for all of them", len(group), error, extra=extra())
        except DeltastoreError as error:
            for stored in futures:
                if not stored.done():
                    stored.set_exception(error)
        finally:
            for stored, answer in zip(futures, answers, strict=True):
                if not stored.done():
                    stored.set_result(answer)
                    self._learn(answer)

    def _learn(self, answer: Saved | Refusal | None) -> None:
        if isinstance(answer, Saved):
            seconds = min(answer.server_seconds, SAMPLE_SECONDS_MAX)
            self._average_seconds += SAMPLE_WEIGHT * (seconds - self._average_seconds)
