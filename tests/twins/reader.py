"""A process that reads what another one saved: `python -m tests.twins.reader DSN` prints all histories as JSON."""

from __future__ import annotations

import json
import sys
import warnings

from langgraph.checkpoint.memory import InMemorySaver

from deltastore import DeltaSaver
from tests.twins.running import Run, Script, described_history, perform
from tests.twins.scenarios import CASES


def thread_of(script: Script, delta: bool) -> str:
    return f"{script.__name__} {'delta' if delta else 'ordinary'}"


def main(dsn: str) -> None:
    histories = {}
    with DeltaSaver.from_conn_string(dsn) as saver:
        for script, delta in CASES:
            graph = perform(script, Run(InMemorySaver(), False, "sync", delta))
            thread_id = thread_of(script, delta)
            histories[thread_id] = repr(described_history(graph, saver, thread_id))
    json.dump(histories, sys.stdout)


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1])
