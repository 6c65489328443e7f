"""Which checkpoints of a thread are to go: policies, and the pure decision about one thread.

A policy is a list of rules. **The first rule whose filter a thread matches decides about the whole thread**; a thread
that none matches is left alone, and so is a pinned one. A filter is compared, as listings do (JSON containment), with
the metadata of the newest checkpoint of the root namespace, or of the first namespace if there is no root.

What a rule says, about visible checkpoints:

- `idle`: when the newest checkpoint of all namespaces is older than this, the thread goes as a whole;
- `max_age`: a checkpoint older than this goes, whatever else the rule says;
- `keep_last`, `daily_after`: if either is given, a checkpoint stays only if one of them wants it. `keep_last` wants the
  N newest of each namespace (with 1: the heads); `daily_after` wants everything younger than its age, and of what is
  older the newest of each namespace and UTC day.

So the head of a namespace goes by age only. A thread of which nothing is left is deleted as `delete_thread` does it.

**The time of a checkpoint** is that in its id, a UUID of version 6, as LangGraph makes them. A UUID of another version,
another text, or a time before LangGraph existed is no time: then the timestamp in the header counts. Where that is no
moment either the time is *unknown*, and nothing is decided by it: the checkpoint never goes by age, is never thinned
out, and its thread is never idle. "Newest" means the largest id, as in listings.

Left out on purpose: rules that look at single checkpoints' metadata, and sizes.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from deltastore.core.containment import contains
from deltastore.core.identifiers import UUID_KEY_BYTES, pack_uuid, unpack_checkpoint_id
from deltastore.core.metadata import searchable
from deltastore.errors import CorruptPayloadError, InvalidConfigError

RowKey = tuple[str, bytes]

DAY_SECONDS: Final = 86_400
EARLIEST_SECONDS: Final = 1_640_995_200
"""2022-01-01: no checkpoint is older, so an earlier "time" in an id is none."""
LEFTOVER_SECONDS: Final = DAY_SECONDS
"""Writes to a thread whose first checkpoint has not arrived within this time wait for nothing."""

_GREGORIAN_SECONDS: Final = 12_219_292_800
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": DAY_SECONDS, "w": 7 * DAY_SECONDS}
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_AGES: Final = {"idle": "idle_seconds", "max_age": "max_age_seconds", "daily_after": "daily_after_seconds"}
_POLICY_AGES: Final = {"grace": "grace_seconds", "remember_deletions": "remember_deletions_seconds"}
_RULE_KEYS: Final = frozenset({"name", "filter", "keep_last", "heads_only", "keep_all", *_AGES})


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """What stays of the threads that match a filter. The module says how the parts work together.

    Attributes:
        name: How reports name it.
        filter: Metadata that a thread must have; an empty one matches every thread.
        idle_seconds: Age of the newest checkpoint from which on the whole thread goes.
        max_age_seconds: Age from which on a checkpoint goes.
        keep_last: How many of the newest checkpoints of each namespace stay; 1 keeps the heads.
        daily_after_seconds: Age from which on only one checkpoint a day stays.
        keep_all: Says that everything stays; instead of all the others.

    Raises:
        InvalidConfigError: A part has a wrong form, or the rule says nothing.
    """

    name: str = ""
    filter: Mapping[str, Any] = field(default_factory=dict)
    idle_seconds: float | None = None
    max_age_seconds: float | None = None
    keep_last: int | None = None
    daily_after_seconds: float | None = None
    keep_all: bool = False

    def __post_init__(self) -> None:
        where = f"retention rule {self.name!r}" if self.name else "retention rule"
        given: Any = self.filter
        if type(self.name) is not str:
            raise InvalidConfigError(f"the name of a retention rule must be a text, got {self.name!r}")
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise InvalidConfigError(f"{where}: filter must map metadata keys to values, got {given!r}")
        for name, attribute in _AGES.items():
            _check_age(where, name, getattr(self, attribute))
        if self.keep_last is not None and (type(self.keep_last) is not int or self.keep_last < 1):
            raise InvalidConfigError(f"{where}: keep_last must be an integer of at least 1, got {self.keep_last!r}")
        if type(self.keep_all) is not bool:
            raise InvalidConfigError(f"{where}: keep_all must be true or false, got {self.keep_all!r}")
        limits = [each for each in (*_AGES.values(), "keep_last") if getattr(self, each) is not None]
        if self.keep_all is bool(limits):
            raise InvalidConfigError(
                f"{where} says {'both to keep all and to remove' if limits else 'nothing'}",
                hint="give at least one of idle, max_age, keep_last, heads_only and daily_after, or keep_all alone",
            )

    @property
    def has_ages(self) -> bool:
        """Whether times matter."""
        return any(getattr(self, attribute) is not None for attribute in _AGES.values())


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Rules in order, and what holds for all of them.

    Attributes:
        rules: The rules; the first one that a thread matches decides.
        grace_seconds: The newest checkpoint of a branch that goes while it is younger than this is hidden at once, but
            its row stays this long, so that a run that is under way on that branch can go on.
        remember_deletions_seconds: How long a deleted thread is remembered, so that late saves do not bring it back.

    Raises:
        InvalidConfigError: There is no rule, or a part has a wrong form.
    """

    rules: tuple[RetentionRule, ...]
    grace_seconds: float = 600
    remember_deletions_seconds: float = 7 * DAY_SECONDS

    def __post_init__(self) -> None:
        given: Any = self.rules
        if not isinstance(given, tuple) or not all(isinstance(each, RetentionRule) for each in given):
            raise InvalidConfigError(f"rules must be a tuple of RetentionRule, got {given!r}")
        if not self.rules:
            raise InvalidConfigError("a retention policy without rules", hint="add a [[rule]] to the file")
        for name, attribute in _POLICY_AGES.items():
            _check_age("retention policy", name, getattr(self, attribute))
            if getattr(self, attribute) is None:
                raise InvalidConfigError(f"retention policy: {name} must be a time, got None")

    @property
    def has_filters(self) -> bool:
        """Whether metadata matters."""
        return any(rule.filter for rule in self.rules)

    def rule_of(self, metadata: Mapping[str, Any]) -> int | None:
        """The position of the first rule that matches metadata, or None."""
        document = searchable(metadata)
        for position, rule in enumerate(self.rules):
            if contains(document, searchable(rule.filter)):
                return position
        return None

    @classmethod
    def from_toml(cls, text: str) -> RetentionPolicy:
        """Reads a policy file. Ages are texts with a unit: `30s`, `15m`, `12h`, `90d`, `2w`.

        Raises:
            InvalidConfigError: It is not TOML, or something in it is unknown or has a wrong form.
        """
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidConfigError("the retention policy is not TOML", detail=str(error)) from error
        _refuse_unknown("retention policy", document, {"rule", *_POLICY_AGES})
        rules = document.get("rule", [])
        if not isinstance(rules, list) or not all(isinstance(each, dict) for each in rules):
            raise InvalidConfigError("rules of a retention policy are tables", hint="write [[rule]] above each")
        ages = {_POLICY_AGES[name]: age_seconds(name, document[name]) for name in _POLICY_AGES if name in document}
        return cls(tuple(rule_from(each, f"rule {position}") for position, each in enumerate(rules, 1)), **ages)


