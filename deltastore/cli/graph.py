"""A tree of checkpoints as lines of text, newest first, as `git log --graph` draws it.

The parent of a checkpoint comes later, so what has to be remembered is one lane for each branch that is open: memory
does not grow with the history. A parent that does not come later (ids need not sort) is named instead of drawn.
"""

from __future__ import annotations


class Graph:
    """Draws checkpoints in the order in which they are given."""

    def __init__(self) -> None:
        self._lanes: list[str] = []

    def is_awaited(self, checkpoint_id: str) -> bool:
        """Whether a child of this checkpoint was drawn."""
        return checkpoint_id in self._lanes

    def node(self, checkpoint_id: str, parent_id: str | None) -> tuple[list[str], str, list[str]]:
        """Lines above the checkpoint, what stands before its text, and lines below.

        Args:
            checkpoint_id: The checkpoint.
            parent_id: Its parent, or None if none is to be drawn.
        """
        above = []
        waiting = [at for at, awaited in enumerate(self._lanes) if awaited == checkpoint_id]
        if not waiting:
            waiting = [len(self._lanes)]
            self._lanes.append(checkpoint_id)
        column = waiting[0]
        while checkpoint_id in self._lanes[column + 1 :]:
            above.append(self._join(column, self._lanes.index(checkpoint_id, column + 1)))
        before = " ".join("*" if at == column else "|" for at in range(len(self._lanes)))
        if parent_id is not None:
            self._lanes[column] = parent_id
            return above, before, []
        del self._lanes[column]
        below = [self._shift(column)] if column < len(self._lanes) else []
        return above, before, below

    def _join(self, column: int, other: int) -> str:
        """Moves lane `other` into `column`, and those behind it to the left."""
        cells = list(" ".join("|" for _ in self._lanes))
        for at in range(other, len(self._lanes)):
            cells[2 * at - 1], cells[2 * at] = "/", " "
        for at in range(2 * column + 1, 2 * other - 1, 2):
            cells[at] = "_"
        del self._lanes[other]
        return "".join(cells).rstrip()

    def _shift(self, column: int) -> str:
        """Moves the lanes behind `column`, which has ended, to the left."""
        cells = list(" ".join("|" if at < column else " " for at in range(len(self._lanes) + 1)))
        for at in range(column + 1, len(self._lanes) + 1):
            cells[2 * at - 1] = "/"
        return "".join(cells).rstrip()
