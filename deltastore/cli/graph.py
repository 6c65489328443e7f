"""A tree of checkpoints as lines of text, newest first, as `git log --graph` draws it.

The parent of a checkpoint comes later, so what has to be remembered is one lane for each parent that is awaited: memory
does not grow with the history. A branch joins the lane of its parent as soon as there is one, so lanes are few even
where a checkpoint has very many children. A parent that does not come later (ids need not sort) is named, not drawn.
"""

from __future__ import annotations


class Graph:
    """Draws checkpoints in the order in which they are given."""

    def __init__(self) -> None:
        self._lanes: list[str] = []

    def is_awaited(self, checkpoint_id: str) -> bool:
        """Whether a child of this checkpoint was drawn."""
        return checkpoint_id in self._lanes

    def node(self, checkpoint_id: str, parent_id: str | None) -> tuple[str, list[str]]:
        """What stands before the checkpoint's text, and the lines below it.

        Args:
            checkpoint_id: The checkpoint.
            parent_id: Its parent, or None if none is to be drawn.
        """
        if checkpoint_id not in self._lanes:
            self._lanes.append(checkpoint_id)
        column = self._lanes.index(checkpoint_id)
        before = " ".join("*" if at == column else "|" for at in range(len(self._lanes)))
        if parent_id is None:
            del self._lanes[column]
            return before, [self._shift(column)] if column < len(self._lanes) else []
        other = self._lanes.index(parent_id) if parent_id in self._lanes else column
        self._lanes[column] = parent_id
        return before, [self._join(*sorted((column, other)))] if other != column else []

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
