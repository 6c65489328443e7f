"""Listings: order, filters, `before` and `limit`, exact metadata; on both storages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from deltastore import DeltaSaver
from deltastore.core.containment import contains
from deltastore.core.metadata import searchable
from deltastore.errors import UnserializableValueError
from tests.property.kinds import Colour, Level, OldColour
from tests.support.exact import address, exact
from tests.support.puts import Puts, uuid_of


@pytest.fixture(params=["memory", "postgresql"])
def saver(request: pytest.FixtureRequest) -> Iterator[DeltaSaver]:
    if request.param == "memory":
        yield DeltaSaver.in_memory(snapshot_frequency=3)
    else:
        with DeltaSaver.from_conn_string(request.getfixturevalue("database_dsn"), snapshot_frequency=3) as opened:
            yield opened


def numbers(saver: DeltaSaver, config: Any, **conditions: Any) -> list[int]:
    """The numbers in the metadata of the listed checkpoints."""
    return [each.metadata["n"] for each in saver.list(config, **conditions)]  # type: ignore[typeddict-item]


def line(saver: Any, count: int, thread_id: str = "t", namespace: str = "", first: int = 1) -> Puts:
    puts = Puts(saver, thread_id, namespace)
    parent = None
    for number in range(first, first + count):
        metadata = {"n": number, "even": number % 2 == 0, "step": number}
        parent = puts.put(parent, {"a": [number]}, checkpoint_id=uuid_of(number), metadata=metadata)
    return puts


def test_the_edges_of_limit_and_before(saver: DeltaSaver):
    """F32."""
    puts = line(saver, 70)
    config = puts.config()
    everything = list(range(70, 0, -1))
    assert numbers(saver, config) == everything
    for limit in (0, 1, 31, 32, 33, 69, 70, 71, 1000):
        assert numbers(saver, config, limit=limit) == everything[:limit]
    for number in (1, 2, 32, 33, 70):
        before = puts.config(uuid_of(number))
        assert numbers(saver, config, before=before) == list(range(number - 1, 0, -1))
        assert numbers(saver, config, before=before, limit=3) == list(range(number - 1, 0, -1))[:3]
    assert numbers(saver, config, before=puts.config("00000020-0000-4000-8000-000000000000x")) == everything[38:]
    assert numbers(saver, config, before=puts.config("zzz")) == everything
    assert numbers(saver, config, before=puts.config("!")) == []
    another: Any = {"configurable": {"thread_id": "other", "checkpoint_id": uuid_of(10)}}
    assert numbers(saver, config, before=another) == list(range(9, 0, -1))
    assert numbers(saver, config, filter={"even": True}, before=puts.config(uuid_of(9)), limit=2) == [8, 6]
    assert numbers(saver, config, filter={"step": 40}) == [40]
    assert numbers(saver, config, filter={"source": "loop", "even": False}, limit=2) == [69, 67]
    assert numbers(saver, puts.config(uuid_of(5))) == [5]
    assert numbers(saver, puts.config(uuid_of(5)), before=puts.config(uuid_of(5))) == []
    assert numbers(saver, puts.config(uuid_of(500))) == []


def test_pages_by_before_visit_every_checkpoint_once_while_others_are_put(saver: DeltaSaver):
    puts = line(saver, 20)
    seen: list[int] = []
    before = None
    newest = uuid_of(20)
    for number in range(100, 200):
        page = list(saver.list(puts.config(), before=before, limit=3))
        if not page:
            break
        seen += [each.metadata["n"] for each in page]  # type: ignore[typeddict-item]
        before = page[-1].config
        newest = puts.put(newest, {"a": [number]}, checkpoint_id=uuid_of(number), metadata={"n": number})
    assert seen == list(range(20, 0, -1))


def test_listings_go_by_id_then_thread_then_namespace(saver: DeltaSaver):
    for thread_id in ("t1", "t2", "t10"):
        for namespace in ("", "a|b:1", "a"):
            line(saver, 2, thread_id, namespace)
    found = [address(each.config) for each in saver.list(None)]
    assert len(found) == len(set(found)) == 18
    assert [place[2] for place in found if place] == [uuid_of(2)] * 9 + [uuid_of(1)] * 9
    one: Any = {"configurable": {"thread_id": "t1"}}
    assert [address(each.config) for each in saver.list(one)] == [
        ("t1", namespace, uuid_of(number)) for number in (2, 1) for namespace in ("a|b:1", "a", "")
    ]
    root: Any = {"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}
    assert len(list(saver.list(root))) == 2
    assert len(list(saver.list(None, limit=5))) == 5
    assert [address(each.config) for each in saver.list(None, before=Puts(saver).config(uuid_of(2)))] == found[9:]


def test_a_listing_that_is_left_early_leaves_nothing_behind(saver: DeltaSaver):
    puts = line(saver, 40)
    for _ in range(30):
        for each in saver.list(puts.config()):
            assert each.metadata["n"] == 40  # type: ignore[typeddict-item]
            break
    assert numbers(saver, puts.config(), limit=1) == [40]


METADATA: dict[str, Any] = {
    "text": 'it\'s "quoted" \\ \\u0000 é \U0001f600 %_',
    "nested": {"deep": {"list": [1, {"k": "v"}], "none": None}},
    "uuid": uuid.UUID(int=5),
    "when": datetime(2024, 1, 2, tzinfo=UTC),
    "nan": float("nan"),
    "inf": float("-inf"),
    "zero": -0.0,
    "large": 2**63,
    "float": 0.1 + 0.2,
    "tuple": (1, 2),
    "set": {1},
    "enum": Colour.RED,
    "old enum": OldColour.BLUE,
    "level": Level.HIGH,
    "flag": True,
    "nothing": None,
    "inner NUL": {"a\x00b": ["c\x00d"]},
    "key.with$odd[0]": 1,
    "": "empty key",
    "long": "x" * 10_000,
}


def test_metadata_comes_back_exactly(saver: DeltaSaver):
    """F11, F12, F15: as from the saver in memory, which removes NUL from texts at the top only."""
    puts, stock = Puts(saver), Puts(InMemorySaver())
    for each in (puts, stock):
        root = each.put(None, {"a": 1}, metadata={**METADATA, "top NUL": "a\x00b"})
        each.put(root, {}, metadata={"source": "fork", "step": -1})
        each.put(root, {}, metadata={"source": "strange", "step": "one"})
        each.put(root, {}, metadata={"source": None, "step": 2.0, "counters_since_delta_snapshot": {"a": (1, 2)}})
        each.put(root, {}, metadata={"counters_since_delta_snapshot": {"a": [1, 2], "b": [0, 5]}})
        each.put(root, {}, metadata={"counters_since_delta_snapshot": {"a": [1]}, "step": True})
        each.put(root, {}, metadata={"step": 2**63, "counters_since_delta_snapshot": {}})
    for number in range(1, 8):
        found, expected = [each.found(uuid_of(number)).metadata for each in (puts, stock)]
        assert exact(sorted(found.items())) == exact(sorted(expected.items())), number


def test_metadata_that_cannot_be_kept_is_refused(saver: DeltaSaver):
    puts = Puts(saver)
    for value in (2**70, object(), "a\ud800", {"deep": ["\udfff"]}):
        with pytest.raises(UnserializableValueError, match="metadata"):
            puts.put(None, {"a": 1}, metadata={"user": value})
    assert list(saver.list(None)) == []


FILTERS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"text": METADATA["text"]}, True),
    ({"text": "it's"}, False),
    ({"nested": {"deep": {"list": [1]}}}, True),
    ({"nested": {"deep": {"list": [{"k": "v"}, 1, 1]}}}, True),
    ({"nested": {"deep": {"list": [2]}}}, False),
    ({"nested": {"deep": {"none": None}}}, True),
    ({"nested": {}}, True),
    ({"nested": []}, False),
    ({"uuid": uuid.UUID(int=5)}, True),
    ({"uuid": str(uuid.UUID(int=5))}, True),
    ({"uuid": uuid.UUID(int=6)}, False),
    ({"when": datetime(2024, 1, 2, tzinfo=UTC)}, True),
    ({"nan": float("nan")}, True),
    ({"zero": 0}, True),
    ({"zero": 0.0}, True),
    ({"large": 2**63}, True),
    ({"large": 2**63 + 1}, False),
    ({"float": 0.3}, False),
    ({"float": 0.30000000000000004}, True),
    ({"tuple": [2]}, True),
    ({"tuple": (1, 2)}, True),
    ({"enum": "red"}, True),
    ({"old enum": "blue"}, True),
    ({"old enum": OldColour.BLUE}, True),
    ({"level": 3}, True),
    ({"flag": True}, True),
    ({"flag": 1}, False),
    ({"nothing": None}, True),
    ({"absent": None}, False),
    ({"inner NUL": {"a\x00b": ["c\x00d"]}}, True),
    ({"key.with$odd[0]": 1}, True),
    ({"": "empty key"}, True),
    ({"step": 1}, True),
    ({"step": 1.0}, True),
    ({"step": True}, False),
    ({"step": {"$gt": 0}}, False),
    ({"source": "loop", "step": 1, "flag": True}, True),
    ({"source": "loop", "step": 2, "flag": True}, False),
    ({"counters_since_delta_snapshot": {"a": [2]}}, True),
    ({"counters_since_delta_snapshot": {"a": [3]}}, False),
    ({"user": "ann"}, True),
    ({"a'); DROP TABLE deltastore.delta_threads; --": 1}, False),
    ({"x" * 10_000: 1}, False),
    ({"long": "x" * 10_000}, True),
]


def test_filters_are_containment(saver: DeltaSaver):
    """F18 and as the stock PostgreSQL saver has it, for the part in the payload and the part in the document alike."""
    puts = Puts(saver)
    metadata = {**METADATA, "counters_since_delta_snapshot": {"a": [1, 2]}, "user": "ann"}
    puts.put(None, {"a": 1}, metadata=metadata)
    for conditions, matches in FILTERS:
        found = list(saver.list(puts.config(), filter=conditions))
        assert len(found) == matches, str(conditions)[:100]
        assert len(list(saver.list(None, filter=conditions, limit=1))) == matches


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.sampled_from([0.5, 1.0, 1e22, 2**70]),
        st.sampled_from(["", "a", "b", "\u0130"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=6,
)


def test_containment_in_memory_is_postgresql_s(database_dsn: str):
    with psycopg.connect(database_dsn) as connection:

        @settings(max_examples=settings().max_examples * 3)
        @given(json_values, json_values)
        def compare(document: Any, query: Any) -> None:
            texts = json.dumps(document), json.dumps(query)
            for given_texts in (texts, (texts[0], texts[0]), (json.dumps([document]), texts[0])):
                row = connection.execute("SELECT %s::jsonb @> %s::jsonb", given_texts).fetchone()
                assert row is not None
                assert contains(*given_texts) == row[0], given_texts

        compare()


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.one_of(st.text(max_size=5), st.floats(), st.integers(), st.none(), st.binary(max_size=2)),
        max_size=4,
    )
)
def test_what_is_searched_is_always_valid_for_jsonb(metadata: dict[str, Any]):
    text = searchable(metadata)
    text.encode()
    assert "\\u0000" not in text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"), parse_float=Decimal)
