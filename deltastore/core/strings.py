"""Text that UTF-8, or PostgreSQL, cannot hold."""

from __future__ import annotations

import dataclasses
from typing import Any


def has_lone_surrogate(text: str) -> bool:
    """Whether a string holds half of a surrogate pair, which has no UTF-8 form."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def find_lone_surrogate(value: Any) -> str | None:
    """The path (such as `[3]['content']`) to the first string with a lone surrogate inside a value, or None."""
    if isinstance(value, str):
        return "" if has_lone_surrogate(value) else None
    if isinstance(value, int | float | bytes | None):
        return None
    for label, child in _children(value):
        path = find_lone_surrogate(child)
        if path is not None:
            return f"{label}{path}"
    return None


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [pair for key, child in value.items() for pair in ((f"[key {key!r}]", key), (f"[{key!r}]", child))]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{position}]", child) for position, child in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
    if hasattr(value, "model_dump"):
        return [(f".{name}", child) for name, child in vars(value).items()]
    return []
