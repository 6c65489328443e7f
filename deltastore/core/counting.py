"""The counts of `statistics.py` made from rows: what the storage in memory does, and a model of the SQL statements."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from deltastore.core.model import CheckpointRow, MetadataRow, SegmentKind, SegmentRow, ThreadRef
from deltastore.core.statistics import Chains, Counts, Day, ThreadSize, Volume

_KINDS = {
    SegmentKind.VALUES: "values",
    SegmentKind.PAGES: "pages",
    SegmentKind.WRITES: "writes",
    SegmentKind.PACK: "packs",
}


class Rows(Protocol):
    """All rows of one thread."""

    @property
    def ref(self) -> ThreadRef:
        """The thread."""

    @property
    def checkpoints(self) -> Mapping[Any, CheckpointRow]:
        """Its checkpoints."""

    @property
    def segments(self) -> Mapping[Any, SegmentRow]:
        """Its segments."""

    @property
    def metadata(self) -> Mapping[Any, MetadataRow]:
        """Its metadata documents."""


def count(threads: Sequence[Rows], days: Sequence[tuple[int, bytes]], limit: int) -> Counts:
    """Counts everything; `days` are beginnings in Unix time with their first keys, `limit` is that of lists."""
    checkpoints = [row for thread in threads for row in thread.checkpoints.values()]
    segments = [row for thread in threads for row in thread.segments.values()]
    hidden = sum(row.hidden for row in checkpoints)
    volumes = {"checkpoints": _volume(checkpoints)}
    volumes |= {name: _volume(row for row in segments if row.kind == kind) for kind, name in _KINDS.items()}
    volumes["metadata"] = _volume(row for thread in threads for row in thread.metadata.values())
    return Counts(
        threads=len(threads),
        checkpoints=len(checkpoints) - hidden,
        hidden=hidden,
        volumes=volumes,
        chains=chains_of(sorted(row.depth for row in checkpoints)),
        disk_bytes={},
        days=count_days(threads, days),
        largest=_largest(threads, b"", limit),
        fastest=_largest(threads, days[0][1], limit) if days else (),
    )


def count_days(threads: Iterable[Rows], days: Sequence[tuple[int, bytes]]) -> tuple[Day, ...]:
    """What each day brought."""
    found = [[0, 0] for _ in range(len(days) + 1)]
    keys = [key for _, key in days]
    for thread in threads:
        rows: list[CheckpointRow | SegmentRow] = [*thread.checkpoints.values(), *thread.segments.values()]
        for row in rows:
            day = found[bisect_right(keys, row.checkpoint_id)]
            day[0] += isinstance(row, CheckpointRow)
            day[1] += len(row.payload)
    return tuple(Day(start, *counted) for (start, _), counted in zip(days, found[1:], strict=True))


def chains_of(depths: Sequence[int]) -> Chains:
    """Distances to anchors from sorted depths."""
    if not depths:
        return Chains()
    mean = round(sum(depths) / len(depths), 2)
    return Chains(depths.count(0), mean, depths[(len(depths) * 95 + 99) // 100 - 1], depths[-1])


def _volume(rows: Iterable[CheckpointRow | SegmentRow | MetadataRow]) -> Volume:
    sizes = [len(row.payload) for row in rows]
    return Volume(len(sizes), sum(sizes))


def _largest(threads: Iterable[Rows], since: bytes, limit: int) -> tuple[ThreadSize, ...]:
    sizes = []
    for thread in threads:
        rows = [row for row in thread.checkpoints.values() if row.checkpoint_id >= since]
        segments = [row for row in thread.segments.values() if row.checkpoint_id >= since]
        if rows or segments:
            size = ThreadSize(
                thread.ref.thread_id, len(rows), _volume(rows).payload_bytes + _volume(segments).payload_bytes
            )
            sizes.append((thread.ref.key, size))
    sizes.sort(key=lambda each: (-each[1].payload_bytes, each[0]))
    return tuple(size for _, size in sizes[:limit])
