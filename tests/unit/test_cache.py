"""The cache: bounded, by epoch, and never a source of wrong answers."""

from __future__ import annotations

import threading

import pytest

from deltastore.cache import (
    CALLS_PER_TRIM,
    STATE_BYTES,
    STATES_PER_THREAD,
    THREADS_PER_CALL,
    WRITES_PER_THREAD,
    Cache,
    CachedThread,
)
from deltastore.core.digests import digest
from deltastore.core.header import Header
from deltastore.core.model import location
from deltastore.core.state import State
from deltastore.core.writes import OpenSegment


def state(number: int) -> State:
    return State(Header({"a": number}, {}))


def segment(segment_id: int, *items: bytes) -> OpenSegment:
    return OpenSegment(segment_id, items)


def test_an_item_is_found_by_its_digest_and_the_digest_by_its_place():
    cached = CachedThread(1)
    cached.remember_segment(segment(5, b"one", b"two", b"one"))
    cached.remember_segment(segment(6, b"two"))
    assert cached.place(digest(b"one")) == location(5, 0)
    assert cached.place(digest(b"two")) == location(5, 1)
    assert cached.place(digest(b"three")) is None
    assert cached.mark(location(5, 2)) == digest(b"one")
    assert cached.mark(location(6, 0)) == digest(b"two")
    assert cached.mark(location(7, 0)) is None
    assert cached.mark(b"inline") == digest(b"inline")


def test_digests_stay_when_items_go():
    cached = CachedThread(1)
    cached.remember_segment(segment(5, b"one" * 100))
    assert cached.items_bytes >= 300
    cached.drop_segments()
    assert cached.items_bytes == 0
    assert cached.segments == {}
    assert cached.knows(5)
    assert cached.place(digest(b"one" * 100)) == location(5, 0)
    cached.remember_segment(segment(5, b"one" * 100))
    assert cached.items_bytes >= 300
    assert cached.place(digest(b"one" * 100)) == location(5, 0)


def test_items_are_not_digested_again_where_their_digests_are_given(monkeypatch: pytest.MonkeyPatch):
    cached = CachedThread(1)
    cached.remember_segment(segment(5, b"one", b"two"), [b"mark of one", b"mark of two"])
    monkeypatch.setattr("deltastore.cache.digest", None)
    assert cached.place(b"mark of two") == location(5, 1)
    assert cached.mark(location(5, 0)) == b"mark of one"


def test_digests_that_are_not_those_of_all_items_do_not_count():
    cached = CachedThread(1)
    cached.remember_segment(segment(5, b"one", b"two"), [digest(b"one")])
    assert cached.mark(location(5, 1)) == digest(b"two")


def test_items_of_writes_go_with_the_segments():
    cached = CachedThread(1)
    stored = segment(5, b"one" * 100)
    cached.remember_segment(stored)
    cached.add_writes(("", b"1"), stored)
    cached.drop_segments()
    assert [(each.segment_id, each.items) for each in cached.writes["", b"1"]] == [(5, ())]


def test_another_epoch_is_another_cache():
    cache = Cache(10**6)
    first = cache.at_epoch(b"t", 1)
    first.remember_segment(segment(5, b"one"))
    assert cache.at_epoch(b"t", 1) is first
    second = cache.at_epoch(b"t", 2)
    assert second is not first
    assert second.place(digest(b"one")) is None
    cache.forget(b"t")
    assert cache.get(b"t") is None
    cache.forget(b"t")


def test_states_and_writes_are_bounded_and_the_latest_stay():
    cached = CachedThread(1)
    for number in range(WRITES_PER_THREAD + 5):
        cached.remember_state(("", b"%d" % number), state(number))
        cached.remember_writes(("", b"%d" % number), [segment(number, b"x")])
    assert len(cached.states) == STATES_PER_THREAD
    assert len(cached.writes) == WRITES_PER_THREAD
    assert ("", b"%d" % (WRITES_PER_THREAD + 4)) in cached.states
    assert cached.states_of("") == {key[1]: value for key, value in cached.states.items()}
    assert cached.states_of("other") == {}


def test_a_write_is_added_once():
    cached = CachedThread(1)
    for segment_id in (3, 4, 3):
        cached.add_writes(("", b"1"), segment(segment_id, b"item"))
    assert [each.segment_id for each in cached.writes["", b"1"]] == [3, 4]


def test_a_state_that_was_loaded_is_given_once():
    cached = CachedThread(1)
    cached.remember_loaded(("", b"1"), state(1))
    assert cached.take_loaded(("", b"1")) == state(1)
    assert cached.take_loaded(("", b"1")) is None


def test_the_least_recently_used_threads_go_first():
    cache = Cache(30_000)
    for number in range(10):
        cache.at_epoch(b"%d" % number, 1).remember_segment(segment(1, b"x" * 5_000))
    assert cache.get(b"0") is not None
    for _ in range(CALLS_PER_TRIM):
        cache.trim()
    assert cache.get(b"0") is not None
    assert cache.get(b"1") is None
    assert cache.get(b"9") is not None


def test_many_threads_are_summed_up_less_often():
    threads = CALLS_PER_TRIM * THREADS_PER_CALL * 2
    cache = Cache(threads * STATE_BYTES - 1)
    for number in range(threads):
        cache.at_epoch(b"%d" % number, 1)
    for _ in range(CALLS_PER_TRIM * 2 - 1):
        cache.trim()
    assert cache.get(b"0") is not None
    cache.trim()
    assert cache.get(b"1") is None
    assert cache.get(b"0") is not None


def test_a_thread_larger_than_the_bound_keeps_its_index_only():
    cache = Cache(1_000)
    cached = cache.at_epoch(b"t", 1)
    cached.remember_segment(segment(1, b"x" * 5_000))
    for _ in range(CALLS_PER_TRIM):
        cache.trim()
    assert cache.get(b"t") is cached
    assert cached.segments == {}
    assert cached.place(digest(b"x" * 5_000)) == location(1, 0)


def test_marks_can_be_asked_for_in_several_threads_while_segments_are_added():
    cached = CachedThread(1)
    missing: list[int] = []
    indexed: set[int] = set()

    def ask() -> None:
        missing.extend(
            number for number in range(1, 400) if number in indexed and cached.mark(location(number, 0)) is None
        )

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 400):
        cached.remember_segment(segment(number, b"%d" % number))
        cached.place(b"")
        indexed.add(number)
    for thread in threads:
        thread.join()
    assert missing == []
    assert all(cached.mark(location(number, 0)) == digest(b"%d" % number) for number in range(1, 400))
