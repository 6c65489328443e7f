"""Ways to damage stored rows, as lost writes, bit rot and careless hands do."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from deltastore.postgres.queries import AnyConnection

KEYS = {
    "delta_checkpoints": ("namespace", "checkpoint_id"),
    "delta_segments": ("segment_id",),
    "delta_metadata": ("metadata_id",),
}
"""Tables whose rows have payloads, and what tells rows of a thread apart."""

THREAD_KEY = ("thread_key",)
WRITES, PACK = 3, 4


@dataclass(frozen=True)
class Damage:
    """What was done to which row.

    Attributes:
        kind: The way.
        table: The table.
        row: The row as it was.
    """

    kind: str
    table: str
    row: dict[str, Any]

    def removed(self, checkpoint_id: bytes) -> bool:
        """Whether it took away the checkpoint's own row."""
        return (
            self.table == "delta_checkpoints" and self.kind == "delete" and self.row["checkpoint_id"] == checkpoint_id
        )

    def removed_writes(self, checkpoint_id: bytes) -> bool:
        """Whether it took away writes to the checkpoint: their row is the only one that tells of them."""
        if self.kind != "delete":
            return False
        if self.row.get("kind") == PACK:
            return bool(self.row["first_checkpoint_id"] <= checkpoint_id <= self.row["checkpoint_id"])
        return self.row.get("kind") == WRITES and bool(self.row["checkpoint_id"] == checkpoint_id)

    def __str__(self) -> str:
        keys = {name: self.row[name] for name in keys_of(self.table)}
        return f"{self.kind} in {self.table} {keys}"


NOTHING = Damage("nothing", "", {})
"""What a thread has when it was restored."""


def keys_of(table: str) -> tuple[str, ...]:
    """What tells rows of a table apart."""
    return KEYS.get(table, THREAD_KEY)


async def _set(connection: AnyConnection, damage: Damage, **columns: Any) -> None:
    """Changes columns of the row."""
    keys = keys_of(damage.table)
    changes = ", ".join(f"{name} = ${position}" for position, name in enumerate(columns, 1))
    condition = " AND ".join(f"{name} = ${position}" for position, name in enumerate(keys, len(columns) + 1))
    await connection.execute(
        f"UPDATE deltastore.{damage.table} SET {changes} WHERE {condition}",
        *columns.values(),
        *(damage.row[name] for name in keys),
    )


