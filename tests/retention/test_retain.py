"""What stays after retention is what it was; what goes is gone; a dry run foretells all of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore import DeltaSaver, InvalidConfigError, RetentionPolicy, RetentionReport, RetentionRule
from deltastore.core.identifiers import pack_checkpoint_id
from deltastore.core.model import SegmentKind
from deltastore.core.retention import Facts, decide
from deltastore.verification import verify_threads
from tests.retention.trees import DAY, Tree, id_at, parents, rows_of, seen, stored_bytes
from tests.support.puts import NOTHING, Puts

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECONDS = NOW.timestamp()

RULES = [
    RetentionRule("last", keep_last=1),
    RetentionRule("last 4", keep_last=4),
    RetentionRule("age", max_age_seconds=12 * DAY),
    RetentionRule("daily", daily_after_seconds=5 * DAY),
    RetentionRule("all", keep_last=3, daily_after_seconds=10 * DAY, max_age_seconds=25 * DAY, idle_seconds=40 * DAY),
    RetentionRule("idle", idle_seconds=2 * DAY),
    RetentionRule("idle long", idle_seconds=60 * DAY),
]
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
EXACT = RetentionPolicy((RULES[0],), grace_seconds=0)


def retain(saver: DeltaSaver, *rules: RetentionRule, now: datetime = NOW, **more: Any) -> RetentionReport:
    """A dry run, which must foretell the run that follows."""
    policy = RetentionPolicy(rules, **{"grace_seconds": 0, **more})
    foretold = saver.retain(policy, dry_run=True, now=now)
    report = saver.retain(policy, now=now)
    assert replace(foretold, dry_run=False, lock_ms_max=0, elapsed_seconds=0) == replace(
        report, lock_ms_max=0, elapsed_seconds=0
    )
    assert foretold.lock_ms_max == 0
    assert not report.failures
    return report


def expected(tree: Tree, rule: RetentionRule) -> set[tuple[str, str]]:
    """What stays by the rule."""
    times = {(namespace, pack_checkpoint_id(each)): time for (namespace, each), time in tree.times.items()}
    gone = decide(rule, Facts(dict(times), 0), SECONDS).checkpoints
    return {key for key in tree.times if (key[0], pack_checkpoint_id(key[1])) not in gone}


def assert_sound(saver: DeltaSaver) -> None:
    report = saver._bridge.run(lambda engine: verify_threads(saver))
    assert report.is_sound
    assert not report.noted


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_stays_is_what_it_was(
    saver: DeltaSaver, seed: int, rule: RetentionRule, forget: Callable[[], None]
) -> None:
    tree = Tree(saver, "t", SECONDS, random.Random(seed))
    tree.grow(40, days=30 if seed % 2 else 3)
    before, above, size = tree.seen(), parents(saver, "t"), stored_bytes(saver, "t")
    assert before.keys() == tree.times.keys()
    stays = expected(tree, rule)
    report = retain(saver, rule)
    for _ in range(2):
        after = tree.seen()
        assert after.keys() == stays
        assert after == {key: before[key] for key in stays}
        forget()
    assert parents(saver, "t") == {
        key: above[key] if (key[0], above[key]) in stays or (key[0], above[key]) not in before else None
        for key in stays
    }
    assert report.checkpoints == len(before) - len(stays)
    assert report.freed_bytes == size - stored_bytes(saver, "t")
    assert report.deleted_threads == (not stays)
    rows = rows_of(saver, "t")
    assert (rows is None) is (not stays)
    if rows is not None:
        assert len(rows.checkpoints) == len(stays), "no support rows are left"
        assert_sound(saver)
    again = retain(saver, rule)
    assert (again.threads, again.checkpoints, again.freed_bytes, again.lock_ms_max) == (0, 0, 0, 0)
    if stays:
        tree.times = {key: tree.times[key] for key in stays}
        tree.now += 60
        tree.grow(10, days=0.0005)
        assert len(tree.seen()) == len(stays) + 10


@pytest.mark.parametrize("seed", range(3))
def test_retention_again_and_again_while_the_thread_grows(saver: DeltaSaver, seed: int) -> None:
    tree = Tree(saver, "t", SECONDS - 40 * DAY, random.Random(seed))
    for number in range(8):
        tree.now += 5 * DAY
        tree.grow(12, days=5)
        before = tree.seen()
        rule = tree.chance.choice(RULES[:5])
        retain(saver, rule, now=datetime.fromtimestamp(tree.now, UTC))
        after = tree.seen()
        assert after == {key: before[key] for key in after}, (number, rule)
        tree.times = {key: tree.times[key] for key in after}
        assert_sound(saver)


def test_after_deletions_of_runs_the_support_rows_go(saver: DeltaSaver) -> None:
    tree = Tree(saver, "t", SECONDS, random.Random(1))
    for number in range(4):
        tree.metadata = {"run_id": f"run {number % 2}"}
        tree.grow(8, days=0.001)
    saver.delete_for_runs(["run 0"])
    before, stored = tree.seen(), rows_of(saver, "t")
    assert stored is not None
    assert any(row.hidden for row in stored.checkpoints)
    report = retain(saver, RetentionRule("old", max_age_seconds=DAY))
    after = rows_of(saver, "t")
    assert after is not None
    assert tree.seen() == before
    assert not any(row.hidden for row in after.checkpoints)
    assert (report.threads, report.checkpoints) == (1, 0)
    assert_sound(saver)


def test_the_first_rule_that_matches_decides_about_a_thread(saver: DeltaSaver) -> None:
    trees = {}
    given: dict[str, dict[str, Any]] = {
        "held": {"tenant": "acme", "tags": ["x", "hold"]}, "acme": {"tenant": "acme"}, "other": {"tenant": "other"},
        "moved": {"tenant": "acme"}, "none": {},
    }  # fmt: skip
    for name, metadata in given.items():
        trees[name] = Tree(saver, name, SECONDS, random.Random(5), metadata=metadata)
        for number in range(6):
            trees[name].metadata = {**metadata, **({"tenant": "other"} if name == "moved" and number == 5 else {})}
            trees[name].step("", SECONDS - 100 + number)
    report = retain(
        saver,
        RetentionRule("hold", {"tags": ["hold"]}, keep_all=True),
        RetentionRule("acme", {"tenant": "acme"}, keep_last=1),
        RetentionRule("late steps", {"tenant": "other", "source": "loop", "step": 6}, keep_last=2),
        RetentionRule("others", {"tenant": "other"}, keep_last=4),
    )
    left = {name: len(tree.seen()) for name, tree in trees.items()}
    assert left == {"held": 6, "acme": 1, "other": 2, "moved": 2, "none": 6}
    assert [(rule.name, rule.threads, rule.checkpoints) for rule in report.rules] == [
        ("hold", 0, 0), ("acme", 1, 5), ("late steps", 2, 8), ("others", 0, 0), ("", 0, 0)
    ]  # fmt: skip
    assert (report.seen_threads, report.threads, report.checkpoints) == (5, 3, 13)


def test_pinned_threads_are_exempt(saver: DeltaSaver) -> None:
    for name in ("a", "b"):
        Tree(saver, name, SECONDS, random.Random(2)).grow(10)
    before = seen(saver, "a")
    saver.pin("a")
    report = retain(saver, RetentionRule(idle_seconds=0))
    assert (report.seen_threads, report.pinned_threads, report.deleted_threads) == (2, 1, 1)
    assert seen(saver, "a") == before
    saver.unpin("a")
    assert retain(saver, RetentionRule(idle_seconds=0)).deleted_threads == 1
    assert rows_of(saver, "a") is None


def test_ids_without_a_time_go_by_the_time_in_their_header(saver: DeltaSaver) -> None:
    puts = Puts(saver)
    parent = None
    for _ in range(6):
        parent = puts.put(parent, {"a": ["x"]})
    written = datetime(2024, 5, 4, 6, 32, 42, tzinfo=UTC)
    rule = RetentionRule(max_age_seconds=10 * DAY, idle_seconds=20 * DAY)
    assert retain(saver, rule, now=written + timedelta(days=9)).checkpoints == 0
    assert retain(saver, rule, now=written + timedelta(days=21)).deleted_threads == 1


def test_what_has_no_time_never_goes_by_age(saver: DeltaSaver) -> None:
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for number in range(5):
        checkpoint: Any = {
            "v": 4, "id": f"{number}", "ts": "once upon a time", "channel_values": {"a": number},
            "channel_versions": {"a": number}, "versions_seen": {}, "updated_channels": None,
        }  # fmt: skip
        config = saver.put(config, checkpoint, {}, {"a": number})
    rule = RetentionRule(max_age_seconds=0, idle_seconds=0, daily_after_seconds=0)
    assert retain(saver, rule).checkpoints == 0
    assert retain(saver, RetentionRule(keep_last=2)).checkpoints == 3
    assert [each.checkpoint["id"] for each in saver.list({"configurable": {"thread_id": "t"}})] == ["4", "3"]


def test_a_young_branch_that_goes_can_be_gone_on_with(saver: DeltaSaver) -> None:
    puts = Puts(saver)
    root = puts.put(None, {"a": ["x" * 50]}, checkpoint_id=id_at(SECONDS - 3000, 1))
    other = puts.put(root, {"a": ["x" * 50, "other"], "delta": ["y"]}, checkpoint_id=id_at(SECONDS - 100, 2))
    puts.write(other, [("delta", "of the other")])
    head = puts.put(root, {"a": ["x" * 50, "head"]}, checkpoint_id=id_at(SECONDS - 50, 3))
    report = retain(saver, RetentionRule(keep_last=1), grace_seconds=600)
    assert report.checkpoints == 2
    assert [each.checkpoint["id"] for each in saver.list(puts.config())] == [head]
    assert saver.get_tuple(puts.config(other)) is None
    again = retain(saver, RetentionRule(keep_last=1), grace_seconds=600)
    assert (again.threads, again.checkpoints) == (0, 0)
    child = puts.put(other, {"b": 1}, checkpoint_id=id_at(SECONDS - 10, 4))
    found = puts.found(child)
    assert found.checkpoint["channel_values"] == {"a": ["x" * 50, "other"], "delta": ["y"], "b": 1}
    assert found.parent_config is None
    report = retain(saver, RetentionRule(keep_last=1), grace_seconds=600)
    assert [each.checkpoint["id"] for each in saver.list(puts.config())] == [child]
    retain(saver, RetentionRule(keep_last=1), now=NOW + timedelta(seconds=601), grace_seconds=600)
    rows = rows_of(saver, "t")
    assert rows is not None
    assert len(rows.checkpoints) == 1
    assert puts.values(child) == {"a": ["x" * 50, "other"], "delta": ["y"], "b": 1}


def test_writes_that_wait_for_a_young_checkpoint_stay(saver: DeltaSaver) -> None:
    puts = Puts(saver)
    awaited = id_at(SECONDS - 50, 1)
    puts.write(awaited, [("delta", "early")])
    head = None
    for number in range(4):
        head = puts.put(head, {"a": [number]}, checkpoint_id=id_at(SECONDS - 10 + number, 2))
        retain(saver, RetentionRule(keep_last=1), grace_seconds=600)
    puts.put(None, {"a": [0]}, checkpoint_id=awaited)
    assert puts.found(awaited).pending_writes == [("task", "delta", "early")]
    puts.write(id_at(SECONDS - 60, 9), [("delta", "never")])
    for number in range(2):
        head = puts.put(head, {"a": [number]}, checkpoint_id=id_at(SECONDS + number, 2))
        retain(saver, RetentionRule(keep_last=1), now=NOW + timedelta(hours=1), grace_seconds=600)
    rows = rows_of(saver, "t")
    assert rows is not None
    assert not [segment for segment in rows.segments if segment.kind is SegmentKind.WRITES]


def test_writes_of_young_checkpoints_that_went_do_not_linger(saver: DeltaSaver) -> None:
    puts = Puts(saver)
    head = puts.put(None, {"delta": _DeltaSnapshot(["seed"])}, checkpoint_id=id_at(SECONDS - 100, 0))
    for number in range(4):
        puts.write(head, [("delta", f"write {number}")])
        head = puts.put(head, {"delta": NOTHING}, checkpoint_id=id_at(SECONDS - 90 + number, 1))
        retain(saver, RetentionRule(keep_last=1), grace_seconds=600)
    assert puts.history(head, "delta")[1] == [f"write {number}" for number in range(4)]
    head = puts.put(head, {"delta": _DeltaSnapshot(["all"])}, checkpoint_id=id_at(SECONDS - 50, 2))
    retain(saver, RetentionRule(keep_last=1), grace_seconds=600)
    rows = rows_of(saver, "t")
    assert rows is not None
    assert [segment for segment in rows.segments if segment.kind is SegmentKind.WRITES] == []


def test_guests_are_no_damage(saver: DeltaSaver) -> None:
    puts = Puts(saver)
    root = puts.put(None, {"a": ["x" * 50]}, checkpoint_id=id_at(SECONDS - 3000, 1))
    for number in (1, 2, 3):
        puts.put(root, {"a": ["x" * 50, number]}, checkpoint_id=id_at(SECONDS - 100 + number, 2))
    assert retain(saver, RetentionRule(keep_last=1), grace_seconds=600).checkpoints == 3
    rows = rows_of(saver, "t")
    assert rows is not None
    assert len(rows.checkpoints) == 4
    report = saver._bridge.run(lambda engine: verify_threads(saver))
    assert report.is_sound


def test_writes_whose_checkpoint_never_came_go_after_a_day(saver: DeltaSaver) -> None:
    Puts(saver).write(id_at(SECONDS, 1), [("a", 1)])
    rule = RetentionRule(keep_all=True)
    now = datetime.now(UTC)
    assert retain(saver, rule, now=now + timedelta(hours=23)).deleted_threads == 0
    report = retain(saver, rule, now=now + timedelta(hours=25))
    assert [(each.name, each.deleted_threads) for each in report.rules] == [("", 0), ("", 1)]
    assert rows_of(saver, "t") is None


def test_a_thread_that_retention_removed_stays_removed(saver: DeltaSaver) -> None:
    from deltastore import ThreadDeletedError

    tree = Tree(saver, "t", SECONDS, random.Random(3))
    tree.grow(5)
    retain(saver, RetentionRule(idle_seconds=0))
    parent = max(each for namespace, each in tree.times if namespace == "")
    with pytest.raises(ThreadDeletedError):
        tree.puts[""].put(parent, {"a": 1})
    policy = RetentionPolicy((RetentionRule(keep_last=1),), remember_deletions_seconds=0)
    saver.retain(policy)
    assert not saver.undelete_thread("t"), "it is forgotten by now"


def test_bad_arguments_are_refused_before_anything_is_done(saver: DeltaSaver) -> None:
    wrong: Any = {"keep_last": 5}
    with pytest.raises(InvalidConfigError, match="RetentionPolicy is expected, got dict"):
        saver.retain(wrong)
    with pytest.raises(InvalidConfigError, match="time zone"):
        saver.retain(EXACT, now=datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused


def test_the_report_as_json(saver: DeltaSaver) -> None:
    Tree(saver, "t", SECONDS, random.Random(3)).grow(5)
    report = saver.retain(EXACT, now=NOW)
    assert report.as_json()["rules"][0]["name"] == "last"
    assert report.lock_ms_max > 0


async def test_it_is_there_for_asynchronous_programs(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        report = await saver.aretain(EXACT, dry_run=True)
        assert report.seen_threads == 0
