"""Two processes on one thread: what one of them does not know must not change what its saves mean."""

from __future__ import annotations

from itertools import count

import pytest

from deltastore import DeltaSaver
from tests.support.puts import NOTHING, Puts


def other_process(saver: DeltaSaver, *, snapshot_frequency: int = 50) -> DeltaSaver:
    """A saver with caches of its own on the same storage."""
    other = DeltaSaver.in_memory(snapshot_frequency=snapshot_frequency)
    other._bridge.engine.storage = saver._bridge.engine.storage
    other._bridge.engine.__post_init__()
    return other


@pytest.mark.parametrize("size", [1, 5000])
def test_a_checkpoint_put_again_keeps_writes_that_another_process_made(size: int) -> None:
    first = DeltaSaver.in_memory()
    second = other_process(first)
    one, two = Puts(first), Puts(second)
    root = one.put(None, {"x": 1, "history": NOTHING})
    two.versions, two.numbers = one.versions, one.numbers
    two.write(root, [("history", number) for number in range(3)], task="task")
    child = two.put(root, {"x": 2, "history": NOTHING})
    expected = two.history(child, "history")
    one.put(root, {"x": "y" * size, "history": NOTHING}, checkpoint_id=child)
    assert Puts(other_process(first)).history(child, "history") == expected
    assert list(expected[1]) == [0, 1, 2]


@pytest.mark.parametrize("snapshot_frequency", [1, 50])
@pytest.mark.parametrize("size", [3, 2000])
def test_a_child_inherits_from_the_parent_as_another_process_replaced_it(snapshot_frequency: int, size: int) -> None:
    first = DeltaSaver.in_memory(snapshot_frequency=snapshot_frequency)
    second = other_process(first, snapshot_frequency=snapshot_frequency)
    one, two = Puts(first), Puts(second)
    root = one.put(None, {"x": 1, "y": "a" * size})
    two.numbers = count(1)
    two.put(None, {"x": 1, "y": "b" * size}, checkpoint_id=root)
    assert two.versions[root] == one.versions[root]
    child = one.put(root, {"x": 2})
    assert Puts(other_process(first)).values(child)["y"] == "b" * size
