"""Trains the zstd dictionary that deltastore ships: `python tools/train_dictionary.py OUTPUT`.

The dictionary is part of the storage format. A released one never changes; a better one gets the next id and a file of
its own beside the old ones (`docs/format.md`). This script is kept so that anyone can see where the bytes come from.

Its samples look like what LangGraph programs store: messages in the envelopes of the common providers, results of
tools, prose and code, and the structure around them. All texts were written for this purpose (`tools/dictionary/`);
none is taken from a benchmark.

The same versions of Python's `random`, zstandard, langchain-core, langgraph-checkpoint and ormsgpack give the same
bytes. Dictionary 1: Python 3.11, zstandard 0.25.0 (zstd 1.5.7), langchain-core 1.8.3, langgraph-checkpoint 4.3.2,
langgraph 1.2.24, ormsgpack 1.13.1. Its SHA-256 is in `tests/golden/frame_v1.json`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import zstandard
from dictionary import structures
from dictionary.random_text import RandomText
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

DICTIONARY_ID = 1
DICTIONARY_BYTES = 64 * 1024
SEED = 1
SAMPLE_COUNT = 6000
SEGMENT_BYTES = 1200
"""How long the stretches are that training copies from samples: long enough for a whole envelope."""


def samples() -> Sequence[bytes]:
    """Payloads of all kinds, mixed by how many bytes each kind has in a database of conversations."""
    text = RandomText(SEED)
    serializer = JsonPlusSerializer()
    kinds = [structures.writes] * 12 + [structures.values] * 4 + [structures.delta] * 2
    kinds += [structures.anchor, structures.metadata]
    return [text.pick(*kinds)(text, serializer) for _ in range(SAMPLE_COUNT)]


def train(made: Sequence[bytes]) -> bytes:
    """All parameters are fixed, so that training tries nothing out and gives the same bytes each time."""
    trained = zstandard.train_dictionary(
        DICTIONARY_BYTES, list(made), k=SEGMENT_BYTES, d=8, f=20, accel=1, level=9, dict_id=DICTIONARY_ID
    )
    return trained.as_bytes()


if __name__ == "__main__":
    dictionary = train(samples())
    Path(sys.argv[1]).write_bytes(dictionary)
    print(len(dictionary), "bytes, sha256", hashlib.sha256(dictionary).hexdigest())
