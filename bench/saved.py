"""What a saver tells about a checkpoint beside its values: its parent, its metadata, its versions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from bench.errors import NotVerifiedError

FIELDS = ("v", "id", "ts", "channel_versions", "versions_seen")


@dataclass(frozen=True)
class Saved:
    """A checkpoint as it was put, without its values.

    Args:
        parent_id: None for the first one of a thread.
        metadata: As JSON, by key.
        fields: `FIELDS` of the checkpoint, as JSON.
    """

    checkpoint_id: str
    parent_id: str | None
    metadata: dict[str, str]
    fields: dict[str, str]


def saved(config: Any, checkpoint: Any, metadata: Any) -> Saved:
    """What the arguments of a put say."""
    parent_id = config["configurable"].get("checkpoint_id")
    return Saved(checkpoint["id"], parent_id, _texts(metadata), _texts({name: checkpoint[name] for name in FIELDS}))


def check_saved(stored: CheckpointTuple, expected: Saved) -> None:
    """Compares a stored checkpoint with how it was put.

    Raises:
        NotVerifiedError: Something is missing or other than it was put; more metadata may be there.
    """
    where = f"checkpoint {expected.checkpoint_id}"
    parent_id = parent_id_of(stored)
    if parent_id != expected.parent_id:
        raise NotVerifiedError(f"{where}: parent is {parent_id}, expected {expected.parent_id}")
    kinds = (("metadata", expected.metadata, stored.metadata), ("", expected.fields, stored.checkpoint))
    for kind, wanted, found in kinds:
        texts = _texts(found)
        for name, text in wanted.items():
            if texts.get(name) != text:
                raise NotVerifiedError(f"{where}: {f'{kind} {name}'.strip()} is {texts.get(name)}, expected {text}")


def parent_id_of(stored: CheckpointTuple) -> str | None:
    """The checkpoint that a stored one followed; None for the first one of a thread."""
    return stored.parent_config["configurable"]["checkpoint_id"] if stored.parent_config else None


def _texts(values: Any) -> dict[str, str]:
    """Values as JSON, so that a tuple equals the list that JSON makes of it."""
    return {name: json.dumps(value, sort_keys=True, default=repr) for name, value in values.items()}