async def flip(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """One bit of the payload."""
    payload = bytearray(damage.row["payload"])
    payload[chance.randrange(len(payload))] ^= 1 << chance.randrange(8)
    await _set(connection, damage, payload=bytes(payload))


async def overwrite(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """A stretch of the payload with random bytes."""
    payload = bytearray(damage.row["payload"])
    start = chance.randrange(len(payload))
    stretch = payload[start : start + 16]
    payload[start : start + 16] = bytes(byte ^ chance.randrange(1, 256) for byte in stretch)
    await _set(connection, damage, payload=bytes(payload))


async def truncate(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """The payload, to any shorter length."""
    payload = damage.row["payload"]
    await _set(connection, damage, payload=payload[: chance.randrange(len(payload))])


async def extend(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """The payload, by some zeros."""
    await _set(connection, damage, payload=damage.row["payload"] + bytes(chance.randrange(1, 9)))


async def delete(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """The row."""
    keys = keys_of(damage.table)
    condition = " AND ".join(f"{name} = ${position}" for position, name in enumerate(keys, 1))
    await connection.execute(
        f"DELETE FROM deltastore.{damage.table} WHERE {condition}", *(damage.row[name] for name in keys)
    )


async def duplicate(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """The row, under another key."""
    row = dict(damage.row)
    if damage.table == "delta_checkpoints":
        row["checkpoint_id"] = row["checkpoint_id"][:-1] + bytes([row["checkpoint_id"][-1] ^ 1 << chance.randrange(8)])
    else:
        row[KEYS[damage.table][0]] += chance.randrange(1, 1000) * 1_000_000
    await _insert(connection, damage.table, row)


async def exchange(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """The payload for that of another row of another checkpoint."""
    rows = await connection.fetch(f"SELECT * FROM deltastore.{damage.table}")
    others = [
        each
        for each in rows
        if each["payload"] != damage.row["payload"] and each.get("checkpoint_id") != damage.row.get("checkpoint_id", 0)
    ]
    if others:
        await _set(connection, damage, payload=chance.choice(others)["payload"])


async def loop(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """A checkpoint's parent becomes a random checkpoint, a descendant, say, or itself; its depth fits or not."""
    others = await connection.fetch("SELECT checkpoint_id, depth FROM deltastore.delta_checkpoints")
    other = chance.choice([each for each in others if each["checkpoint_id"] != damage.row["parent_id"]])
    depth = chance.choice([other["depth"] + 1, damage.row["depth"]])
    await _set(connection, damage, parent_id=other["checkpoint_id"], depth=depth)


async def redepth(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """A checkpoint's distance to its anchor."""
    depth = chance.choice([each for each in range(8) if each != damage.row["depth"]])
    await _set(connection, damage, depth=depth)


async def remeta(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """A checkpoint's metadata become those of another one."""
    rows = await connection.fetch("SELECT metadata_id FROM deltastore.delta_metadata")
    others = [each["metadata_id"] for each in rows if each["metadata_id"] != damage.row["metadata_id"]]
    await _set(connection, damage, metadata_id=chance.choice(others))


async def flip_byte(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """One byte of the payload."""
    payload = bytearray(damage.row["payload"])
    payload[chance.randrange(len(payload))] ^= chance.randrange(1, 256)
    await _set(connection, damage, payload=bytes(payload))


async def double(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """The row once more, as after a restore that ran twice and whose primary keys could not be made therefore."""
    await connection.execute(f"ALTER TABLE deltastore.{damage.table} DROP CONSTRAINT {damage.table}_pkey")
    await _insert(connection, damage.table, damage.row)


async def circle(connection: AnyConnection, damage: Damage, chance: random.Random) -> None:
    """A checkpoint's parent becomes the checkpoint itself, or one that is built on it; its depth fits or not."""
    rows = await connection.fetch("SELECT checkpoint_id, parent_id, depth FROM deltastore.delta_checkpoints")
    behind = {damage.row["checkpoint_id"]}
    while more := {row["checkpoint_id"] for row in rows if row["parent_id"] in behind} - behind:
        behind |= more
    other = chance.choice(sorted((row for row in rows if row["checkpoint_id"] in behind), key=lambda row: row[0]))
    depth = chance.choice([other["depth"] + 1, damage.row["depth"]])
    await _set(connection, damage, parent_id=other["checkpoint_id"], depth=depth)


async def _insert(connection: AnyConnection, table: str, row: dict[str, Any]) -> None:
    names, values = ", ".join(row), ", ".join(f"${position}" for position in range(1, len(row) + 1))
    await connection.execute(f"INSERT INTO deltastore.{table} ({names}) VALUES ({values})", *row.values())


Way = Callable[[AnyConnection, Damage, random.Random], Awaitable[None]]
ANY_TABLE: tuple[Way, ...] = (flip, flip, overwrite, truncate, extend, delete, delete, duplicate, exchange)
WAYS: dict[str, tuple[Way, ...]] = {
    "delta_checkpoints": (*ANY_TABLE, loop, redepth, remeta),
    "delta_segments": ANY_TABLE,
    "delta_metadata": ANY_TABLE,
}


async def damage_something(connection: AnyConnection, chance: random.Random) -> Damage:
    """Damages one random row in a random way."""
    table = chance.choices(list(WAYS), weights=[4, 5, 1])[0]
    rows = await connection.fetch(f"SELECT * FROM deltastore.{table} ORDER BY {', '.join(KEYS[table])}")
    way = chance.choice(WAYS[table])
    damage = Damage(way.__name__, table, dict(chance.choice(rows)))
    await way(connection, damage, chance)
    return damage


PAYLOAD_TABLES = (*["delta_checkpoints"] * 4, *["delta_segments"] * 5, "delta_metadata")
ONE_OF: dict[Way, tuple[str, ...]] = {
    flip_byte: PAYLOAD_TABLES,
    delete: (*PAYLOAD_TABLES, "delta_threads"),
    double: (*PAYLOAD_TABLES, "delta_threads"),
    truncate: PAYLOAD_TABLES,
    circle: ("delta_checkpoints",),
}


async def damage_once(connection: AnyConnection, chance: random.Random) -> Damage:
    """One flipped byte, deleted or doubled row, truncated payload or circle of parents, at random."""
    way = chance.choice(list(ONE_OF))
    table = chance.choice(ONE_OF[way])
    rows = await connection.fetch(f"SELECT * FROM deltastore.{table} ORDER BY {', '.join(keys_of(table))}")
    damage = Damage(way.__name__, table, dict(chance.choice(rows)))
    await way(connection, damage, chance)
    return damage
