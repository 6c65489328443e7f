"""What can be observed of a saver: spans of its calls, counts and measures, and whom a log line is about.

An observer has three methods, and none at all costs nothing: whoever reports asks first whether there is one. Names of
metrics are in `METRICS`, for observers that want to declare them; `telemetry.py` is the observer for OpenTelemetry.

The *subject* of a call (thread, namespace, checkpoint) travels with the call, in a context variable, so that a log line
deep in the storage says which thread it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Attributes = Mapping[str, str | int | float | bool]


class Observer(Protocol):
    """Is told what a saver does. Called on the saver's event loop and in callers' threads: it must not wait."""

    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Any]:
        """Entered when something begins and left when it ends, with its exception if there is one."""

    def count(self, name: str, amount: int, attributes: Attributes) -> None:
        """Something happened `amount` times more."""

    def measure(self, name: str, value: float, attributes: Attributes) -> None:
        """Something had this size or took so long."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: a counter, or a histogram of measures; its unit (UCUM) and what it means."""

    kind: Literal["count", "measure"]
    unit: str
    description: str


CALL_SECONDS = "deltastore.call.duration"
STATEMENT_SECONDS = "deltastore.storage.duration"
WRITTEN_BYTES = "deltastore.storage.written"
READ_BYTES = "deltastore.storage.read"
REFUSALS = "deltastore.save.refusals"
CHAIN_LENGTH = "deltastore.chain.length"
CHAIN_ROWS = "deltastore.chain.rows_read"
CACHE_HITS = "deltastore.cache.hits"
CACHE_MISSES = "deltastore.cache.misses"
POOL_SECONDS = "deltastore.pool.wait"
RETRIES = "deltastore.retries"
REMOVED_ROWS = "deltastore.sweep.removed"

METRICS: Mapping[str, Metric] = {
    CALL_SECONDS: Metric("measure", "s", "Duration of the saver's calls, by `call` and `error`."),
    STATEMENT_SECONDS: Metric("measure", "s", "Duration of the storage's operations, by `operation` and `error`."),
    WRITTEN_BYTES: Metric("count", "By", "Bytes of payloads written, by `operation`."),
    READ_BYTES: Metric("count", "By", "Bytes of payloads read, by `operation`."),
    REFUSALS: Metric("count", "{save}", "Saves that were refused and are tried again or given up, by `reason`."),
    CHAIN_LENGTH: Metric("measure", "{row}", "Rows from a loaded checkpoint back to its anchor."),
    CHAIN_ROWS: Metric("measure", "{row}", "Rows of chains that a load read from the database."),
    CACHE_HITS: Metric("count", "{load}", "Loads that a state or items in the cache made shorter."),
    CACHE_MISSES: Metric("count", "{load}", "Loads that read a chain back to its anchor."),
    POOL_SECONDS: Metric("measure", "s", "Time that calls waited for a connection of the pool."),
    RETRIES: Metric("count", "{attempt}", "Attempts on another connection, by `operation` and `error`."),
    REMOVED_ROWS: Metric("count", "{row}", "Rows removed by sweeps and deletions, by `rows`."),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a call is about; None where the call names none."""

    thread_id: str | None = None
    namespace: str | None = None
    checkpoint_id: str | None = None

    @classmethod
    def of(cls, given: Any) -> Subject:
        """The subject that a config names, or a thread's id."""
        if isinstance(given, Mapping):
            settings = given.get("configurable") or {}
            found = (settings.get(name) for name in ("thread_id", "checkpoint_ns", "checkpoint_id"))
            return cls(*(None if each is None else str(each) for each in found))
        return cls(given) if isinstance(given, str) else cls()


SUBJECT: ContextVar[Any] = ContextVar("deltastore_subject", default=None)
"""What the current call was given to name its subject; read only when somebody wants to know."""


def extra(**more: Any) -> dict[str, Any]:
    """The `extra` of a log line: `thread_id`, `checkpoint_ns` and `checkpoint_id` of the current subject, and more."""
    subject = Subject.of(SUBJECT.get())
    return {
        "thread_id": subject.thread_id,
        "checkpoint_ns": subject.namespace,
        "checkpoint_id": subject.checkpoint_id,
        **more,
    }
