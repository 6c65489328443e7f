"""Python's garbage collector, paused while many objects are made that are all needed.

The collector looks at young objects after every 700 new containers, and at all objects of the process now and then. A
state of 2,000 messages is 20,000 containers, none of them garbage, so making it sets off 30 looks in vain; a third of
the processor time of long conversations went there (decision 0016). Reference counting goes on as always.

The collector belongs to the process. So the pause is as short as one state, ends whatever happens, is counted over all
threads, and changes nothing where the collector was off already.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_pauses = 0
_was_enabled = False


@contextmanager
def paused() -> Iterator[None]:
    """No automatic collection inside."""
    global _pauses, _was_enabled  # noqa: PLW0603 - the collector is global, and so is the count of its pauses
    with _lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()


def _end_all_pauses() -> None:
    """In the child of a fork the threads that paused do not exist."""
    global _lock, _pauses  # noqa: PLW0603
    _lock = Lock()
    if _pauses and _was_enabled:
        gc.enable()
    _pauses = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_all_pauses)
