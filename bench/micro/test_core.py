"""Micro benchmarks of the pure core: diff, codec, compression, chain fold. No database, no event loop.

    python -m pytest bench/micro                                       run
    python -m pytest bench/micro --benchmark-compare                   against the saved baseline
    python -m pytest bench/micro --benchmark-save=NAME                 save another one

`bench/micro/conftest.py` says where baselines are kept. Times depend on the machine: save a baseline before a change
and compare after it, on the same machine.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
import zstandard
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from bench.workloads import make_workload
from deltastore import DeltaSaver
from deltastore.core.chain import Chain
from deltastore.core.codec import Codec
from deltastore.core.compress import compress, decompress
from deltastore.core.digests import digest
from deltastore.core.pieces import PieceList, Run, edit, match

SIZES = (10, 1_000, 10_000)
CHAIN_STEPS = 49


def digests(count: int) -> list[bytes]:
    return [digest(number.to_bytes(8, "big")) for number in range(count)]


def changed(base: list[bytes], how: str) -> list[bytes]:
    """The list after the change: two items appended, one replaced in the middle, or all of it returned as it is."""
    new = digest(b"new")
    middle = len(base) // 2
    return {"append": [*base, new, digest(b"newer")], "middle": [*base[:middle], new, *base[middle + 1 :]]}.get(
        how, list(base)
    )


@pytest.fixture(scope="session")
def messages() -> list[Any]:
    """A thousand messages of the agent workload."""
    states = make_workload("agent", seed=1, trace=None).conversation(0).expected_states()
    found: list[Any] = next(itertools.islice(states, 249, None))["messages"]
    return found


@pytest.fixture(scope="session")
def codec() -> Codec:
    return Codec(JsonPlusSerializer(), is_msgpack=True, snapshot_type=_DeltaSnapshot)


@pytest.mark.parametrize("how", ["append", "middle", "echo"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.benchmark(group="diff")
def test_diff(benchmark: Any, size: int, how: str):
    base = digests(size)
    target = changed(base, how)
    runs = benchmark(match, base, target)
    assert sum(length for _, _, length in runs) == len(target)


@pytest.mark.parametrize("size", [10, 1_000])
@pytest.mark.benchmark(group="codec")
def test_encode(benchmark: Any, codec: Codec, messages: list[Any], size: int):
    encoded = benchmark(codec.encode, messages[:size], "messages")
    assert len(encoded.items) == size


@pytest.mark.parametrize("size", [10, 1_000])
@pytest.mark.benchmark(group="codec")
def test_decode(benchmark: Any, codec: Codec, messages: list[Any], size: int):
    encoded = codec.encode(messages[:size], "messages")
    assert benchmark(codec.decode, [("messages", encoded)]) == [messages[:size]]


@pytest.mark.parametrize("with_dictionary", [True, False], ids=["dictionary", "none"])
@pytest.mark.parametrize("kind", ["call", "turn"])
@pytest.mark.benchmark(group="compression")
def test_compress(benchmark: Any, codec: Codec, messages: list[Any], kind: str, *, with_dictionary: bool):
    plain = plain_of(codec, messages, kind)
    body = benchmark(compress if with_dictionary else zstandard.ZstdCompressor(3).compress, plain)
    benchmark.extra_info["ratio"] = round(len(plain) / len(body[1] if with_dictionary else body), 2)


@pytest.mark.parametrize("kind", ["call", "turn"])
@pytest.mark.benchmark(group="compression")
def test_decompress(benchmark: Any, codec: Codec, messages: list[Any], kind: str):
    plain = plain_of(codec, messages, kind)
    used, body = compress(plain)
    assert benchmark(decompress, used, body, len(plain)) == plain


def plain_of(codec: Codec, messages: list[Any], kind: str) -> bytes:
    """A message with a tool call (mostly envelope), or a whole turn (mostly text)."""
    return b"".join(codec.encode(messages[1:2] if kind == "call" else messages[:4], "messages").items)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.benchmark(group="chain fold")
def test_fold(benchmark: Any, size: int):
    """A chain of an anchor and 49 deltas of two items each, over a list that has `size` items at the end."""
    thread, rows, segments = stored_chain(size)
    head = max(row.checkpoint_id for row in rows)

    def fold() -> Any:
        return Chain.of(thread, "", rows, segments, frozenset(), None).state(head)

    state = benchmark(fold)
    pieces: PieceList = state.values["items"].pieces
    assert len(pieces.places) == max(size, 2 * CHAIN_STEPS)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.benchmark(group="apply script")
def test_apply(benchmark: Any, size: int):
    """One appended item applied to a list of places."""
    places = PieceList(list(range(size)))
    script = [Run(0, size), Run(None, 1, PieceList([size]))]
    assert len(benchmark(edit, places, script).places) == size + 1


def stored_chain(size: int) -> tuple[Any, Any, Any]:
    """What a storage gives for the head of a thread whose list grew by two items at each step."""
    saver: Any = DeltaSaver.in_memory(snapshot_frequency=CHAIN_STEPS + 1)
    items = [f"item {number} of a list" for number in range(max(0, size - 2 * CHAIN_STEPS))]
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for step in range(CHAIN_STEPS + 1):
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6(clock_seq=step))
        checkpoint["channel_values"] = {"items": list(items)}
        checkpoint["channel_versions"] = {"items": step + 1}
        config = saver.put(config, checkpoint, {"source": "loop", "step": step}, {"items": step + 1})
        items += [f"more {step}", f"and more {step}"]
    storage = saver._bridge.engine.storage
    (key,) = storage._threads
    chains = asyncio.run(storage.load_chains(key, "", None))
    return chains.thread, chains.rows, chains.segments
