"""One run of a graph, stored by LangGraph's saver in memory and by deltastore, where it is compacted: exactly the same.

The script is run, the thread compacted, the script run once more on it, and the thread compacted again. Values, types,
orders, metadata, versions, parents, pending writes, histories of DeltaChannels and listings are compared at every
checkpoint, after each of these, with the saver that did it and with a new one that knows nothing.
"""

from __future__ import annotations

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore import DeltaSaver
from deltastore.core.compacted import Compaction
from tests.support.tee import TeeSaver, assert_same_checkpoints, assert_same_listings
from tests.twins.running import Run, Script, perform
from tests.twins.scenarios import CASES
from tests.twins.test_exact import case_id

KEY = b"sixteen byte key"


@pytest.mark.usefixtures("_small_packs")
@pytest.mark.parametrize(("script", "delta"), CASES, ids=case_id)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_compacted_thread_gives_back_the_same(
    database_dsn: str, script: Script, delta: bool, encrypted: bool
) -> None:
    stock = InMemorySaver()
    serde = EncryptedSerializer.from_pycryptodome_aes(key=KEY) if encrypted else None
    with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=3, serde=serde) as saver:
        tee = TeeSaver(stock, saver) if delta else TeeSaver(saver, stock)
        for round_number in range(2):
            perform(script, Run(tee, False, "async" if round_number else "sync", delta, "thread"))
            assert saver.compact_thread("thread").status is Compaction.COMPACTED
            assert saver.compact_thread("thread").status is Compaction.UNCHANGED
            assert assert_same_checkpoints(stock, saver, delta=delta) >= 1
            with DeltaSaver.from_conn_string(database_dsn, serde=serde) as fresh:
                assert_same_checkpoints(stock, fresh, delta=delta)
                assert_same_listings(stock, fresh)
