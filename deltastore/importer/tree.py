"""The order in which the checkpoints of a thread are imported: each after its parent, branch by branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from deltastore.importer.source import Node, SkipThread

T = TypeVar("T")


def order_of(nodes: Iterable[Node]) -> list[Node]:
    """The checkpoints so that each follows its parent, and a branch is finished before the next one begins.

    So only few checkpoints have children that are still to come. A checkpoint whose parent is not there is a root.

    Raises:
        SkipThread: Checkpoints are each other's ancestors.
    """
    by_key = {node.key: node for node in nodes}
    children: dict[tuple[str, str], list[Node]] = {}
    roots: list[Node] = []
    for node in sorted(by_key.values(), key=lambda each: each.key):
        parent = None if node.parent_id is None else (node.namespace, node.parent_id)
        if parent in by_key:
            children.setdefault(parent, []).append(node)
        else:
            roots.append(node)
    order: list[Node] = []
    waiting = list(reversed(roots))
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += reversed(children.get(node.key, ()))
    if len(order) != len(by_key):
        lost = min(by_key.keys() - {node.key for node in order})
        raise SkipThread(f"namespace {lost[0]!r}, checkpoint {lost[1]!r}: its ancestors form a cycle")
    return order


class Ancestors(Generic[T]):
    """What is remembered of checkpoints until the last of their children has come."""

    def __init__(self, order: Iterable[Node]) -> None:
        self._left: dict[tuple[str, str], int] = {}
        self._kept: dict[tuple[str, str], T] = {}
        for node in order:
            if node.parent_id is not None:
                key = node.namespace, node.parent_id
                self._left[key] = self._left.get(key, 0) + 1

    def keep(self, node: Node, what: T) -> None:
        """Remembers something of a checkpoint, if it has children."""
        if node.key in self._left:
            self._kept[node.key] = what

    def parent_of(self, node: Node) -> T | None:
        """What is remembered of the parent; forgotten if this is its last child."""
        if node.parent_id is None:
            return None
        key = node.namespace, node.parent_id
        found = self._kept.get(key)
        self._left[key] -= 1
        if not self._left[key]:
            self._kept.pop(key, None)
        return found

    def revise(self, change: Callable[[T], T]) -> None:
        """Changes all that is remembered."""
        self._kept = {key: change(kept) for key, kept in self._kept.items()}

    @property
    def kept(self) -> Mapping[tuple[str, str], T]:
        """What is remembered now."""
        return self._kept
