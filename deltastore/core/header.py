"""The header of a checkpoint: all of it but the channel values, whole or as the difference from the parent's.

A super-step bumps the versions of a few channels and notes what one or two nodes have seen; everything else repeats.
So a difference names channels and nodes by their *position* in the parent's header, groups channels by their new
version (LangGraph gives all channels of a super-step the same one), and says of what a node has seen only where it is
not simply the parent's version of the channel. Forty bytes are usual.

Positions make the order of names part of the state: `apply` defines it, and whoever has written a difference goes on
with the header that `apply` gives, never with the one it was made from. `difference` and `apply` are inverse:
`apply(parent, difference(parent, child)) == child` for every two headers, whatever changed between them.

Versions are compared with their types: 1, 1.0 and True are three versions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

Version = int | float | str
Versions = dict[str, Version]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ABSENT = False
"""Stands for a missing `updated_channels` key; None is one of its values."""


@dataclass(frozen=True, slots=True)
class Header:
    """A checkpoint without its id and channel values.

    Attributes:
        versions: `channel_versions`.
        seen: `versions_seen`, a node's name to the versions it has seen.
        updated: `updated_channels`: a list, None, or `ABSENT`.
        timestamp: `ts`.
        extra: Every other key of the checkpoint (such as `v`) to its value as one encoded item.
    """

    versions: Versions
    seen: dict[str, Versions]
    updated: list[str] | bool | None = ABSENT
    timestamp: str | None = None
    extra: dict[str, bytes] = field(default_factory=dict)


def same(left: Any, right: Any) -> bool:
    """Equal and of the same type."""
    return type(left) is type(right) and bool(left == right)


def pack(header: Header) -> list[Any]:
    """A whole header as MessagePack-able lists and maps."""
    return [header.timestamp, header.versions, header.seen, header.updated, header.extra]


def unpack(packed: list[Any]) -> Header:
    """The inverse of `pack`."""
    timestamp, versions, seen, updated, extra = packed
    return Header(versions, seen, updated, timestamp, extra)


def difference(parent: Header, child: Header) -> list[Any]:
    """What makes the child's header out of the parent's; its layout is in `docs/format.md`."""
    channels = {name: position for position, name in enumerate(parent.versions)}
    nodes = {name: position for position, name in enumerate(parent.seen)}
    groups: list[list[Any]] = []
    for name, version in child.versions.items():
        before = parent.versions.get(name)
        if before is version or same(before, version):
            continue
        for group in groups:
            if same(group[0], version):
                break
        else:
            groups.append(group := [version, []])
        group[1].append(channels.get(name, name))
    removed = [position for name, position in channels.items() if name not in child.versions]
    implied, explicit, forgotten = _seen_difference(parent, child, channels, nodes)
    updated = child.updated
    if isinstance(updated, list):
        updated = [channels.get(name, name) for name in updated]  # type: ignore[misc]
    extra = {name: item for name, item in child.extra.items() if parent.extra.get(name) != item}
    gone = [name for name in parent.extra if name not in child.extra]
    elapsed = _elapsed(parent.timestamp, child.timestamp)
    packed = [elapsed, groups, updated, implied, removed, explicit, forgotten, extra, gone]
    while len(packed) > 3 and not packed[-1]:
        packed.pop()
    return packed


def apply(parent: Header, packed: list[Any]) -> Header:
    """The child's header from the parent's and a `difference`."""
    defaults: list[Any] = [None, [], ABSENT, [], [], [], [], {}, []]
    elapsed, groups, updated, implied, removed, explicit, forgotten, extra, gone = packed + defaults[len(packed) :]
    channels, nodes = list(parent.versions), list(parent.seen)

    def channel(reference: int | str) -> str:
        return channels[reference] if isinstance(reference, int) else reference

    def node(reference: int | str) -> str:
        return nodes[reference] if isinstance(reference, int) else reference

    versions = dict(parent.versions)
    for position in removed:
        del versions[channels[position]]
    for version, references in groups:
        versions.update((channel(reference), version) for reference in references)
    seen = dict(parent.seen)
    for reference, channel_references in forgotten:
        if channel_references is None:
            del seen[node(reference)]
        else:
            dropped = {channel(each) for each in channel_references}
            seen[node(reference)] = {name: v for name, v in seen[node(reference)].items() if name not in dropped}
    for reference, channel_references in implied:
        names = [channel(each) for each in channel_references]
        seen[node(reference)] = {**seen.get(node(reference), {}), **{name: parent.versions[name] for name in names}}
    for reference, pairs in explicit:
        seen[node(reference)] = {**seen.get(node(reference), {}), **{channel(each): v for each, v in pairs}}
    names_updated = [channel(each) for each in updated] if isinstance(updated, list) else updated
    kept = {name: item for name, item in parent.extra.items() if name not in gone}
    return Header(versions, seen, names_updated, _later(parent.timestamp, elapsed), {**kept, **extra})


def _seen_difference(
    parent: Header, child: Header, channels: dict[str, int], nodes: dict[str, int]
) -> tuple[list[Any], list[Any], list[Any]]:
    implied: list[Any] = []
    explicit: list[Any] = []
    forgotten: list[Any] = [[position, None] for name, position in nodes.items() if name not in child.seen]
    for name, versions in child.seen.items():
        before = parent.seen.get(name)
        if before is not None and _repeats(versions, before):
            continue
        known = before or {}
        reference = nodes.get(name, name)
        changed = {c: v for c, v in versions.items() if not (c in known and same(known[c], v))}
        usual = [channels[c] for c, v in changed.items() if c in channels and same(parent.versions[c], v)]
        unusual = [
            [channels.get(c, c), v] for c, v in changed.items() if not (c in channels and same(parent.versions[c], v))
        ]
        lost = [channels.get(c, c) for c in known if c not in versions]
        if lost:
            forgotten.append([reference, lost])
        if usual or (before is None and not unusual):
            implied.append([reference, usual])
        if unusual:
            explicit.append([reference, unusual])
    return implied, explicit, forgotten


def _repeats(versions: Versions, before: Versions) -> bool:
    """Whether nothing changed, as far as that is quickly seen."""
    return (
        versions == before
        and [*versions] == [*before]
        and [*map(type, versions.values())] == [*map(type, before.values())]
    )


@lru_cache(1024)
def _microseconds(timestamp: str | None) -> int | None:
    """Microseconds since 1970 of a timestamp in Python's own UTC form, or None for any other text."""
    if timestamp is None:
        return None
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    if moment.tzinfo is None or moment.isoformat() != timestamp or not timestamp.endswith("+00:00"):
        return None
    return (moment - EPOCH) // MICROSECOND


def _elapsed(earlier: str | None, later: str | None) -> int | str | None:
    start, end = _microseconds(earlier), _microseconds(later)
    return later if start is None or end is None else end - start


def _later(earlier: str | None, elapsed: int | str | None) -> str | None:
    start = _microseconds(earlier)
    if not isinstance(elapsed, int) or start is None:
        return elapsed if not isinstance(elapsed, int) else None
    return (EPOCH + timedelta(microseconds=start + elapsed)).isoformat()
