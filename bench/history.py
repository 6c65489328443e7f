"""The history that a saver lists, compared with the checkpoints in the order in which they were saved.

A whole history is not listed: that would decode every value of the run once. What is listed are the newest checkpoints
and those of the watched turns with the one before them, so the first and the last checkpoint are among them. Each list
is compared with what was saved there, one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from bench.errors import NotVerifiedError
from bench.saved import Saved, check_saved, parent_id_of
from bench.stage import Graph, thread_config

NEWEST = 50
SOURCES = ("input", "loop", "update", "fork")


@dataclass(frozen=True)
class History:
    """The checkpoints of a thread as they were saved.

    Args:
        ids: Of all of them, oldest first.
        known: Those that were watched, by id.
        is_linear: Whether each is the parent of the next.
    """

    ids: Sequence[str]
    known: Mapping[str, Saved]
    is_linear: bool

    async def check(self, graph: Graph, thread_id: str) -> None:
        """Lists parts of the history and compares them with what was saved.

        Raises:
            NotVerifiedError: A checkpoint is not listed, or at another place, or other than it was put.
        """
        saver: Any = graph.checkpointer
        for start, end in self._parts():
            before = thread_config(thread_id, self.ids[end]) if end < len(self.ids) else None
            limit = end - start + (start == 0)  # one more would be there only if it was never saved
            listed = [item async for item in saver.alist(thread_config(thread_id), before=before, limit=limit)]
            self._check_part(start, end, listed)

    def _parts(self) -> Iterator[tuple[int, int]]:
        """First and last place (the latter not included) of each part to list."""
        count = len(self.ids)
        yield max(0, count - NEWEST), count
        watched = [place for place, checkpoint_id in enumerate(self.ids) if checkpoint_id in self.known]
        for _, neighbours in itertools.groupby(enumerate(watched), key=lambda pair: pair[1] - pair[0]):
            places = [place for _, place in neighbours]
            yield max(0, places[0] - 1), places[-1] + 1

    def _check_part(self, start: int, end: int, listed: Sequence[CheckpointTuple]) -> None:
        found_ids = [item.checkpoint["id"] for item in listed]
        for place, (found, expected) in enumerate(itertools.zip_longest(found_ids, reversed(self.ids[start:end]))):
            if found != expected:
                raise NotVerifiedError(
                    f"history: {len(found_ids)} checkpoints are listed up to {self.ids[end - 1]}, expected "
                    f"{end - start}; number {place + 1} of them, newest first, is {found}, expected {expected}"
                )
        for place, item in zip(reversed(range(start, end)), listed, strict=True):
            parent_id = self.ids[place - 1] if place else None
            self._check_listed(item, parent_id)
        steps = [item.metadata["step"] for item in listed if "step" in item.metadata]
        if self.is_linear and any(older >= newer for newer, older in itertools.pairwise(steps)):
            raise NotVerifiedError(
                f"history: steps up to {self.ids[end - 1]} are {steps}, expected each below the one before"
            )

    def _check_listed(self, item: CheckpointTuple, parent_id: str | None) -> None:
        where = f"checkpoint {item.checkpoint['id']} in the history"
        if expected := self.known.get(item.checkpoint["id"]):
            check_saved(item, expected)
        if self.is_linear and parent_id_of(item) != parent_id:
            raise NotVerifiedError(f"{where}: parent is {parent_id_of(item)}, expected {parent_id}")
        source = item.metadata.get("source")  # a checkpoint that only holds the writes of a turn has none
        if source is not None and source not in SOURCES:
            raise NotVerifiedError(f"{where}: source is {source!r}, expected one of {', '.join(SOURCES)}")
        if bare := set(item.checkpoint["channel_values"]) - set(item.checkpoint["channel_versions"]):
            raise NotVerifiedError(f"{where}: no version of {', '.join(sorted(bare))}, expected one for each channel")
