"""The searchable form that PostgreSQL gives back is recognised as that of the exact metadata, and no other one is."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as some

from deltastore.core.metadata import is_projection, searchable

TEXTS = some.text(max_size=8)
SCALARS = some.one_of(
    some.none(), some.booleans(), some.integers(), some.floats(), TEXTS, some.just(10**400), some.just("a\x00b\ud800")
)
VALUES = some.recursive(
    SCALARS,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXTS | some.integers(), inner, max_size=3),
    max_leaves=8,
)
METADATA = some.dictionaries(TEXTS, VALUES, max_size=4)


def test_what_jsonb_gives_back_is_recognised(server_dsn: str) -> None:
    with psycopg.connect(server_dsn) as connection:

        @given(METADATA)
        def check(metadata: dict[str, Any]) -> None:
            [found] = connection.execute("SELECT %s::jsonb::text", [searchable(metadata)]).fetchone() or ["null"]
            assert is_projection(json.loads(found), metadata)

        check()


@given(METADATA)
def test_what_json_gives_back_is_recognised(metadata: dict[str, Any]) -> None:
    assert is_projection(json.loads(searchable(metadata)), metadata)


@pytest.mark.parametrize(
    ("found", "metadata"),
    [
        ({}, {"a": 1}),
        ({"a": 1}, {}),
        ({"a": 2}, {"a": 1}),
        ({"a": True}, {"a": 1}),
        ({"a": 1}, {"a": True}),
        ({"a": "1"}, {"a": 1}),
        ({"a": None}, {"a": 0}),
        ({"a": [1]}, {"a": [1, 2]}),
        ({"a": [2, 1]}, {"a": [1, 2]}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
        ({"a": 1.5}, {"a": 1.25}),
        ({"a": 10**400}, {"a": 1.5}),
        ([], {}),
    ],
)
def test_what_differs_is_seen(found: Any, metadata: dict[str, Any]) -> None:
    assert not is_projection(found, metadata)


def test_kinds_that_json_does_not_know_are_taken_as_they_are() -> None:
    assert is_projection({"a": "some text"}, {"a": uuid.uuid4()})
    assert is_projection({"a": [1]}, {"a": (1, 2)})
