"""The garbage collector is paused and always comes back."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Barrier, Thread

import pytest

from deltastore.core.collector import paused


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_is_off_inside_and_on_after() -> None:
    with paused():
        assert not gc.isenabled()
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_inside_ends_the_pause() -> None:
    with pytest.raises(ValueError, match="inside"), paused():
        raise ValueError("inside")
    assert gc.isenabled()


def test_where_it_was_off_it_stays_off() -> None:
    gc.disable()
    with paused():
        pass
    assert not gc.isenabled()


def test_pauses_of_threads_overlap() -> None:
    first, second = Barrier(2), Barrier(2)

    def other() -> None:
        with paused():
            first.wait()
            second.wait()

    thread = Thread(target=other)
    with paused():
        thread.start()
        first.wait()
    assert not gc.isenabled()
    second.wait()
    thread.join()
    assert gc.isenabled()
