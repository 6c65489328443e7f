"""Times every call that LangGraph makes to a saver, and notes what was saved, without changing what the saver does.

The saver's class is replaced by a subclass of it whose four hot methods take the time around the inherited ones. Copies
that LangGraph makes of a saver (`with_allowlist`) stay timed, and signatures are the saver's own.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from bench.saved import Saved, saved

OPERATIONS = {
    "aput": "put",
    "aput_writes": "put_writes",
    "aget_tuple": "get_tuple",
    "aget_delta_channel_history": "delta_history",
}


@dataclass
class Evidence:
    """What a saver was given for one checkpoint, and so has to give back.

    Args:
        put: How it was put, beside its values; None if only its writes were.
        channels: Values of the channels; digests of them after `seal`.
        writes: (task id, channel, value) of the pending writes; digests after `seal`.
        saved_as: Its place, from 1, among the checkpoints put while watched; 0 if only its writes were.
        writes_known: False for the last checkpoint of a turn: its writes come with the next turn, which nobody watched.
    """

    checkpoint_id: str
    put: Saved | None = None
    channels: dict[str, Any] = field(default_factory=dict)
    writes: list[tuple[str, str, Any]] = field(default_factory=list)
    saved_as: int = 0
    writes_known: bool = True

    def seal(self) -> None:
        """Replaces values by digests, so that nothing is kept in memory and nothing can change any more."""
        self.channels = {name: digest(value) for name, value in self.channels.items()}
        self.writes = sorted((task, channel, digest(value)) for task, channel, value in self.writes)


def digest(value: Any) -> str:
    """A short digest of a value as LangGraph's serializer writes it."""
    type_name, payload = JsonPlusSerializer().dumps_typed(value)
    return hashlib.blake2b(payload, digest_size=12, key=type_name.encode()).hexdigest()


class Recorder:
    """What happened on one saver: latencies by operation, checkpoints of each thread in order, evidence on demand."""

    def __init__(self) -> None:
        self.latencies_ms: dict[str, list[float]] = defaultdict(list)
        self.saved_ids: dict[str, list[str]] = defaultdict(list)
        self._watched: dict[str, Evidence] | None = None

    @contextmanager
    def watch(self, really: bool) -> Iterator[list[Evidence]]:
        """Collects evidence about all checkpoints of the root namespace that are saved within; sealed at the end."""
        self._watched = {} if really else None
        collected: list[Evidence] = []
        yield collected
        collected += [evidence for evidence in (self._watched or {}).values() if evidence.saved_as]
        collected.sort(key=lambda evidence: evidence.saved_as)
        for evidence in collected:
            evidence.seal()
            evidence.writes_known = evidence is not collected[-1]
        self._watched = None

    def take_latencies(self) -> dict[str, list[float]]:
        """The latencies since the last call of this."""
        taken, self.latencies_ms = self.latencies_ms, defaultdict(list)
        return dict(taken)

    def head_id(self, thread_id: str) -> str:
        """The id of the checkpoint saved last on a thread."""
        return self.saved_ids[thread_id][-1]

    def note_put(self, config: Any, checkpoint: Any, metadata: Any) -> None:
        """Called with the arguments of each put."""
        if config["configurable"].get("checkpoint_ns"):
            return
        self.saved_ids[config["configurable"]["thread_id"]].append(checkpoint["id"])
        if self._watched is not None:
            evidence = self._watched.setdefault(checkpoint["id"], Evidence(checkpoint["id"]))
            evidence.put = saved(config, checkpoint, metadata)
            evidence.channels = {name: _shallow(value) for name, value in checkpoint["channel_values"].items()}
            evidence.saved_as = sum(other.saved_as > 0 for other in self._watched.values()) + 1

    def note_writes(self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str) -> None:
        """Called with the arguments of each put_writes, which may come before the put of their checkpoint."""
        if self._watched is not None:
            checkpoint_id = config["configurable"]["checkpoint_id"]
            evidence = self._watched.setdefault(checkpoint_id, Evidence(checkpoint_id))
            evidence.writes += [(task_id, channel, _shallow(value)) for channel, value in writes]


def _shallow(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict) else value


def timed(saver: BaseCheckpointSaver[Any], recorder: Recorder) -> BaseCheckpointSaver[Any]:
    """Makes an open saver report to the recorder; returns the same saver."""
    base = type(saver)
    methods = {name: _timed(getattr(base, name), operation, recorder) for name, operation in OPERATIONS.items()}
    saver.__class__ = type(base.__name__, (base,), methods)
    return saver


def _timed(method: Callable[..., Any], operation: str, recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        if operation == "put":
            recorder.note_put(args[1], args[2], args[3])
        elif operation == "put_writes":
            recorder.note_writes(args[1], args[2], args[3])
        started = time.perf_counter()
        result = await method(*args, **kwargs)
        recorder.latencies_ms[operation].append((time.perf_counter() - started) * 1000)
        return result

    return call
