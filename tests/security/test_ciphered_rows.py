"""With a cipher, not one payload of any table can be opened without it, and a wrong key harms nothing.

A search for secrets in raw columns proves little, since payloads are compressed: so each one is opened, or not.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import asyncpg
import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore import DeltaSaver, UnreadableValueError
from deltastore.core import pieces
from deltastore.core.frame import unseal
from deltastore.core.model import CheckpointRow, SegmentKind
from deltastore.core.payload import checkpoint_binding, metadata_binding, segment_binding
from tests.faults.stories import Story, assert_reads_as, config_of

INTERRUPT = "__interrupt__"
KEY, OTHER_KEY = b"0123456789abcdef", b"another key 0000"


def serializer(key: bytes = KEY) -> EncryptedSerializer:
    return EncryptedSerializer.from_pycryptodome_aes(JsonPlusSerializer(), key=key)


async def varied(saver: DeltaSaver) -> Story:
    """Large and small items, dicts, forks, anchors, pages, and pending writes of all kinds."""
    story = Story(saver, seed=3, words_max=2000)
    await story.grow(9)
    head = await story.grow(4, story.steps[4])
    await saver.aput_writes(head.config, [("words", ["pending"]), (INTERRUPT, "asked")], "late", "~late")
    head.pending.extend([("late", "words", ["pending"]), ("late", INTERRUPT, "asked")])
    await saver.aprune(["no such thread"])
    return story


async def payloads(dsn: str) -> list[tuple[str, bytes, bytes]]:
    """All payloads: what each is, its bytes, and what it is sealed together with."""
    connection = await asyncpg.connect(dsn)
    found: list[tuple[str, bytes, bytes]] = []
    for row in await connection.fetch("SELECT * FROM deltastore.delta_checkpoints"):
        stored = CheckpointRow(
            row["namespace"], row["checkpoint_id"], row["parent_id"], row["depth"], (), b"", row["metadata_id"]
        )
        found.append(("anchor" if row["depth"] == 0 else "delta", row["payload"], checkpoint_binding(stored)))
    for row in await connection.fetch("SELECT * FROM deltastore.delta_segments"):
        kind = SegmentKind(row["kind"])
        found.append((kind.name, row["payload"], segment_binding(kind, row["namespace"], row["checkpoint_id"])))
    documents = await connection.fetch("SELECT * FROM deltastore.delta_metadata")
    found += [("metadata", row["payload"], metadata_binding(row["metadata_id"])) for row in documents]
    await connection.close()
    return found


async def test_no_payload_opens_without_the_cipher(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PAGE_PIECES", 4)
    async with DeltaSaver.from_conn_string(database_dsn, serde=serializer(), snapshot_frequency=3) as saver:
        story = await varied(saver)
    found = await payloads(database_dsn)
    kinds = Counter(kind for kind, _, _ in found)
    assert kinds.keys() == {"anchor", "delta", "VALUES", "PAGES", "WRITES", "metadata"}
    for kind, payload, associated in found:
        with pytest.raises(UnreadableValueError, match="encrypted"):
            unseal(payload, associated=associated)
        with pytest.raises(UnreadableValueError, match="key"):
            unseal(payload, associated=associated, cipher=serializer(OTHER_KEY).cipher)
        assert unseal(payload, associated=associated, cipher=serializer().cipher), kind
    async with DeltaSaver.from_conn_string(database_dsn, serde=serializer()) as reader:
        for step in story.steps:
            await assert_reads_as(reader, step)


async def test_a_wrong_key_is_a_clear_error_and_changes_nothing(database_dsn: str) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, serde=serializer()) as saver:
        story = await varied(saver)
    before = sorted(await payloads(database_dsn))
    for serde in (serializer(OTHER_KEY), JsonPlusSerializer()):
        async with DeltaSaver.from_conn_string(database_dsn, serde=serde) as wrong:
            story.saver = wrong
            at = config_of("story")
            calls: list[Any] = [
                lambda wrong=wrong, at=at: wrong.aget_tuple(at),
                lambda wrong=wrong, at=at: listed(wrong),
                lambda wrong=wrong, at=at: wrong.aget_delta_channel_history(config=at, channels=["log"]),
                lambda story=story: story._put(story.steps[-1], 99, {"words": ["x"]}, (), {}),
                lambda wrong=wrong: wrong.aprune(["story"]),
                lambda wrong=wrong: wrong.adelete_for_runs(["r"]),
            ]
            for call in calls[:-1]:
                with pytest.raises(UnreadableValueError, match=r"story.*(key|cipher)"):
                    await call()
            await calls[-1]()  # no such run: nothing to read
    assert sorted(await payloads(database_dsn)) == before
    async with DeltaSaver.from_conn_string(database_dsn, serde=serializer()) as saver:
        for step in story.steps:
            await assert_reads_as(saver, step)


async def listed(saver: DeltaSaver) -> list[Any]:
    return [each async for each in saver.alist(config_of("story"))]


async def test_a_thread_that_was_plain_goes_on_encrypted(database_dsn: str) -> None:
    """What was stored before the cipher stays as it is; all that comes later is encrypted."""
    async with DeltaSaver.from_conn_string(database_dsn) as saver:
        story = Story(saver, seed=5, words_max=2000)
        await story.grow(4)
    plain = {payload for _, payload, _ in await payloads(database_dsn)}
    async with DeltaSaver.from_conn_string(database_dsn, serde=serializer()) as saver:
        story.saver = saver
        await story.grow(4)
        for step in story.steps:
            await assert_reads_as(saver, step)
    for _, payload, associated in await payloads(database_dsn):
        if payload not in plain:
            with pytest.raises(UnreadableValueError):
                unseal(payload, associated=associated)
