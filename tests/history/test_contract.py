"""What LangGraph's contract says of the history of DeltaChannels, through the saver's interface.

The base class answers the same from `get_tuple` alone, one ancestor at a time: `stock_history` is that answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore import DeltaSaver
from deltastore.engine import Engine
from tests.support.exact import exact_history
from tests.support.puts import NOTHING, Puts, uuid_of

ABSENT: list[Any] = [None, 0, "", False, [], {}, 0.0, b"", ()]


def stock_history(puts: Puts, checkpoint_id: str | None, *channels: str) -> Any:
    """What the inherited walk over `get_tuple` and `parent_config` answers."""
    return exact_history(
        BaseCheckpointSaver.get_delta_channel_history(
            puts.saver, config=puts.config(checkpoint_id), channels=list(channels)
        )
    )


def assert_as_stock(puts: Puts, *channels: str) -> None:
    for each in puts.saver.list(puts.config()):
        checkpoint_id = each.checkpoint["id"]
        assert puts.exact_history(checkpoint_id, *channels) == stock_history(puts, checkpoint_id, *channels), (
            checkpoint_id
        )


def test_the_seed_is_the_value_before_the_writes_stored_at_the_same_checkpoint(saver: DeltaSaver):
    puts = Puts(saver)
    root = puts.put(None, {"a": _DeltaSnapshot([1, 2])})
    head = puts.step(root, "a", [3], [4])
    assert puts.history(head, "a") == (_DeltaSnapshot([1, 2]), [[3], [4]])
    assert_as_stock(puts, "a")


def test_writes_before_the_seed_are_never_replayed(saver: DeltaSaver):
    puts = Puts(saver)
    root = puts.put(None, {})
    early = puts.step(root, "a", [1])
    puts.write(early, [("a", [2])])
    snapshot = puts.put(early, {"a": _DeltaSnapshot([1, 2])})
    head = puts.step(snapshot, "a", [3])
    assert puts.history(head, "a") == (_DeltaSnapshot([1, 2]), [[3]])
    assert_as_stock(puts, "a")


def test_writes_to_the_checkpoint_itself_are_pending_and_left_out(saver: DeltaSaver):
    puts = Puts(saver)
    root = puts.put(None, {})
    head = puts.step(root, "a", [1])
    puts.write(head, [("a", [2])])
    assert puts.history(head, "a") == (NOTHING, [[1]])
    assert [value for _, _, value in puts.found(head).pending_writes or []] == [[2]]


def test_the_value_of_the_checkpoint_itself_is_left_out(saver: DeltaSaver):
    puts = Puts(saver)
    root = puts.put(None, {"a": [0]})
    middle = puts.step(root, "a", [1])
    head = puts.put(middle, {"a": _DeltaSnapshot([0, 1])})
    assert puts.history(head, "a") == ([0], [[1]])
    assert puts.history(root, "a") == (NOTHING, [])
    assert_as_stock(puts, "a")


@pytest.mark.parametrize("depth", range(8))
def test_the_value_of_an_anchor_itself_is_left_out(saver: DeltaSaver, depth: int, forget: Callable[[], None]):
    """Behind an anchor lies another chain."""
    puts = Puts(saver)
    head = puts.put(None, {"a": ["seed"]})
    for number in range(depth):
        head = puts.step(head, "a", [number])
    puts.write(head, [("a", ["last"])])
    head = puts.put(head, {"a": _DeltaSnapshot(["whole"])})
    forget()
    assert puts.history(head, "a") == (["seed"], [*([number] for number in range(depth)), ["last"]])
    assert_as_stock(puts, "a")


def test_writes_are_ordered_by_task_path_then_task_then_index(saver: DeltaSaver, forget: Callable[[], None]):
    puts = Puts(saver)
    root = puts.put(None, {})
    puts.write(root, [("a", "z-1-0"), ("b", "other"), ("a", "z-1-2")], task="1", path="~__pregel_pull, z")
    puts.write(root, [("a", "b-9")], task="9", path="~__pregel_pull, b")
    puts.write(root, [("a", "none-5")], task="5")
    puts.write(root, [("a", "b-3")], task="3", path="~__pregel_pull, b")
    puts.write(root, [("a", "late")], task="ffffffff-0000", path="~~0000000003~__pregel_pull, b")
    puts.write(root, [("a", "none-4")], task="4")
    head = puts.put(root, {"a": NOTHING})
    expected = ["none-4", "none-5", "b-3", "b-9", "z-1-0", "z-1-2", "late"]
    assert puts.history(head, "a")[1] == expected
    forget()
    assert puts.history(head, "a")[1] == expected
    assert [value for _, channel, value in puts.found(root).pending_writes or [] if channel == "a"] == expected


def test_paths_and_tasks_are_compared_as_text_not_as_numbers_or_by_locale(saver: DeltaSaver):
    puts = Puts(saver)
    root = puts.put(None, {})
    paths = ["a", "B", "10", "9", "~", "é", "_", "", "a b", "ab", "\U0001f600", "\uffff"]
    for number, path in enumerate(paths):
        puts.write(root, [("a", path)], task=f"{number}", path=path)
    head = puts.put(root, {"a": NOTHING})
    assert puts.history(head, "a")[1] == sorted(paths)


@pytest.mark.parametrize("seed", ABSENT, ids=repr)
def test_a_seed_that_looks_like_nothing_is_a_seed(saver: DeltaSaver, seed: Any, forget: Callable[[], None]):
    """A channel that was an ordinary one holds such values; `None` is not the same as no seed."""
    puts, stock = Puts(saver), Puts(InMemorySaver())
    for each in (puts, stock):
        root = each.put(None, {"a": seed})
        head = each.step(root, "a", "first")
        for number in range(5):
            head = each.step(head, "a", number)
    assert puts.exact_history(head, "a") == stock.exact_history(head, "a")
    forget()
    assert puts.exact_history(head, "a") == stock.exact_history(head, "a")
    assert puts.history(uuid_of(2), "a") == ((seed, ["first"]) if seed != () else ([], ["first"]))


@pytest.mark.parametrize("seed", ABSENT, ids=repr)
def test_a_snapshot_of_a_value_that_looks_like_nothing_is_a_seed(saver: DeltaSaver, seed: Any):
    puts, stock = Puts(saver), Puts(InMemorySaver())
    for each in (puts, stock):
        root = each.put(None, {"a": _DeltaSnapshot(seed)})
        head = each.step(root, "a", "first")
        head = each.step(head, "a", "second")
    assert puts.exact_history(head, "a") == stock.exact_history(head, "a")


def test_a_channel_without_any_seed_starts_empty_at_the_root(saver: DeltaSaver):
    puts = Puts(saver)
    head = puts.put(None, {"other": 1})
    for number in range(10):
        head = puts.step(head, "a", number)
    entry = saver.get_delta_channel_history(config=puts.config(head), channels=["a", "never"])
    assert "seed" not in entry["a"]
    assert [value for _, _, value in entry["a"]["writes"]] == list(range(10))
    assert entry["never"] == {"writes": []}


def test_every_requested_channel_is_answered_and_no_other(saver: DeltaSaver):
    puts = Puts(saver)
    root = puts.put(None, {"a": 1, "b": 2, "c": 3})
    puts.write(root, [("a", 10), ("b", 20), ("c", 30)])
    head = puts.put(root, {"a": NOTHING, "b": NOTHING, "c": NOTHING})
    found = saver.get_delta_channel_history(config=puts.config(head), channels=["b", "x", "a"])
    assert list(found) == ["b", "x", "a"]
    assert saver.get_delta_channel_history(config=puts.config(head), channels=[]) == {}


def test_an_unknown_checkpoint_or_thread_has_an_empty_history(saver: DeltaSaver):
    puts = Puts(saver)
    puts.step(puts.put(None, {"a": [1]}), "a", [2])
    for each in (Puts(saver, "another"), Puts(saver, "t", "another")):
        assert each.exact_history(None, "a") == {"a": {"seed": "none", "writes": []}}
    assert puts.exact_history(uuid_of(99), "a") == {"a": {"seed": "none", "writes": []}}


def test_the_head_is_meant_where_no_checkpoint_is_named(saver: DeltaSaver):
    puts = Puts(saver)
    head = puts.step(puts.put(None, {"a": [1]}), "a", [2])
    assert puts.exact_history(None, "a") == puts.exact_history(head, "a")


def test_branches_have_the_histories_of_their_own_paths(saver: DeltaSaver, forget: Callable[[], None]):
    puts = Puts(saver)
    root = puts.put(None, {"a": ["seed"]})
    fork = puts.step(root, "a", "common")
    left = fork
    for number in range(5):
        left = puts.put(left, {"b": number}) if number % 2 else puts.step(left, "a", f"left {number}")
    right = puts.put(fork, {"a": _DeltaSnapshot(["right"])}, checkpoint_id=uuid_of(1000))
    right = puts.step(right, "a", "right 1")
    forget()
    assert puts.history(left, "a") == (["seed"], ["common", "left 0", "left 2", "left 4"])
    assert puts.history(right, "a") == (_DeltaSnapshot(["right"]), ["right 1"])


def test_a_fork_does_not_replay_what_the_other_branch_wrote(saver: DeltaSaver, forget: Callable[[], None]):
    """F06: a child counts the writes that were there when it was put, not those of a later one."""
    puts = Puts(saver)
    root = puts.put(None, {"a": ["h1"]})
    first = puts.step(root, "a", "A1")
    puts.write(first, [("a", "h2")], task="of the first run")
    abandoned = puts.put(first, {"a": NOTHING})
    puts.write(root, [("a", "A1 again")], task="another")
    second = puts.put(root, {"a": NOTHING})
    forget()
    assert puts.history(first, "a") == (["h1"], ["A1"])
    assert puts.history(abandoned, "a") == (["h1"], ["A1", "h2"])
    assert puts.history(second, "a")[0] == ["h1"]
    assert sorted(puts.history(second, "a")[1]) == ["A1", "A1 again"]


@pytest.mark.parametrize("steps", range(4))
def test_what_else_is_asked_for_does_not_change_a_history(saver: DeltaSaver, steps: int):
    """A channel with a value and one without, asked for together, at deltas and at anchors."""
    puts = Puts(saver)
    parent = puts.put(None, {"a": ["seed"], "b": ["old"]})
    for number in range(steps):
        parent = puts.step(parent, "a", number)
    puts.write(parent, [("a", "mine"), ("b", "too")], task="1")
    child = puts.put(parent, {"a": NOTHING, "b": _DeltaSnapshot(["value"])})
    puts.write(parent, [("a", "late")], task="2")
    puts.put(parent, {"a": NOTHING})
    alone = {**puts.exact_history(child, "a"), **puts.exact_history(child, "b")}
    assert puts.history(child, "a") == (["seed"], [*range(steps), "mine"])
    assert puts.history(child, "b") == (["old"], ["too"])
    assert puts.exact_history(child, "a", "b") == alone


def test_repeated_writes_of_a_task_count_once(saver: DeltaSaver, forget: Callable[[], None]):
    puts = Puts(saver)
    root = puts.put(None, {})
    for value in ("first", "second", "third"):
        puts.write(root, [("a", value), ("a", f"{value} too")])
    head = puts.put(root, {"a": NOTHING})
    assert puts.history(head, "a")[1] == ["first", "first too"]
    forget()
    assert puts.history(head, "a")[1] == ["first", "first too"]


def test_a_task_that_is_run_again_keeps_its_first_writes_and_adds_the_new_ones(saver: DeltaSaver):
    puts, stock = Puts(saver), Puts(InMemorySaver())
    for each in (puts, stock):
        root = each.put(None, {})
        each.write(root, [("a", 1)])
        each.write(root, [("a", 2), ("a", 3), ("b", 4)])
        head = each.put(root, {"a": NOTHING})
    assert puts.exact_history(head, "a", "b") == stock.exact_history(head, "a", "b")
    assert puts.history(head, "a")[1] == [1, 3]


def test_a_special_write_is_overwritten_and_never_part_of_a_history(saver: DeltaSaver):
    puts = Puts(saver)
    root = puts.put(None, {})
    for value in ("first", "second"):
        puts.write(root, [("__error__", value), ("__interrupt__", value), ("__resume__", value)])
    pending = puts.found(root).pending_writes or []
    assert [(channel, value) for _, channel, value in pending] == [
        ("__resume__", "second"),
        ("__interrupt__", "second"),
        ("__error__", "second"),
    ]
    head = puts.put(root, {"a": NOTHING})
    assert puts.history(head, "__error__")[1] == []


def test_exit_durability_with_synthetic_tasks_on_one_checkpoint(saver: DeltaSaver, forget: Callable[[], None]):
    """F23: all writes of a run hang on one checkpoint, with paths that sort behind every real one."""
    puts = Puts(saver)
    stub = puts.put(None, {}, metadata={"step": -2})
    puts.write(stub, [("a", "third")], "ffffffff-ffff-8000-0000-000000000002", "~~0000000002~__pregel_pull, n")
    puts.write(stub, [("a", "second")], "ffffffff-ffff-8000-0000-000000000001", "~~0000000001~__pregel_pull, n")
    puts.write(stub, [("a", "input")], "00000000-0000-8000-0000-000000000000", "")
    puts.write(stub, [("a", "first")], "7d2c0000-0000-8000-0000-000000000000", "~__pregel_pull, n")
    head = puts.put(stub, {"a": NOTHING})
    forget()
    assert puts.history(head, "a") == (NOTHING, ["input", "first", "second", "third"])
    assert [task for task, _, _ in puts.found(stub).pending_writes or []][-1] == "ffffffff-ffff-8000-0000-000000000002"


@pytest.mark.parametrize("quiet_steps", [2, 49, 300])
def test_a_quiet_channel_keeps_its_history(saver: DeltaSaver, quiet_steps: int, forget: Callable[[], None]):
    puts = Puts(saver)
    head = puts.put(None, {"a": _DeltaSnapshot(["seed"]), "busy": [0]})
    head = puts.step(head, "a", "one")
    head = puts.step(head, "a", "two")
    for number in range(quiet_steps):
        head = puts.step(head, "busy", [number])
    forget()
    assert puts.history(head, "a") == (_DeltaSnapshot(["seed"]), ["one", "two"])
    assert len(puts.history(head, "busy")[1]) == quiet_steps
    head = puts.step(head, "a", "three")
    assert puts.history(head, "a") == (_DeltaSnapshot(["seed"]), ["one", "two", "three"])


def test_two_channels_with_cadences_of_their_own(saver: DeltaSaver, forget: Callable[[], None]):
    puts, stock = Puts(saver), Puts(InMemorySaver())
    for each in (puts, stock):
        head = each.put(None, {})
        totals: dict[str, list[int]] = {"a": [], "b": []}
        for number in range(40):
            writes = [("a", [number])] + ([("b", [number])] if number % 3 == 0 else [])
            each.write(head, writes, task=f"{number}", path="p")
            for channel, [value] in writes:
                totals[channel].append(value)
            head = each.put(
                head,
                {
                    "a": _DeltaSnapshot([*totals["a"]]) if number % 7 == 6 else NOTHING,
                    "b": _DeltaSnapshot([*totals["b"]]) if number % 11 == 10 else NOTHING,
                },
            )
    forget()
    for number in range(1, 42):
        assert puts.exact_history(uuid_of(number), "a", "b") == stock.exact_history(uuid_of(number), "a", "b"), number
    assert_as_stock(puts, "a", "b")


def test_a_channel_that_becomes_a_delta_channel_and_an_ordinary_one_again(
    saver: DeltaSaver, forget: Callable[[], None]
):
    puts, stock = Puts(saver), Puts(InMemorySaver())
    for each in (puts, stock):
        head = each.put(None, {"a": [1]})
        each.write(head, [("a", [2])])
        head = each.put(head, {"a": [1, 2]})
        for number in range(3, 8):
            head = each.step(head, "a", [number])
        plain = each.put(head, {"a": [1, 2, 3, 4, 5, 6, 7]})
        head = each.put(plain, {"a": [1, 2, 3, 4, 5, 6, 7, 8]})
        head = each.step(head, "a", [9])
    forget()
    for number in range(1, 11):
        assert puts.exact_history(uuid_of(number), "a") == stock.exact_history(uuid_of(number), "a"), number
    assert puts.history(head, "a") == ([1, 2, 3, 4, 5, 6, 7, 8], [[9]])
    assert puts.values(plain) == {"a": [1, 2, 3, 4, 5, 6, 7]}


@pytest.mark.parametrize("deletion", ["delete_thread", "prune", "delete_for_runs"])
@pytest.mark.parametrize("by_another", [False, True], ids=["here", "elsewhere"])
def test_a_checkpoint_that_was_deleted_after_it_was_loaded_has_no_history(
    saver: DeltaSaver, deletion: str, by_another: bool, forget: Callable[[], None]
):
    puts = Puts(saver)
    head = puts.step(puts.put(None, {"a": _DeltaSnapshot(["seed" * 100])}), "a", "one" * 400)
    deleted = puts.step(head, "a", "two" * 400, metadata={"run_id": "r"})
    puts.step(deleted, "a", "three" * 400)
    puts.found(deleted)
    other = DeltaSaver.in_memory()
    engine = saver._bridge.engine
    other._bridge.adopt(Engine(engine.storage, engine.options), saver._bridge._home)  # type: ignore[arg-type]
    given = {"delete_thread": "t", "prune": ["t"], "delete_for_runs": ["r"]}[deletion]
    getattr(other if by_another else saver, deletion)(given)
    if by_another:
        found = puts.history(deleted, "a")
        assert found in [(NOTHING, []), (_DeltaSnapshot(["seed" * 100]), ["one" * 400, "two" * 400])]
    assert puts.history(deleted, "a") == (NOTHING, [])


def test_a_history_is_answered_in_two_statements_however_long_it_is(monkeypatch: pytest.MonkeyPatch):
    saver = DeltaSaver.in_memory(snapshot_frequency=50)
    puts = Puts(saver)
    head = puts.put(None, {"a": _DeltaSnapshot([0])})
    for number in range(400):
        head = puts.step(head, "a", f"{number} " * 30)
    storage = saver._bridge.engine.storage
    calls = []
    for name in ("load_chains", "load_segments", "list_checkpoints"):
        method = getattr(storage, name)

        async def counted(*given: Any, _name: str = name, _method: Any = method, **more: Any) -> Any:
            calls.append(_name)
            return await _method(*given, **more)

        monkeypatch.setattr(storage, name, counted)
    saver._bridge.engine.cache._threads.clear()
    assert len(puts.history(head, "a")[1]) == 400
    assert calls == ["load_chains", "load_segments"]
    calls.clear()
    assert len(puts.history(head, "a")[1]) == 400
    assert calls == ["load_chains"]