def rule_from(given: Mapping[str, Any], name: str) -> RetentionRule:
    """A rule from the keys that a policy file has.

    Args:
        given: The keys with their values; ages as texts with a unit.
        name: Its name, if it has none.

    Raises:
        InvalidConfigError: A key is unknown, or a value has a wrong form.
    """
    name = given.get("name", name)
    _refuse_unknown(f"retention rule {name!r}", given, _RULE_KEYS)
    parts = {key: given[key] for key in ("filter", "keep_last", "keep_all") if key in given}
    parts |= {attribute: age_seconds(key, given[key]) for key, attribute in _AGES.items() if key in given}
    heads_only = given.get("heads_only", False)
    if type(heads_only) is not bool:
        raise InvalidConfigError(f"retention rule {name!r}: heads_only must be true or false, got {heads_only!r}")
    if heads_only:
        if "keep_last" in given:
            raise InvalidConfigError(f"retention rule {name!r} has both heads_only and keep_last", hint="drop one")
        parts["keep_last"] = 1
    return RetentionRule(name, **parts)


def age_seconds(what: str, value: object) -> float:
    """The seconds of an age such as `90d`. Raises `InvalidConfigError` for anything else."""
    match = _AGE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidConfigError(
            f"{what} must be a number with a unit, got {value!r}", hint="such as 45s, 30m, 12h, 90d or 2w"
        )
    return float(match[1]) * _UNITS[match[2]]


