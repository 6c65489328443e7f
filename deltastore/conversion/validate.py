"""What callers may give, checked before anything is encoded or sent.

Limits. Namespaces and checkpoint ids are part of an index entry, which PostgreSQL bounds at about 2,700 bytes; thread
ids are not (a digest of them is), so they may have any length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard
from uuid import UUID

from deltastore.core.identifiers import pack_checkpoint_id, thread_key
from deltastore.core.model import ThreadRef
from deltastore.core.strings import has_lone_surrogate
from deltastore.errors import InvalidConfigError

NAMESPACE_BYTES_MAX = 1500
CHECKPOINT_ID_BYTES_MAX = 500
UTF8_BYTES_MAX = 4
"""Of one character."""
KEYS_MAX = 4096
"""Keys of threads and checkpoints that are remembered: a run names the same ones again and again."""

Config = Mapping[str, Any]


class Place(NamedTuple):
    """What a config names.

    Attributes:
        thread: The thread.
        namespace: The namespace.
        checkpoint_id: The ordered key of the checkpoint, or None if it names none.
    """

    thread: ThreadRef
    namespace: str
    checkpoint_id: bytes | None


def place_of(config: Any) -> Place:
    """What a config names: the thread, the namespace (the root namespace `""` if none) and the checkpoint, if any."""
    settings = configurable(config)
    if "thread_id" not in settings:
        raise InvalidConfigError("the config has no thread_id", hint='pass {"configurable": {"thread_id": "..."}}')
    return Place(
        thread(settings["thread_id"]),
        namespace(settings.get("checkpoint_ns")),
        _key_of(settings.get("checkpoint_id")),
    )


def configurable(config: Any) -> Mapping[str, Any]:
    """`config["configurable"]`. Raises `InvalidConfigError` if there is none."""
    found = config.get("configurable") if _is_mapping(config) else None
    if not _is_mapping(found):
        raise InvalidConfigError(
            f"a config with a 'configurable' mapping is expected, got {_short(config)}",
            hint='pass {"configurable": {"thread_id": "..."}}',
        )
    return found


def thread(thread_id: Any) -> ThreadRef:
    """A thread by its id: text, or an integer or UUID, which mean their text."""
    if isinstance(thread_id, UUID) or (isinstance(thread_id, int) and not isinstance(thread_id, bool)):
        thread_id = str(thread_id)
    text = _text(thread_id, "thread_id")
    if not text:
        raise InvalidConfigError("thread_id is empty", hint="give every conversation an id of its own")
    return _thread(text)


@lru_cache(KEYS_MAX)
def _thread(text: str) -> ThreadRef:
    return ThreadRef(thread_key(text), text)


def namespace(value: Any) -> str:
    """A namespace; None means the root namespace."""
    return "" if value is None else _bounded(_text(value, "checkpoint_ns"), "checkpoint_ns", NAMESPACE_BYTES_MAX)


def checkpoint_key_of(config: Config) -> bytes | None:
    """The ordered key of the checkpoint that a config names, or None if it names none."""
    return _key_of(configurable(config).get("checkpoint_id"))


def _key_of(value: Any) -> bytes | None:
    return None if value is None or value == "" else checkpoint_key(value)


def held_key_of(config: Config, own: bytes | None) -> bytes | None:
    """The smallest of `own`, the key that a config names, and the keys of the graphs around a subgraph."""
    around = configurable(config).get("checkpoint_map")
    named = list(around.values()) if isinstance(around, Mapping) else []
    keys = [checkpoint_key(value) for value in named if isinstance(value, str) and value]
    return min(keys if own is None else [*keys, own], default=None)


def checkpoint_key(value: Any) -> bytes:
    """The ordered key of a checkpoint id."""
    return _key(checkpoint_id(value))


def checkpoint_id(value: Any) -> str:
    """A checkpoint id: text, or a UUID, which means its text."""
    if isinstance(value, UUID):
        value = str(value)
    text = _bounded(_text(value, "checkpoint id"), "checkpoint id", CHECKPOINT_ID_BYTES_MAX)
    if not text:
        raise InvalidConfigError("the checkpoint id is empty")
    return text


_key = lru_cache(KEYS_MAX)(pack_checkpoint_id)


def checkpoint(value: Any) -> None:
    """Whether a checkpoint has what every checkpoint has, and its parts have the right form."""
    mapping(value, "checkpoint")
    missing = [key for key in ("id", "channel_versions") if key not in value]
    if missing:
        raise InvalidConfigError(f"the checkpoint has no {' and no '.join(missing)}")
    for key in ("channel_versions", "versions_seen", "channel_values"):
        mapping(value.get(key, {}), key)
    for node, seen in value.get("versions_seen", {}).items():
        mapping(seen, f"versions_seen[{node!r}]")


def mapping(value: Any, what: str) -> None:
    """Whether something is a mapping."""
    if not _is_mapping(value):
        raise InvalidConfigError(f"{what} must be a mapping, got {_short(value)}")


def _is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    return type(value) is dict or isinstance(value, Mapping)


def names(values: Any, what: str) -> list[str]:
    """A sequence of names."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | set | frozenset):
        raise InvalidConfigError(f"{what} must be a sequence of names, got {_short(values)}")
    return [name(value, what) for value in values]


