"""Metadata in two parts: together they are what was given, and the JSON form is for searching."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.core import metadata as metadatas
from deltastore.core.metadata import COUNTERS, SOURCES, VOLATILE, join, projection, searchable, split
from tests.property.kinds import Colour, Level, OldColour
from tests.support.exact import exact

counters = st.dictionaries(
    st.sampled_from(["a", "b", ""]),
    st.one_of(st.lists(st.integers(0, 9), min_size=2, max_size=2), st.tuples(st.integers(0, 9), st.integers())),
    max_size=2,
)
odd: st.SearchStrategy[Any] = st.sampled_from(
    [None, "x", 1.0, True, [], {}, {"a": [1]}, {"a": [1, "2"]}, {1: [1, 2]}, 2**70, -(2**63), 2**63, ""]
)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "source": st.one_of(st.sampled_from(SOURCES), odd.filter(lambda each: not isinstance(each, list | dict))),
        "step": st.one_of(st.integers(-2, 1000), odd),
        COUNTERS: st.one_of(counters, odd),
        "parents": st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=1),
        "run_id": st.text(max_size=3),
    },
)


def with_lists(given_metadata: dict[str, Any]) -> dict[str, Any]:
    """Pairs of counters come back as lists: they are JSON in the stock savers."""
    return {
        key: {name: list(pair) for name, pair in value.items()}
        if key == COUNTERS
        and isinstance(value, dict)
        and all(isinstance(pair, tuple | list) for pair in value.values())
        else value
        for key, value in given_metadata.items()
    }


@given(metadata)
def test_both_parts_together_are_the_whole(given_metadata: dict[str, Any]):
    volatile, shared = split(given_metadata)
    made = join(volatile, shared)
    assert exact(sorted(with_lists(made).items())) == exact(sorted(with_lists(given_metadata).items()))
    assert len(volatile) <= 3
    assert not volatile or volatile[-1] is not None


def test_what_changes_with_every_step_is_not_in_the_shared_part():
    volatile, shared = split({"source": "loop", "step": 3, COUNTERS: {"a": (1, 2)}, "parents": {}, "user": "ann"})
    assert volatile == [1, 3, {"a": [1, 2]}]
    assert shared == {"parents": {}, "user": "ann"}
    assert not VOLATILE & shared.keys()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("source", value) for value in ("other", None, 1)),
        *(("step", value) for value in (True, 1.0, 2**63, None, "1")),
        (COUNTERS, None),
        (COUNTERS, {"a": [1]}),
        (COUNTERS, {"a": [1, 2.0]}),
        (COUNTERS, []),
    ],
)
def test_an_unusual_volatile_value_stays_in_the_shared_part(key: str, value: Any):
    volatile, shared = split({key: value})
    assert volatile == []
    assert exact(shared) == exact({key: value})


def test_splitting_leaves_what_was_given_as_it_was():
    given_metadata = {"source": "loop", "step": 1, COUNTERS: {"a": (1, 2)}}
    split(given_metadata)
    assert given_metadata == {"source": "loop", "step": 1, COUNTERS: {"a": (1, 2)}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\x00b", "a\ufffdb"),
        ("a\ud800b", "a\ufffd\ufffd\ufffdb"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (True, True),
        (Level.HIGH, 3),
        (Colour.RED, "red"),
        (OldColour.BLUE, "blue"),
        ((1, {2}), [1, [2]]),
        ({1: "a", None: "b", "c\x00": 1}, {"1": "a", "None": "b", "c\ufffd": 1}),
        (b"x", "b'x'"),
        (None, None),
        (2**70, 2**70),
    ],
)
def test_the_json_form_of_odd_values(value: Any, expected: Any):
    assert exact(projection(value)) == exact(expected)
    assert json.loads(searchable({"k": value})) == {"k": expected}


def _encoded(shared: dict[str, Any]) -> metadatas.Shared:
    return metadatas.encoded(shared, b"item", metadatas.contents_of(shared))


@pytest.mark.parametrize(
    ("one", "other"),
    [({"n": 1}, {"n": True}), ({"n": 1}, {"n": 1.0}), ({"n": [1]}, {"n": (1,)}), ({"a": 1, "b": 2}, {"b": 2, "a": 1})],
)
def test_contents_tell_values_that_only_compare_equal(one: dict[str, Any], other: dict[str, Any]):
    assert _encoded(one).contents == metadatas.contents_of({**one})
    assert _encoded(one).contents != metadatas.contents_of(other)


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), {"deep": [b"x"]}, object(), {"set": {1}}])
def test_what_marshal_does_not_tell_apart_has_no_contents(value: Any):
    assert _encoded({"key": value}).contents is None
