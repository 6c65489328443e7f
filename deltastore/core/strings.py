"""Text that UTF-8, or PostgreSQL, cannot hold."""

from __future__ import annotations

import dataclasses
from collections import deque
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
    """The path (such as `[3]['content']`) to the first string with a lone surrogate inside a value, or None.

    The value is one that a serializer took, so it does not hold itself; it may be nested deeply.
    """
    waiting: list[tuple[_Link, Any]] = [(None, value)]
    while waiting:
        link, value = waiting.pop()
        if isinstance(value, str):
            if has_lone_surrogate(value):
                return _path(link)
        elif not isinstance(value, int | float | bytes | None):
            waiting += [((link, form, name), child) for form, name, child in reversed(_children(value))]
    return None


_Link = tuple[Any, str, Any] | None
"""How a part was reached: the link of the whole, and the form and name of the part."""


def _path(link: _Link) -> str:
    path = ""
    while link is not None:
        link, form, name = link
        path = form.format(name) + path
    return path


def _children(value: Any) -> list[tuple[str, Any, Any]]:
    """The parts of a value that serializers take, each with the form of its place and its name."""
    if isinstance(value, dict):
        return [part for key, child in value.items() for part in (("[key {!r}]", key, key), ("[{!r}]", key, child))]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [("[{}]", position, child) for position, child in enumerate(value)]
    return [(".{}", name, child) for name, child in _attributes(value).items()]


def _attributes(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}
    if hasattr(value, "get_secret_value"):
        return {"get_secret_value()": value.get_secret_value()}
    if hasattr(value, "node") and hasattr(value, "arg"):  # LangGraph's Send
        return {"node": value.node, "arg": value.arg}
    return {}
