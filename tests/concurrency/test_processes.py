"""Processes that write to one thread at the same time."""

from __future__ import annotations

import json
from contextlib import ExitStack

from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint

from deltastore import DeltaSaver
from tests.faults.stories import config_of
from tests.support.processes import running

WRITER = """
    import json, sys
    from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint
    from deltastore import DeltaSaver

    dsn, name, root, steps = sys.argv[1:]
    with DeltaSaver.from_conn_string(dsn, snapshot_frequency=7) as saver:
        config = {"configurable": {"thread_id": "shared", "checkpoint_ns": "", "checkpoint_id": root}}
        words, log, told = ["root"], [], []
        print("ready")
        sys.stdin.readline()
        for number in range(int(steps)):
            word = f"{name} {number} " + name * 300
            saver.put_writes(config, [("words", [word]), ("log", word)], f"task of {name}", name)
            words.append(word)
            checkpoint = create_checkpoint(empty_checkpoint(), None, number)
            checkpoint["channel_values"] = {"words": list(words)}
            checkpoint["channel_versions"] = {"words": number + 2, "log": number + 2}
            new = dict(checkpoint["channel_versions"])
            config = saver.put(config, checkpoint, {"writer": name, "step": number}, new)
            told.append(checkpoint["id"])
        print(json.dumps(told))
"""
STEPS = 20


def test_branches_of_one_thread_do_not_mix(database_dsn: str) -> None:
    """Three processes fork one checkpoint at the same moment and go on; each branch reads as its writer made it."""
    root = create_checkpoint(empty_checkpoint(), None, 0)
    root["channel_values"], root["channel_versions"] = {"words": ["root"]}, {"words": 1}
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        saver.put(config_of("shared"), root, {"step": -1}, {"words": 1})
    with ExitStack() as stack:
        writers = {name: stack.enter_context(running(WRITER, database_dsn, name, root["id"], STEPS)) for name in "abc"}
        for writer in writers.values():
            assert writer.line() == "ready"
        for writer in writers.values():
            assert writer.process.stdin is not None
            writer.process.stdin.write("\n")
            writer.process.stdin.flush()
        told = {name: json.loads(writer.line()) for name, writer in writers.items()}
        for writer in writers.values():
            writer.finish()
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        for name, ids in told.items():
            words = [f"{name} {number} " + name * 300 for number in range(STEPS)]
            for number, checkpoint_id in enumerate(ids):
                at = config_of("shared", checkpoint_id)
                found = saver.get_tuple(at)
                assert found is not None
                assert found.checkpoint["channel_values"] == {"words": ["root", *words[: number + 1]]}
                history = saver.get_delta_channel_history(config=at, channels=["log"])["log"]["writes"]
                # the first step of a branch may find what others wrote to the common root before it
                assert [value for _, _, value in history if value.startswith(name)] == words[: number + 1]
                assert all(value.split()[1] == "0" for _, _, value in history if not value.startswith(name))
        assert len(list(saver.list(config_of("shared")))) == 3 * STEPS + 1
        assert len(list(saver.list(config_of("shared"), filter={"writer": "b"}))) == STEPS
