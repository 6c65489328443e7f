"""Very many threads: their newest checkpoints are real rows, the older ones only take up room."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import asyncpg

from deltastore.conversion.convert import codec_of
from deltastore.core.frame import seal
from deltastore.core.header import Header
from deltastore.core.identifiers import pack_checkpoint_id, thread_key
from deltastore.core.metadata import split
from deltastore.core.model import CheckpointRow
from deltastore.core.payload import Anchor, CheckpointPayload, checkpoint_binding, metadata_binding, pack_checkpoint
from deltastore.langgraph.serializer import LoadedTypesSerializer

USERS = 1000
OLDER = """
INSERT INTO deltastore.delta_checkpoints
    (metadata_id, depth, hidden, orphaned, thread_key, namespace, checkpoint_id, parent_id, segments, payload)
SELECT metadata_id, step, false, false, thread_key, '', substring(checkpoint_id FROM 1 FOR 1) || '\\x00'::bytea
    || substring(checkpoint_id FROM 3 FOR 11) || int4send(step), checkpoint_id, ARRAY[step],
    decode(repeat(md5(step::text || thread_key::text), 25), 'hex')
FROM deltastore.delta_checkpoints, generate_series(1, $1::integer) AS step
"""
SHUFFLED = """
CREATE TABLE shuffled AS SELECT * FROM deltastore.delta_checkpoints ORDER BY md5(thread_key::text || depth::text);
TRUNCATE deltastore.delta_checkpoints;
INSERT INTO deltastore.delta_checkpoints SELECT * FROM shuffled;
DROP TABLE shuffled
"""


def checkpoint_id(number: int) -> str:
    """The id of the newest checkpoint of a thread: a UUID of version 6, larger for larger numbers."""
    return f"{0x1F0A1B2C + (number >> 28):08x}-{number >> 12 & 0xFFFF:04x}-6{number & 0xFFF:03x}-8001-000000000000"


def _checkpoints(threads: int) -> Iterator[tuple[Any, ...]]:
    payload = CheckpointPayload(split({"source": "loop", "step": 7})[0], Anchor(Header({"log": 7}, {}), {}, {}))
    plain = pack_checkpoint(payload, (), 0, has_values=False)
    for number in range(threads):
        row = CheckpointRow("", pack_checkpoint_id(checkpoint_id(number)), None, 0, (), b"", number % USERS)
        key = thread_key(f"thread {number}")
        sealed = seal(plain, associated=checkpoint_binding(row), cipher=None)
        yield row.metadata_id, 0, False, False, key, "", row.checkpoint_id, None, None, sealed


def _metadata(threads: int) -> Iterator[tuple[Any, ...]]:
    codec, _ = codec_of(LoadedTypesSerializer())
    users = [{"user": f"user {number}", "tenant": f"tenant {number % 10}"} for number in range(USERS)]
    sealed = [
        seal(codec.encode_item(user, "metadata"), associated=metadata_binding(number), cipher=None)
        for number, user in enumerate(users)
    ]
    for number in range(threads):
        user = number % USERS
        yield user, thread_key(f"thread {number}"), json.dumps(users[user]), sealed[user]


async def fill(connection: asyncpg.Connection[Any], threads: int, *, older: int, shuffle: bool = True) -> None:
    """Makes `thread 0`, `thread 1`, …, the newest last, each with `older` more checkpoints; rows lie in any order."""
    columns = "metadata_id depth hidden orphaned thread_key namespace checkpoint_id parent_id segments payload".split()  # noqa: SIM905
    await connection.copy_records_to_table(
        "delta_checkpoints", schema_name="deltastore", columns=columns, records=_checkpoints(threads)
    )
    await connection.copy_records_to_table(
        "delta_metadata",
        schema_name="deltastore",
        columns=["metadata_id", "thread_key", "document", "payload"],
        records=_metadata(threads),
    )
    await connection.copy_records_to_table(
        "delta_threads",
        schema_name="deltastore",
        columns=["thread_key", "thread_id"],
        records=((thread_key(f"thread {number}"), f"thread {number}") for number in range(threads)),
    )
    await connection.execute(OLDER, older)
    if shuffle:
        await connection.execute(SHUFFLED)
    await connection.execute("ANALYZE")
