"""The containment of the storage in memory is PostgreSQL's."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltastore.core.containment import contains

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([1.0, 1.5, -0.0, 1e22, 1e300, 2**53 + 1, 2**70, 0.1])
    | st.sampled_from(["", "a", "b", "1", "é", "\u2028", "😀", '"', "\\u0000", "true"])
)
KEYS = st.sampled_from(["a", "b", "", "é", "a.b", "$ne"])
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


@pytest.fixture(scope="module")
def connection(server_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        yield connection


def in_postgres(connection: psycopg.Connection, document: str, query: str) -> bool:
    (answer,) = connection.execute("SELECT %s::jsonb @> %s::jsonb", [document, query]).fetchone() or (None,)
    return bool(answer)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=DOCUMENTS, query=DOCUMENTS)
def test_any_two_documents(connection: psycopg.Connection, document: object, query: object) -> None:
    texts = json.dumps(document), json.dumps(query)
    assert contains(*texts) is in_postgres(connection, *texts)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=DOCUMENTS, data=st.data())
def test_a_part_of_a_document(connection: psycopg.Connection, document: object, data: st.DataObject) -> None:
    texts = json.dumps(document), json.dumps(part_of(document, data))
    assert contains(*texts) is in_postgres(connection, *texts)


def part_of(document: object, data: st.DataObject) -> object:
    """The document with something left out, repeated or reordered here and there."""
    if isinstance(document, dict):
        return {name: part_of(value, data) for name, value in document.items() if data.draw(st.booleans())}
    if isinstance(document, list) and document:
        return [part_of(each, data) for each in data.draw(st.lists(st.sampled_from(document), max_size=3))]
    return document


@pytest.mark.parametrize(
    ("document", "query"),
    [
        ('["a", "b"]', '"a"'), ('[["a"]]', '"a"'), ('[["a"]]', '["a"]'), ('"a"', '["a"]'), ('"a"', '"a"'), ("[]", "[]"),
        ('{"a": ["x"]}', '{"a": "x"}'), ('{"a": {}}', '{"a": []}'), ("{}", "[]"), ("[1, 2, 2]", "[2, 2, 2, 1]"),
        ("[[1, 2]]", "[[2], [1]]"), ('[{"a": 1, "b": 2}]', '[{"a": 1}, {"b": 2}]'), ("1", "1.00"), ("true", "1"),
        ('{"a": 1, "a": 2}', '{"a": 1}'), ('{"a": 1, "a": 2}', '{"a": 2}'), ("null", "null"), ("[null]", "null"),
        ('{"a": null}', "{}"), ("1e400", "1e400"), ("[[]]", "[[]]"), ("[[1]]", "[[]]"), ('"\\u0061"', '"a"'),
        ("9007199254740993", "9007199254740992"), ("0.1", "0.10000000000000001"), ("100", "1e2"),
    ],
)  # fmt: skip
def test_examples(connection: psycopg.Connection, document: str, query: str) -> None:
    assert contains(document, query) is in_postgres(connection, document, query)