def name(value: Any, what: str) -> str:
    """The name of a channel, node or task."""
    return _text(value, what)


def version(value: Any, channel: str) -> int | float | str:
    """A channel version: an integer of 64 bits, a finite float or a text."""
    fits = (
        (type(value) is int and -(2**63) <= value < 2**64)
        or (type(value) is float and math.isfinite(value))
        or (isinstance(value, str) and not has_lone_surrogate(value))
    )
    if not fits:
        raise InvalidConfigError(
            f"the version of channel {channel!r} must be a 64-bit integer, a finite float or a text",
            detail=f"got {_short(value)}",
        )
    return str.__str__(value) if isinstance(value, str) else value


def limit(value: Any) -> int | None:
    """How many checkpoints to list: None for all, or a non-negative integer."""
    if value is None or (type(value) is int and value >= 0):
        return value
    raise InvalidConfigError(f"limit must be None or a non-negative integer, got {_short(value)}")


def filter_of(value: Any) -> Mapping[str, Any]:
    """A metadata filter."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidConfigError(f"filter must map metadata keys to values, got {_short(value)}")
    return value


def before_of(value: Any) -> bytes | None:
    """The ordered key of the checkpoint that `before` names."""
    if value is None:
        return None
    key = checkpoint_key_of(value)
    if key is None:
        raise InvalidConfigError(
            "before names no checkpoint", hint='pass {"configurable": {"checkpoint_id": "..."}}, or leave it out'
        )
    return key


def texts(values: Any, what: str) -> list[str]:
    """A sequence of ids, none of which may be missing; a bare string is refused."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | set | frozenset):
        raise TypeError(f"{what} must be a sequence of ids, not {type(values).__name__}")
    return [str(value) if isinstance(value, int | UUID) else _text(value, what) for value in values]


def _text(value: Any, what: str) -> str:
    if type(value) is str and value.isascii() and "\x00" not in value:
        return value
    if not isinstance(value, str):
        raise InvalidConfigError(f"{what} must be a text, got {_short(value)}")
    if "\x00" in value or has_lone_surrogate(value):
        found = "a NUL character" if "\x00" in value else "a lone surrogate"
        raise InvalidConfigError(f"{what} holds {found}, which PostgreSQL cannot store", detail=f"got {_short(value)}")
    return str.__str__(value)  # of a text that is an enum, too, the text


def _bounded(text: str, what: str, bytes_max: int) -> str:
    if len(text) * UTF8_BYTES_MAX > bytes_max and len(text.encode()) > bytes_max:
        raise InvalidConfigError(
            f"{what} is too long: {len(text.encode())} bytes of UTF-8, at most {bytes_max} are possible",
            detail=f"it begins with {text[:40]!r}",
        )
    return text


def _short(value: Any) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 80 else f"{text[:77]}..."
