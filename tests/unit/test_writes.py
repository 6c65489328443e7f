"""Pending writes: which of many calls count, and in what order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.memory import InMemorySaver

from deltastore.core.model import location
from deltastore.core.pieces import PieceList
from deltastore.core.writes import OpenSegment, Write, by_channel, effective

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}
channels = st.sampled_from(["a", "b", "__error__", "__interrupt__", "__resume__", "__scheduled__"])
calls = st.lists(
    st.tuples(
        st.sampled_from(["1", "2", "é"]),
        st.sampled_from(["", "~x", "~y", "~~1"]),
        st.lists(channels, min_size=1, max_size=4),
    ),
    max_size=6,
)


def segments_of(given_calls: list[tuple[str, str, list[str]]]) -> list[OpenSegment]:
    """Each call as its segment; the value of a write is its place."""
    return [
        OpenSegment(
            number,
            (),
            tuple(
                Write(task, path, WRITES_IDX_MAP.get(channel, at), channel, 0, PieceList([b"%d.%d" % (number, at)]))
                for at, channel in enumerate(names)
            ),
        )
        for number, (task, path, names) in enumerate(given_calls, 1)
    ]


@given(calls)
def test_what_counts_is_what_the_stock_saver_keeps(given_calls: list[tuple[str, str, list[str]]]):
    """Where a task keeps its path; with two paths the stock savers keep whichever was written last with the value."""
    paths = {task: path for task, path, _ in reversed(given_calls)}
    given_calls = [(task, paths[task], names) for task, _, names in given_calls]
    stock = InMemorySaver()
    stock.put(
        {"configurable": {"thread_id": "t", "checkpoint_ns": ""}},
        {"v": 1, "id": "1", "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}},  # type: ignore[typeddict-item]
        {},
        {},
    )
    for number, (task, path, names) in enumerate(given_calls, 1):
        stock.put_writes(CONFIG, [(channel, f"{number}.{at}") for at, channel in enumerate(names)], task, path)
    found = stock.get_tuple(CONFIG)
    assert found is not None
    counted = effective(segments_of(given_calls))
    assert [
        (each.write.task_id, each.write.channel, each.write.pieces.places[0].decode())  # type: ignore[union-attr]
        for each in counted
    ] == found.pending_writes


@given(calls, st.randoms(use_true_random=False))
def test_the_order_in_which_segments_are_read_does_not_matter(given_calls: Any, random: Any):
    segments = segments_of(given_calls)
    expected = effective(segments)
    random.shuffle(segments)
    assert effective(segments) == expected


@given(calls)
def test_a_call_that_is_stored_again_changes_nothing(given_calls: Any):
    twice = [*given_calls, *given_calls]
    values = [
        (each.write.task_id, each.write.index, each.write.channel) for each in effective(segments_of(given_calls))
    ]
    again = [(each.write.task_id, each.write.index, each.write.channel) for each in effective(segments_of(twice))]
    assert again == values


def test_a_place_names_the_segment_and_the_position_of_the_write():
    [segment] = segments_of([("1", "", ["b", "a", "__error__", "a"])])
    segment = OpenSegment(7, (), segment.writes)
    assert by_channel(effective([segment]), frozenset()) == {
        "b": [location(7, 0)],
        "a": [location(7, 1), location(7, 3)],
    }
    assert by_channel(effective([segment]), frozenset({"a"})) == {"b": [location(7, 0)]}
