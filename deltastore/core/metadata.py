"""Checkpoint metadata in two parts: what changes with every checkpoint, and what many share.

`source`, `step` and the DeltaChannel counters change all the time and are small: they are kept in each checkpoint's
payload. All the rest (run id, user, tags, parents of a subgraph) repeats from checkpoint to checkpoint: it is stored
once in a document of its own, with a JSON form beside it that PostgreSQL can search.

The JSON form is for searching only. JSON knows fewer values than Python and `jsonb` fewer than JSON, so it is a
projection: NUL and lone surrogates become U+FFFD, NaN and infinities and every other kind of value their text, tuples
and sets lists. A filter goes through the same projection, so it finds what it names; what is returned is exact.
"""

from __future__ import annotations

import json
import marshal
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from deltastore.core.imprint import MARSHAL_VERSION, is_plain

SOURCES = ("input", "loop", "update", "fork")
COUNTERS = "counters_since_delta_snapshot"
VOLATILE = frozenset({"source", "step", COUNTERS})


class Shared(NamedTuple):
    """The shared part of metadata, encoded.

    Attributes:
        item: As one item.
        document: Its JSON form.
        contents: What `marshal` makes of it, which tells equal metadata; None if that is not told by it.
    """

    item: bytes
    document: str
    contents: bytes | None

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return len(self.item) + len(self.document) + len(self.contents or b"")


def contents_of(shared: dict[str, Any]) -> bytes | None:
    """What `marshal` makes of metadata, if it takes it. Equal contents of plain metadata mean equal metadata."""
    try:
        return marshal.dumps(shared, MARSHAL_VERSION)
    except ValueError:
        return None


def encoded(shared: Mapping[str, Any], item: bytes, contents: bytes | None) -> Shared:
    """Shared metadata with its item and what `contents_of` gave for it."""
    return Shared(item, searchable(shared), contents if is_plain([shared]) else None)


def split(metadata: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Metadata as (what changes: `[source, step, counters]` with the tail left out where empty, what is shared).

    A volatile key whose value has an unusual form stays in the shared part, so that it comes back exactly.
    """
    shared = dict(metadata)
    source = SOURCES.index(shared.pop("source")) if shared.get("source") in SOURCES else None
    step = shared.pop("step") if type(shared.get("step")) is int and abs(shared["step"]) < 2**63 else None
    counters = None
    if _are_counters(shared.get(COUNTERS)):
        counters = {name: list(pair) for name, pair in shared.pop(COUNTERS).items()}
    volatile = [source, step, counters]
    while volatile and volatile[-1] is None:
        volatile.pop()
    return volatile, shared


def delta_channels(volatile: list[Any]) -> frozenset[str]:
    """DeltaChannels that grew since their last snapshot, as LangGraph counts in the metadata."""
    counters = [*volatile, None, None, None][2]
    return frozenset(counters or ())


def join(volatile: list[Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `split`."""
    source, step, counters = [*volatile, None, None, None][:3]
    metadata: dict[str, Any] = {}
    if source is not None:
        metadata["source"] = SOURCES[source]
    if step is not None:
        metadata["step"] = step
    metadata.update(shared)
    if counters is not None:
        metadata[COUNTERS] = counters
    return metadata


def searchable(metadata: Mapping[str, Any]) -> str:
    """The JSON text that stands for metadata, or for a filter, in searches."""
    return json.dumps(projection(metadata), allow_nan=False, ensure_ascii=False)


def projection(value: Any) -> Any:
    """A value as `jsonb` can hold it."""
    if value is None or isinstance(value, bool | int):
        return value if value is None or isinstance(value, bool) else int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return str.__str__(value).encode("utf-8", "surrogatepass").decode("utf-8", "replace").replace("\x00", "\ufffd")
    if isinstance(value, Mapping):
        return {
            projection(key if isinstance(key, str) else str(key)): projection(child) for key, child in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [projection(child) for child in value]
    return projection(str(value))


def is_projection(found: Any, value: Any) -> bool:
    """Whether `found`, read from JSON, is the projection of a value.

    Kinds of values that JSON does not know are taken as they are: their texts may differ between processes.
    """
    if isinstance(value, Mapping):
        expected = {projection(key if isinstance(key, str) else str(key)): child for key, child in value.items()}
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(is_projection(found[key], child) for key, child in expected.items())
        )
    if isinstance(value, list):
        return (
            isinstance(found, list)
            and len(found) == len(value)
            and all(is_projection(one, other) for one, other in zip(found, value, strict=True))
        )
    if value is None or type(value) in (bool, str):
        return type(found) is type(value) and bool(found == projection(value))
    if type(value) in (int, float):
        return _is_number(found, projection(value))
    return True


def _is_number(found: Any, expected: float | str) -> bool:
    """Whether two numbers are the same, as far as a float tells: `jsonb` writes a large one as an integer."""
    if isinstance(found, bool) or not isinstance(found, int | float) or isinstance(expected, str):
        return isinstance(found, str) and found == expected
    try:
        return found == expected or (type(expected) is float and float(found) == expected)
    except OverflowError:
        return False


def _are_counters(value: Any) -> bool:
    return type(value) is dict and all(
        type(name) is str and type(pair) in (list, tuple) and len(pair) == 2 and all(type(n) is int for n in pair)
        for name, pair in value.items()
    )
