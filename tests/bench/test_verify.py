from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from bench.verify import difference, sampled_turns


@pytest.mark.parametrize(
    ("expected", "found", "said"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}, ""),
        ({"a": [1, 2]}, {"a": [1, 3]}, "a[1] is 3, expected 2"),
        ({"a": [1, 2]}, {"a": [1]}, "a has 1 items, expected 2"),
        ({"a": 1}, {}, "a is missing"),
        ({}, {"a": 1}, "a is there, expected nothing"),
        ({"a": (1,)}, {"a": [1]}, "a is a list, expected a tuple"),
        ({"a": 1}, {"a": True}, "a is a bool, expected a int"),
        ({"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": "y"}}}, "a.b.c is 'y', expected 'x'"),
        ([HumanMessage("x", id="1")], [HumanMessage("y", id="1")], "[0].content is 'y', expected 'x'"),
        ([HumanMessage("x", id="1")], [AIMessage("x", id="1")], "[0] is a AIMessage, expected a HumanMessage"),
        (1, 2, "it is 2, expected 1"),
    ],
)
def test_the_first_difference_is_named(expected: Any, found: Any, said: str):
    assert difference(expected, found) == said


def test_long_values_are_cut():
    assert len(difference("a" * 10_000, "b" * 10_000)) < 200


@pytest.mark.parametrize("turns", [1, 2, 40, 41, 500, 5_000])
def test_sampled_turns_have_the_first_and_the_last(turns: int):
    sampled = sampled_turns(turns)
    assert {0, turns - 1} <= sampled
    assert sampled <= set(range(turns))
    assert len(sampled) == (turns if turns <= 40 else 8)
