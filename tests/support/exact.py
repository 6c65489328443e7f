"""Values in a form whose equality means: same values, same types, same order.

`==` is too kind for tests of a saver: `1 == True == 1.0`, `0.0 == -0.0`, a message equals one of another class.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Send
from pydantic import BaseModel


def exact(value: Any) -> Any:
    """A value as tuples of type names and plain parts."""
    kind = type(value).__qualname__
    if isinstance(value, float):
        return kind, float(value).hex()
    if isinstance(value, dict):
        return kind, tuple((exact(key), exact(child)) for key, child in value.items())
    if isinstance(value, list | tuple | deque):
        return kind, tuple(exact(child) for child in value)
    if isinstance(value, set | frozenset):
        return kind, tuple(sorted((exact(child) for child in value), key=repr))
    if isinstance(value, BaseModel):
        return kind, exact(dict(value.__dict__)), exact(value.__pydantic_extra__)
    if isinstance(value, BaseException):
        return kind, exact(value.args)
    if isinstance(value, Send):
        return kind, value.node, exact(value.arg)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return kind, tuple((field.name, exact(getattr(value, field.name))) for field in dataclasses.fields(value))
    return kind, value


def unordered(mapping: Mapping[str, Any]) -> Any:
    """A mapping whose order has no meaning."""
    return tuple((key, exact(mapping[key])) for key in sorted(mapping))


def address(config: Any) -> tuple[str, str, str] | None:
    """What a config says about where a checkpoint is; stock savers give back whatever else the caller's config had."""
    if config is None:
        return None
    settings = config["configurable"]
    return str(settings["thread_id"]), settings.get("checkpoint_ns", ""), settings["checkpoint_id"]


def exact_tuple(found: CheckpointTuple | None) -> Any:
    """All that a checkpoint tuple says."""
    if found is None:
        return None
    checkpoint: dict[str, Any] = dict(found.checkpoint)
    values = checkpoint.pop("channel_values")
    versions = checkpoint.pop("channel_versions")
    seen = checkpoint.pop("versions_seen")
    return {
        "config": address(found.config),
        "parent": address(found.parent_config),
        "metadata": unordered(found.metadata),
        "values": unordered(values),
        "versions": unordered(versions),
        "seen": {node: unordered(each) for node, each in seen.items()},
        "rest": unordered(checkpoint),
        "pending": [(task, channel, exact(value)) for task, channel, value in found.pending_writes or []],
    }


def exact_history(history: Any) -> Any:
    """All that the history of DeltaChannels says."""
    return {
        channel: {
            "seed": exact(entry["seed"]) if "seed" in entry else "none",
            "writes": [(task, name, exact(value)) for task, name, value in entry["writes"]],
        }
        for channel, entry in history.items()
    }
