"""JSON containment as PostgreSQL's `jsonb @>` has it, for the storage in memory.

An object contains another if it has all its keys with values that contain theirs; an array contains another if each
element of the other is contained in some element of it, whatever the order and number; scalars are equal or not, with
numbers compared by value. At the top only, an array also contains a bare scalar that is one of its elements.
"""

from __future__ import annotations

import json
from decimal import Decimal


def contains(document: str, query: str) -> bool:
    """Whether the JSON text `document` contains the JSON text `query`."""
    outer, inner = (json.loads(text, parse_float=Decimal) for text in (document, query))
    if isinstance(outer, list) and not isinstance(inner, list | dict):
        return any(_contains(element, inner) for element in outer)
    return _contains(outer, inner)


def _contains(outer: object, inner: object) -> bool:
    if isinstance(outer, dict) and isinstance(inner, dict):
        return all(key in outer and _contains(outer[key], value) for key, value in inner.items())
    if isinstance(outer, list) and isinstance(inner, list):
        return all(any(_contains(candidate, wanted) for candidate in outer) for wanted in inner)
    if isinstance(outer, bool) or isinstance(inner, bool):
        return outer is inner
    if isinstance(outer, dict | list) or isinstance(inner, dict | list):
        return False
    return outer == inner