def _check_age(where: str, name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidConfigError(f"{where}: {name} must be a number of seconds, not negative, got {value!r}")


def _refuse_unknown(where: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise InvalidConfigError(f"{where}: unknown {', '.join(unknown)}", detail=f"known are {sorted(known)}")


def id_seconds(checkpoint_id: bytes) -> float | None:
    """The time in a checkpoint id, in seconds since 1970, or None if there is none in it.

    Args:
        checkpoint_id: The ordered key of the id.
    """
    if len(checkpoint_id) != UUID_KEY_BYTES:
        return None
    try:
        raw = pack_uuid(unpack_checkpoint_id(checkpoint_id))
    except CorruptPayloadError:
        return None
    if raw is None or raw[6] >> 4 != 6 or raw[8] >> 6 != 2:
        return None
    ticks = int.from_bytes(raw[:6]) << 12 | int.from_bytes(raw[6:8]) & 0xFFF
    seconds = ticks / 10_000_000 - _GREGORIAN_SECONDS
    return seconds if seconds >= EARLIEST_SECONDS else None


def timestamp_seconds(timestamp: str | None) -> float | None:
    """The moment of a header's timestamp, or None if it is none: without a zone, too early, or another text."""
    try:
        moment = None if timestamp is None else datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    if moment is None or moment.tzinfo is None:
        return None
    seconds = moment.timestamp()
    return seconds if seconds >= EARLIEST_SECONDS else None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision looks at.

    Attributes:
        checkpoints: All visible checkpoints by namespace and ordered key, with their times; None for unknown.
        created_seconds: When the thread got its first row.
    """

    checkpoints: Mapping[RowKey, float | None]
    created_seconds: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to go.

    Attributes:
        checkpoints: Visible checkpoints.
        whole_thread: Nothing is left: the thread is to be deleted.
    """

    checkpoints: frozenset[RowKey]
    whole_thread: bool = False

    def __bool__(self) -> bool:
        return self.whole_thread or bool(self.checkpoints)


NOTHING: Final = Decision(frozenset())


def decide(rule: RetentionRule | None, facts: Facts, now_seconds: float) -> Decision:
    """What of a thread is to go by its rule; None: no rule matches.

    A thread that never got a checkpoint, only writes to one, goes after a day, whatever the rule.
    """
    if not facts.checkpoints:
        return Decision(frozenset(), now_seconds - facts.created_seconds > LEFTOVER_SECONDS)
    if rule is None or rule.keep_all:
        return NOTHING
    ages = {key: None if time is None else now_seconds - time for key, time in facts.checkpoints.items()}
    if rule.idle_seconds is not None and _is_idle(ages.values(), rule.idle_seconds):
        return Decision(frozenset(ages), whole_thread=True)
    too_old = {key for key, age in ages.items() if _exceeds(age, rule.max_age_seconds)}
    gone = frozenset(too_old | (ages.keys() - _wanted(rule, ages, now_seconds)))
    return Decision(gone, whole_thread=len(gone) == len(ages))


def _is_idle(ages: Iterable[float | None], idle_seconds: float) -> bool:
    return all(_exceeds(age, idle_seconds) for age in ages)


def _exceeds(age: float | None, limit_seconds: float | None) -> bool:
    return age is not None and limit_seconds is not None and age > limit_seconds


def _wanted(rule: RetentionRule, ages: Mapping[RowKey, float | None], now_seconds: float) -> set[RowKey]:
    """The checkpoints that `keep_last` or `daily_after` want; all of them if the rule has neither."""
    if rule.keep_last is None and rule.daily_after_seconds is None:
        return set(ages)
    by_namespace: dict[str, list[RowKey]] = {}
    for key in sorted(ages, key=lambda each: each[1], reverse=True):
        by_namespace.setdefault(key[0], []).append(key)
    wanted: set[RowKey] = set()
    for keys in by_namespace.values():
        wanted.update(keys[: rule.keep_last or 0])
        if rule.daily_after_seconds is not None:
            wanted |= _daily(keys, ages, rule.daily_after_seconds, now_seconds)
    return wanted


def _daily(
    newest_first: Sequence[RowKey], ages: Mapping[RowKey, float | None], after_seconds: float, now_seconds: float
) -> set[RowKey]:
    """Everything younger than an age or of unknown age, and the newest of each older day."""
    wanted: set[RowKey] = set()
    days: set[int] = set()
    for key in newest_first:
        age = ages[key]
        if age is None or age <= after_seconds:
            wanted.add(key)
            continue
        day = int((now_seconds - age) // DAY_SECONDS)
        if day not in days:
            days.add(day)
            wanted.add(key)
    return wanted
