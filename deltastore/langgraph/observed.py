"""Calls that know whom they are about, and report to an observer if there is one.

Around `Calls`, whatever methods it has: the subject of a call is taken from what the caller gave, and is there for log
lines and spans wherever the call goes. A call's duration counts from the caller's side: encoding, and the way to the
engine's loop, are part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, cast

from deltastore.langgraph.calls import Calls
from deltastore.observing import CALL_SECONDS, SUBJECT, Observer, Subject

_UNREPORTED = frozenset({"list"})
"""Run once for each listed checkpoint; what it costs is seen in the storage."""

_Run = Callable[[Any], Coroutine[Any, Any, Any]]


def observed_calls(calls: Calls, observer: Observer | None) -> Calls:
    """The calls, each about its subject."""
    return cast("Calls", _ObservedCalls(calls, observer))


class _ObservedCalls:
    __slots__ = ("_calls", "_observer")

    def __init__(self, calls: Calls, observer: Observer | None) -> None:
        self._calls = calls
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        make = getattr(self._calls, name)
        observer = None if name in _UNREPORTED else self._observer

        def made(*given: Any, **options: Any) -> Any:
            started = 0.0 if observer is None else monotonic()
            call = make(*given, **options)
            if isinstance(call, tuple):
                call, stored = call
                return _about(stored, _reported(observer, name, stored, call, started)), stored
            subject = given[0] if given else None
            return call and _about(subject, _reported(observer, name, subject, call, started))

        return made


def _about(subject: Any, call: _Run) -> _Run:
    async def run(engine: Any) -> Any:
        token = SUBJECT.set(subject)
        try:
            return await call(engine)
        finally:
            SUBJECT.reset(token)

    return run


def _reported(observer: Observer | None, name: str, subject: Any, call: _Run, started: float) -> _Run:
    if observer is None:
        return call

    async def run(engine: Any) -> Any:
        attributes = {"call": name}
        try:
            with observer.span(f"deltastore.{name}", _named(Subject.of(subject))):
                return await call(engine)
        except BaseException as error:
            attributes["error"] = type(error).__name__
            raise
        finally:
            observer.measure(CALL_SECONDS, monotonic() - started, attributes)

    return run


def _named(subject: Subject) -> dict[str, str]:
    given = {
        "deltastore.thread_id": subject.thread_id,
        "deltastore.checkpoint_ns": subject.namespace,
        "deltastore.checkpoint_id": subject.checkpoint_id,
    }
    return {name: value for name, value in given.items() if value is not None}
