"""With an `EncryptedSerializer` no value of a channel can be found in the database, and no wrong key opens one."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import asyncpg
import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer

from deltastore import DeltaSaver, UnreadableValueError

SECRETS = [b"secret-message", b"secret-answer", b"secret-key", b"secret-value", b"tiny!", b"secret-large", b"s3cr3t"]
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def serializer(key: bytes = b"0123456789abcdef") -> EncryptedSerializer:
    return EncryptedSerializer.from_pycryptodome_aes(key=key)


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    delta: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=2)]
    files: Annotated[dict[str, str], operator.or_]
    tiny: str
    large: str


def answer(_: State) -> State:
    return {
        "messages": [AIMessage("secret-answer")],
        "delta": [AIMessage("s3cr3t")],
        "files": {"secret-key": "secret-value"},
        "tiny": "tiny!",
        "large": "secret-large" * 1000,
    }


def graph(saver: DeltaSaver) -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


async def run(dsn: str, serde: EncryptedSerializer, turns: int) -> dict[str, Any]:
    async with DeltaSaver.from_conn_string(dsn, snapshot_frequency=3, serde=serde) as saver:
        for _ in range(turns):
            state = await graph(saver).ainvoke({"messages": [("human", "secret-message")]}, CONFIG)
        return dict(state)


async def stored_bytes(dsn: str) -> dict[str, bytes]:
    """Every column of every table, as text and as raw bytes."""
    connection = await asyncpg.connect(dsn)
    found: dict[str, bytes] = {}
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'deltastore'")
    for (table,) in tables:
        for record in await connection.fetch(f'SELECT * FROM deltastore."{table}"'):
            for column, value in record.items():
                raw = value if isinstance(value, bytes) else str(value).encode()
                found[f"{table}.{column}"] = found.get(f"{table}.{column}", b"") + raw
    await connection.close()
    return found


async def test_no_value_of_a_channel_is_readable_in_any_column(database_dsn: str) -> None:
    await run(database_dsn, serializer(), turns=4)
    for column, raw in (await stored_bytes(database_dsn)).items():
        for secret in SECRETS:
            assert secret not in raw, f"{secret!r} can be read in {column}"


async def test_the_same_run_without_a_cipher_would_be_readable(database_dsn: str) -> None:
    """Otherwise the test above proves nothing."""
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        await graph(saver).ainvoke({"messages": [("human", "secret-message")]}, CONFIG)
    raw = b"".join((await stored_bytes(database_dsn)).values())
    assert any(secret in raw for secret in SECRETS)


async def test_the_right_key_reads_everything_and_a_wrong_one_nothing(database_dsn: str) -> None:
    state = await run(database_dsn, serializer(), turns=4)
    async with DeltaSaver.from_conn_string(database_dsn, serde=serializer()) as saver:
        assert (await graph(saver).aget_state(CONFIG)).values == state
        assert len([each async for each in saver.alist(CONFIG)]) == 12
    async with DeltaSaver.from_conn_string(database_dsn, serde=serializer(b"another key 0000")) as saver:
        with pytest.raises(UnreadableValueError, match="key"):
            await saver.aget_tuple(CONFIG)


async def test_equal_values_are_stored_once_under_a_cipher_too(database_dsn: str) -> None:
    """Compare and compress come before encrypt: random ciphertext could be neither compared nor compressed."""
    await run(database_dsn, serializer(), turns=6)
    connection = await asyncpg.connect(database_dsn)
    stored = await connection.fetchval("SELECT sum(length(payload)) FROM deltastore.delta_segments")
    await connection.close()
    assert stored < 12_000, "the large value of 12,000 characters, six times written, takes less than once its size"
