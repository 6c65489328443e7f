"""A checkpoint whose id is stored already: the same again is a retry, another one takes its place."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore import DeltaSaver
from tests.support.exact import exact_tuple
from tests.support.puts import NOTHING, Puts, uuid_of


def thread(saver: DeltaSaver) -> Any:
    """The rows of the only thread."""
    storage: Any = saver._bridge.engine.storage
    [found] = storage._threads.values()
    return found


VALUES: list[Any] = [["x" * 2000, 1], {}, [], {"k": 1}, NOTHING, _DeltaSnapshot({}), _DeltaSnapshot([1]), None, (1, 2)]


@pytest.mark.parametrize("values", [{}, *({"a": value} for value in VALUES)], ids=lambda values: repr(values)[:40])
def test_the_same_checkpoint_again_changes_nothing(values: dict[str, Any]):
    """As a retry after a lost answer does."""
    saver = DeltaSaver.in_memory()
    puts = Puts(saver)
    root = puts.put(None, {"b": 1})
    puts.write(root, [("a", 1)])
    head = puts.put(root, values)
    before = thread(saver).copy(thread(saver).ref, thread(saver).epoch)
    child = puts.put(head, {"b": 2})
    after = thread(saver).copy(thread(saver).ref, thread(saver).epoch)
    for checkpoint_id, parent, given in ((head, root, values), (child, head, {"b": 2}), (root, None, {"b": 1})):
        number = int(checkpoint_id[:8], 16)
        puts.numbers = iter([number])
        puts.put(parent, given, checkpoint_id=checkpoint_id)
        assert thread(saver) == after
    assert before.epoch == after.epoch


@pytest.mark.parametrize("snapshot_frequency", [1, 2, 50])
def test_another_checkpoint_takes_its_place_and_its_children_keep_their_state(snapshot_frequency: int):
    saver = DeltaSaver.in_memory(snapshot_frequency=snapshot_frequency)
    puts = Puts(saver)
    root = puts.put(None, {"a": ["one" * 50]})
    middle = puts.step(root, "d", "w")
    children = [puts.put(middle, {"a": ["one" * 50, number]}) for number in range(3)]
    last = puts.step(children[0], "d", "v")
    before = {each: (exact_tuple(puts.found(each)), puts.exact_history(each, "d")) for each in (root, *children, last)}
    puts.put(root, {"a": "replaced"}, checkpoint_id=middle)
    saver._bridge.engine.cache._threads.clear()
    assert puts.values(middle) == {"a": "replaced"}
    after = {each: (exact_tuple(puts.found(each)), puts.exact_history(each, "d")) for each in (root, *children, last)}
    assert after == before
    new = puts.put(middle, {"b": 1})
    assert puts.values(new) == {"a": "replaced", "b": 1}


def test_what_only_the_replaced_checkpoint_needed_is_removed():
    saver = DeltaSaver.in_memory()
    puts = Puts(saver)
    root = puts.put(None, {"a": ["x" * 5000]}, metadata={"user": "ann"})
    puts.put(None, {"a": ["y" * 5000]}, checkpoint_id=root, metadata={"user": "bob"})
    assert puts.values(root) == {"a": ["y" * 5000]}
    assert puts.found(root).metadata["user"] == "bob"  # type: ignore[typeddict-item]
    assert len(thread(saver).segments) == 1
    assert len(thread(saver).metadata) == 1


def test_the_parent_can_be_another_one():
    puts = Puts(DeltaSaver.in_memory())
    one, two = puts.put(None, {"a": 1}), puts.put(None, {"b": 2})
    head = puts.put(one, {"c": 3})
    puts.put(two, {"c": 3}, checkpoint_id=head)
    assert puts.values(head) == {"b": 2, "c": 3}
    assert puts.found(head).parent_config == puts.config(two)
    puts.put(None, {"c": 4}, checkpoint_id=head)
    assert puts.found(head).parent_config is None
    assert puts.values(head) == {"c": 4}


def test_a_parent_that_is_a_descendant_makes_no_loop():
    puts = Puts(DeltaSaver.in_memory(snapshot_frequency=50))
    root = puts.put(None, {"a": [1]})
    child = puts.put(root, {"a": [1, 2]})
    last = puts.put(child, {"a": [1, 2, 3]})
    puts.put(last, {"b": 1}, checkpoint_id=root)
    puts.saver._bridge.engine.cache._threads.clear()  # type: ignore[attr-defined]
    assert puts.values(root) == {"a": [1, 2, 3], "b": 1}
    assert puts.values(child) == {"a": [1, 2]}
    assert puts.values(last) == {"a": [1, 2, 3]}


@pytest.mark.parametrize("same", [True, False])
def test_on_a_deleted_parent_it_has_no_parent(same: bool):
    puts = Puts(DeltaSaver.in_memory())
    root = puts.put(None, {"a": [1]}, metadata={"run_id": "gone"})
    child = puts.put(root, {"b": 2})
    puts.saver.delete_for_runs(["gone"])
    assert puts.found(child).parent_config is None
    puts.numbers = iter([2])
    puts.put(root, {"b": 2 if same else 3}, checkpoint_id=child)
    assert puts.found(child).parent_config is None
    assert puts.values(child) == {"a": [1], "b": 2 if same else 3}


def test_a_deleted_checkpoint_can_be_put_again():
    puts = Puts(DeltaSaver.in_memory())
    root = puts.put(None, {"a": [1]}, metadata={"run_id": "gone"})
    child = puts.put(root, {"b": 2})
    puts.saver.delete_for_runs(["gone"])
    puts.put(None, {"a": "again"}, checkpoint_id=root)
    assert puts.values(root) == {"a": "again"}
    assert puts.values(child) == {"a": [1], "b": 2}
    assert [each.checkpoint["id"] for each in puts.saver.list(puts.config())] == [uuid_of(2), uuid_of(1)]
