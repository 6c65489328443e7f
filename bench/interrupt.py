"""Ctrl-C in two steps."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

SAME_INTERRUPT_SECONDS = 1.0


class Interrupt:
    """The first Ctrl-C sets `requested`; the second raises KeyboardInterrupt.

    Programs that start others (make, timeout) pass a Ctrl-C on, so one that follows at once is the same one.
    """

    requested = False
    _at_s = 0.0

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
            raise KeyboardInterrupt
        if not self.requested:
            self.requested, self._at_s = True, time.monotonic()
