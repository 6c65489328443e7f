"""Policies as they are read, times of checkpoints, and decisions compared with what the rules say, word by word."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base.id import uuid6

from deltastore.core.identifiers import pack_checkpoint_id
from deltastore.core.retention import (
    DAY_SECONDS,
    LEFTOVER_SECONDS,
    Facts,
    RetentionPolicy,
    RetentionRule,
    age_seconds,
    decide,
    id_seconds,
    rule_from,
    timestamp_seconds,
)
from deltastore.errors import InvalidConfigError

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()

POLICY = """
grace = "5m"
remember_deletions = "30d"

[[rule]]
name = "held"
filter = { tenant = "acme", tags = ["hold"] }
keep_all = true

[[rule]]
filter = { kind = "scratch" }
idle = "12h"
heads_only = true

[[rule]]
idle = "90d"
max_age = "1.5w"
keep_last = 20
daily_after = "45s"
"""


def test_a_policy_file() -> None:
    policy = RetentionPolicy.from_toml(POLICY)
    assert (policy.grace_seconds, policy.remember_deletions_seconds) == (300, 30 * DAY_SECONDS)
    assert policy.rules == (
        RetentionRule("held", {"tenant": "acme", "tags": ["hold"]}, keep_all=True),
        RetentionRule("rule 2", {"kind": "scratch"}, idle_seconds=12 * 3600, keep_last=1),
        RetentionRule("rule 3", {}, 90 * DAY_SECONDS, 1.5 * 7 * DAY_SECONDS, 20, 45),
    )
    assert policy.rule_of({"tenant": "acme", "tags": ["x", "hold"], "kind": "scratch"}) == 0
    assert policy.rule_of({"tenant": "acme", "tags": ["x"], "kind": "scratch"}) == 1
    assert policy.rule_of({}) == 2
    held_only = RetentionPolicy(policy.rules[:1])
    assert held_only.rule_of({"tenant": "other"}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule", "not TOML"),
        ("", "without rules"),
        ("rule = 5", r"\[\[rule\]\]"),
        ("[rule]\nidle = '1d'", r"\[\[rule\]\]"),
        ("[[rule]]", "'rule 1' says nothing"),
        ("[[rule]]\nname = 'a'\nfilter = {x = 1}", "'a' says nothing"),
        ("[[rule]]\nname = 5\nidle = '1d'", "name.*must be a text"),
        ("[[rule]]\nidle = 5", "idle must be a number with a unit, got 5.*90d"),
        ("[[rule]]\nidle = '5'", "with a unit"),
        ("[[rule]]\nidle = '-5d'", "with a unit"),
        ("[[rule]]\nidle = '5y'", "with a unit"),
        ("[[rule]]\nmax_age = '1d'\nidel = '5d'", "unknown idel"),
        ("[[rule]]\nkeep_last = 0", "at least 1, got 0"),
        ("[[rule]]\nkeep_last = true", "at least 1, got True"),
        ("[[rule]]\nkeep_last = '5'", "at least 1, got '5'"),
        ("[[rule]]\nheads_only = 1", "true or false"),
        ("[[rule]]\nheads_only = false", "says nothing"),
        ("[[rule]]\nheads_only = true\nkeep_last = 5", "both heads_only and keep_last"),
        ("[[rule]]\nkeep_all = true\nidle = '5d'", "both to keep all and to remove"),
        ("[[rule]]\nkeep_all = false", "says nothing"),
        ("[[rule]]\nidle = '5d'\nfilter = 5", "filter must map"),
        ("grace = '5m'\ntombstones = '5m'\n[[rule]]\nidle = '5d'", "unknown tombstones"),
        ("grace = 5\n[[rule]]\nidle = '5d'", "grace must be a number with a unit"),
    ],
)
def test_a_bad_policy_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        RetentionPolicy.from_toml(text)


@pytest.mark.parametrize(
    "given_parts",
    [
        {"idle_seconds": -1},
        {"idle_seconds": float("nan")},
        {"max_age_seconds": float("inf")},
        {"daily_after_seconds": "5d"},
        {"idle_seconds": True},
        {"idle_seconds": 5, "filter": {5: 5}},
        {"idle_seconds": 5, "keep_all": 1},
    ],
)
def test_a_bad_rule_is_refused(given_parts: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError):
        RetentionRule(**given_parts)


def test_a_bad_list_of_rules_is_refused() -> None:
    rule: Any = RetentionRule(idle_seconds=5)
    bad: list[Any] = [(), [rule], (rule, "x"), rule]
    for rules in bad:
        with pytest.raises(InvalidConfigError):
            RetentionPolicy(rules)
    for grace in (None, "5m", -1):
        with pytest.raises(InvalidConfigError):
            RetentionPolicy((rule,), grace_seconds=grace)  # type: ignore[arg-type]


def test_ages() -> None:
    assert [age_seconds("x", text) for text in ("0s", "1.5 m", " 2h ", "1d", "2w")] == [0, 90, 7200, 86400, 1209600]
    assert rule_from({"name": "n", "idle": "1s"}, "other") == RetentionRule("n", idle_seconds=1)


def uuid6_at(seconds: float) -> str:
    """A UUID of version 6 with this time."""
    ticks = int((seconds + 12_219_292_800) * 10_000_000)
    number = (ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 2 << 62 | 12345
    return str(UUID(int=number))


def test_times_in_ids() -> None:
    assert abs((id_seconds(pack_checkpoint_id(str(uuid6()))) or 0) - datetime.now(UTC).timestamp()) < 60
    assert id_seconds(pack_checkpoint_id(uuid6_at(NOW))) == pytest.approx(NOW, abs=1e-3)
    for no_time in (
        "1", "x" * 36, uuid6_at(NOW).upper(), uuid6_at(NOW) + "x", uuid6_at(NOW)[:-1],
        "00000000-0000-6000-8000-000000000000",
        uuid6_at(datetime(2021, 1, 1, tzinfo=UTC).timestamp()),
        "0197284a-7b5a-7000-8000-000000000000", "7d444840-9dc0-11d1-b245-5ffdce74fad2",
        "1f0a1b2c-3d4e-4f70-8123-000000000001", "1f0a1b2c-3d4e-6f70-1123-000000000001",
    ):  # fmt: skip
        assert id_seconds(pack_checkpoint_id(no_time)) is None, no_time
    assert id_seconds(b"") is None
    assert id_seconds(b"\xff" * 17) is None


def test_times_in_headers() -> None:
    assert timestamp_seconds("2026-06-01T12:00:00+00:00") == NOW
    assert timestamp_seconds("2026-06-01T14:00:00.000+02:00") == NOW
    for no_time in (None, "", "yesterday", "2026-06-01T12:00:00", "1970-01-01T00:00:00+00:00", "2026-06-01"):
        assert timestamp_seconds(no_time) is None, no_time


ages = st.none() | st.integers(0, 40).map(lambda quarter_days: quarter_days * DAY_SECONDS / 4 + 60)
limits = st.none() | st.integers(0, 10).map(lambda days: days * DAY_SECONDS)


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    numbers = draw(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.integers(0, 30), ages), max_size=15))
    times = {(namespace, b"%02d" % number): age for namespace, number, age in numbers}
    return Facts({key: None if age is None else NOW - age for key, age in times.items()}, NOW - 10)


@st.composite
def rules(draw: st.DrawFn) -> RetentionRule | None:
    parts = {
        "idle_seconds": draw(limits),
        "max_age_seconds": draw(limits),
        "keep_last": draw(st.none() | st.integers(1, 4)),
        "daily_after_seconds": draw(limits),
    }
    if all(part is None for part in parts.values()):
        return draw(st.sampled_from([None, RetentionRule(keep_all=True)]))
    return RetentionRule(**parts)  # type: ignore[arg-type]


def stays(rule: RetentionRule, facts: Facts, key: tuple[str, bytes]) -> bool:
    """What the rule says of one checkpoint, read word by word."""
    namespace, checkpoint_id = key
    age = {each: None if time is None else NOW - time for each, time in facts.checkpoints.items()}
    if rule.idle_seconds is not None and all(a is not None and a > rule.idle_seconds for a in age.values()):
        return False
    own = age[key]
    if rule.max_age_seconds is not None and own is not None and own > rule.max_age_seconds:
        return False
    if rule.keep_last is None and rule.daily_after_seconds is None:
        return True
    newer = [each for each in age if each[0] == namespace and each[1] > checkpoint_id]
    if rule.keep_last is not None and len(newer) < rule.keep_last:
        return True
    if rule.daily_after_seconds is None:
        return False
    if own is None or own <= rule.daily_after_seconds:
        return True

    def day(a: float) -> int:
        return datetime.fromtimestamp(NOW - a, UTC).toordinal()

    same_day = [a for each in newer if (a := age[each]) is not None and a > rule.daily_after_seconds]
    return all(day(a) != day(own) for a in same_day)


@given(facts(), rules())
def test_decisions_are_what_the_rules_say(facts: Facts, rule: RetentionRule | None) -> None:
    decision = decide(rule, facts, NOW)
    if rule is None or rule.keep_all:
        assert not decision
        return
    assert decision.checkpoints == {key for key in facts.checkpoints if not stays(rule, facts, key)}
    assert decision.whole_thread is (bool(facts.checkpoints) and decision.checkpoints == facts.checkpoints.keys())


@given(facts(), rules())
def test_a_decision_that_was_carried_out_leaves_nothing_to_do(facts: Facts, rule: RetentionRule | None) -> None:
    decision = decide(rule, facts, NOW)
    left = {key: time for key, time in facts.checkpoints.items() if key not in decision.checkpoints}
    assert not decide(rule, Facts(left, facts.created_seconds), NOW)


@given(facts(), rules())
def test_unknown_times_decide_nothing(facts: Facts, rule: RetentionRule | None) -> None:
    unknown = Facts(dict.fromkeys(facts.checkpoints), facts.created_seconds)
    if rule is None or rule.keep_last is None or rule.daily_after_seconds is not None:
        assert not decide(rule, unknown, NOW)


@given(facts(), rules())
def test_heads_go_by_age_only(facts: Facts, rule: RetentionRule | None) -> None:
    if rule is not None and rule.idle_seconds is None and rule.max_age_seconds is None:
        heads = {max(key for key in facts.checkpoints if key[0] == name) for name, _ in facts.checkpoints}
        assert not heads & decide(rule, facts, NOW).checkpoints


def test_writes_that_wait_for_no_checkpoint() -> None:
    for rule in (None, RetentionRule(keep_all=True), RetentionRule(keep_last=1)):
        assert not decide(rule, Facts({}, NOW - LEFTOVER_SECONDS), NOW)
        assert decide(rule, Facts({}, NOW - LEFTOVER_SECONDS - 1), NOW).whole_thread
