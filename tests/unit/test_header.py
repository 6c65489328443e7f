"""Headers: `apply(parent, difference(parent, child))` is the child, whatever changed between them."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.core.header import ABSENT, Header, apply, difference, pack, same, unpack
from tests.support.exact import exact

names = st.sampled_from(["a", "b", "c", "branch:to:x", "", "é"])
versions = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 1, 1.0, 0.5, -0.0, "1", "00000000000000000000000000000002.0.5", ""]),
)
timestamps = st.one_of(
    st.none(),
    st.datetimes().map(lambda moment: moment.isoformat() + "+00:00"),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.sampled_from(
        [
            "2024-05-04T06:32:42.235444+00:00",
            "2024-05-04T06:32:42+00:00",
            "2024-05-04T06:32:42.5+00:00",
            "2024-05-04T06:32:42Z",
            "2024-05-04T08:32:42+02:00",
            "20240504T063242+0000",
            "2024-05-04",
            "0001-01-01T00:00:00+00:00",
            "9999-12-31T23:59:59.999999+00:00",
            "not a time",
            "",
        ]
    ),
)
headers = st.builds(
    Header,
    st.dictionaries(names, versions, max_size=5),
    st.dictionaries(st.sampled_from(["n", "m", "__start__", ""]), st.dictionaries(names, versions, max_size=3)),
    st.one_of(st.just(ABSENT), st.none(), st.lists(names, max_size=3)),
    timestamps,
    st.dictionaries(st.sampled_from(["v", "pending_sends", "other"]), st.binary(min_size=1, max_size=4), max_size=3),
)


def through_msgpack(document: Any) -> Any:
    return ormsgpack.unpackb(ormsgpack.packb(document, option=ormsgpack.OPT_NON_STR_KEYS))


def contents(header: Header) -> Any:
    """All that a header says; the order of names has no meaning outside."""
    return exact(
        [
            sorted(header.versions.items()),
            sorted((node, sorted(seen.items())) for node, seen in header.seen.items()),
            header.updated,
            header.timestamp,
            sorted(header.extra.items()),
        ]
    )


@given(headers, headers)
def test_a_difference_makes_the_child_out_of_the_parent(parent: Header, child: Header):
    made = apply(parent, through_msgpack(difference(parent, child)))
    assert contents(made) == contents(child)


@given(st.lists(headers, min_size=2, max_size=5))
def test_differences_can_be_chained(line: list[Header]):
    """Positions refer to the header that `apply` gave, not to the one the difference was made from."""
    made = line[0]
    for child in line[1:]:
        made = apply(made, through_msgpack(difference(made, child)))
        assert contents(made) == contents(child)


@given(headers)
def test_a_whole_header_survives_packing(header: Header):
    assert contents(unpack(through_msgpack(pack(header)))) == contents(header)
    assert list(unpack(through_msgpack(pack(header))).versions) == list(header.versions)


@given(headers)
def test_no_change_is_a_short_difference(header: Header):
    packed = difference(header, header)
    assert len(ormsgpack.packb(packed)) <= 3 + len(ormsgpack.packb(packed[0])) + len(ormsgpack.packb(packed[2]))
    assert contents(apply(header, packed)) == contents(header)


def test_a_usual_step_takes_tens_of_bytes():
    channels = ["messages", "branch:to:agent", "branch:to:tools", "__start__", "facts"]
    parent = Header(
        dict.fromkeys(channels, 5 << 32 | 12345),
        {"agent": {"branch:to:agent": 3 << 32}, "tools": {"branch:to:tools": 4 << 32}, "__input__": {}},
        ["messages"],
        "2024-05-04T06:32:42.235444+00:00",
        {"v": b"\x00\x02"},
    )
    child = Header(
        {**parent.versions, "messages": 6 << 32 | 999, "branch:to:tools": 6 << 32 | 999},
        {**parent.seen, "agent": {"branch:to:agent": parent.versions["branch:to:agent"]}},
        ["branch:to:tools", "messages"],
        "2024-05-04T06:32:42.635444+00:00",
        {"v": b"\x00\x02"},
    )
    assert len(ormsgpack.packb(difference(parent, child))) < 45


@pytest.mark.parametrize(
    ("left", "right", "expected"), [(1, 1, True), (1, 1.0, False), (1, True, False), ("1", 1, False), (2.5, 2.5, True)]
)
def test_versions_are_compared_with_their_types(left: Any, right: Any, expected: bool):
    assert same(left, right) is expected
    before, after = Header({"a": left}, {"n": {"a": left}}), Header({"a": right}, {"n": {"a": right}})
    assert contents(apply(before, difference(before, after))) == contents(after)


def test_applying_leaves_the_parent_as_it_was():
    parent = Header({"a": 1, "b": 2}, {"n": {"a": 1}}, ["a"], None, {"v": b"\x00"})
    before = contents(parent)
    apply(parent, difference(parent, Header({"b": 3}, {"n": {"b": 2}, "m": {}}, None, None, {})))
    assert contents(parent) == before
