"""One script run twice, on LangGraph's saver in memory and on deltastore, gives the same results and histories.

Random ids differ between two runs, so they are numbered in the order of their appearance. What is read again by a new
process needs no such thing: it must be the same to the letter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deltastore import DeltaSaver
from tests.twins import reader
from tests.twins.running import Run, Script, described_history, masked, perform
from tests.twins.scenarios import CASES
from tests.twins.test_exact import MODES, case_id

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("script", "delta"), CASES, ids=case_id)
def test_both_runs_give_the_same(database_dsn: str, script: Script, delta: bool):
    with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=4) as saver:
        for number, (is_async, durability) in enumerate(MODES):
            thread_id = f"thread {number}"
            found = []
            for each in (InMemorySaver(), saver):
                run = Run(each, is_async, durability, delta, thread_id)
                graph = perform(script, run)
                history = described_history(graph, each, thread_id)
                found.append((masked(run.results), len(history), masked(history)))
            assert found[1] == found[0], (is_async, durability)


def test_a_new_process_reads_what_this_one_saved(database_dsn: str):
    expected = {}
    modes = cycle(MODES)
    with DeltaSaver.from_conn_string(database_dsn, snapshot_frequency=5) as saver:
        for script, delta in CASES:
            is_async, durability = next(modes)
            thread_id = reader.thread_of(script, delta)
            graph = perform(script, Run(saver, is_async, durability, delta, thread_id))
            expected[thread_id] = repr(described_history(graph, saver, thread_id))
    command = [sys.executable, "-m", "tests.twins.reader", database_dsn]
    answer = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found.keys() == expected.keys()
    for thread_id, history in expected.items():
        assert found[thread_id] == history, thread_id
