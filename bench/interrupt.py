"""Ctrl-C in two steps."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SAME_INTERRUPT_SECONDS = 1.0


class Interrupt:
    """The first Ctrl-C sets `requested`; the second raises KeyboardInterrupt.

    Programs that start others (make, timeout) pass a Ctrl-C on, so one that follows at once is the same one.

    Args:
        say: Where each is acknowledged, at once.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.requested = False
        self._say = say
        self._at_s = 0.0

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handles Ctrl-C within."""
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _handle(self, *_: object) -> None:
        if self.requested and time.monotonic() - self._at_s > SAME_INTERRUPT_SECONDS:
            self._say("Dropping what is running.")
            raise KeyboardInterrupt
        if not self.requested:
            self.requested, self._at_s = True, time.monotonic()
            self._say("Stopping; Ctrl-C again to drop what is running.")
