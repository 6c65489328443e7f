"""One run of a graph, stored by LangGraph's saver in memory and by deltastore alike: both give back exactly the same.

Values, types, orders, metadata, versions, parents, pending writes, histories of DeltaChannels and listings are compared
at every checkpoint, with the saver that stored them and with a new one that knows nothing.
"""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deltastore import DeltaSaver
from tests.support.tee import TeeSaver, assert_same_checkpoints, assert_same_listings
from tests.twins.running import Durability, Run, Script, perform
from tests.twins.scenarios import CASES

MODES: list[tuple[bool, Durability]] = [
    (False, "sync"),
    (False, "async"),
    (False, "exit"),
    (True, "sync"),
    (True, "async"),
    (True, "exit"),
]


def case_id(value: Any) -> str | None:
    return value.__name__ if callable(value) else {True: "delta", False: "ordinary"}.get(value)


@pytest.mark.parametrize(("script", "delta"), CASES, ids=case_id)
def test_both_savers_give_back_the_same(database_dsn: str, script: Script, delta: bool):
    """The graph reads from deltastore in one mode, from the other saver in the next."""
    stock = InMemorySaver()
    with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=3) as saver:
        for number, (is_async, durability) in enumerate(MODES):
            tee = TeeSaver(stock, saver) if (number + delta) % 2 else TeeSaver(saver, stock)
            perform(script, Run(tee, is_async, durability, delta, f"thread {number}"))
        assert assert_same_checkpoints(stock, saver, delta=delta) >= 6
        assert_same_listings(stock, saver)
    with DeltaSaver.from_conn_string(database_dsn) as fresh:
        assert_same_checkpoints(stock, fresh, delta=delta)
