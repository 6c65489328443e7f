"""One typed function for each statement of `statistics.sql`, under the same name, and all of them together."""

from __future__ import annotations

from collections.abc import Sequence

from deltastore.core.statistics import Chains, Counts, Day, ThreadSize, Volume
from deltastore.postgres import rows
from deltastore.postgres.queries import AnyConnection, statements


class StatisticsQueries:
    """The statements for one schema.

    Args:
        schema: Name of the schema, unquoted.

    Raises:
        InvalidConfigError: The schema's name cannot be used.
    """

    def __init__(self, schema: str) -> None:
        self.text = statements(schema, "statistics.sql")

    async def count_threads(self, connection: AnyConnection) -> int:
        """Threads."""
        return int(await connection.fetchval(self.text["count_threads"]))

    async def count_checkpoints(self, connection: AnyConnection) -> tuple[int, int, Volume, Chains]:
        """Visible and hidden checkpoints, their volume, and their chains."""
        record = await connection.fetchrow(self.text["count_checkpoints"])
        assert record is not None
        chains = Chains(record["anchors"], round(record["mean"], 2), record["p95"], record["longest"])
        volume = Volume(record["checkpoints"], record["payload_bytes"])
        return record["checkpoints"] - record["hidden"], record["hidden"], volume, chains

    async def count_volumes(self, connection: AnyConnection) -> dict[str, Volume]:
        """Rows of the other tables by kind."""
        records = await connection.fetch(self.text["count_volumes"])
        return {record["kind"]: Volume(record["rows"], record["payload_bytes"]) for record in records}

    async def measure_tables(self, connection: AnyConnection) -> dict[str, int]:
        """Tables on disk."""
        records = await connection.fetch(self.text["measure_tables"])
        return {record["name"]: record["disk_bytes"] for record in records}

    async def count_days(
        self, connection: AnyConnection, keys: Sequence[tuple[int, bytes]], thread_key: bytes | None
    ) -> tuple[Day, ...]:
        """What each day brought, from `(beginning, first key)` of each."""
        bounds = rows.keys(key for _, key in keys)
        records = await connection.fetch(self.text["count_days"], bounds, thread_key)
        found = {record["day"]: (record["checkpoints"], record["payload_bytes"]) for record in records}
        return tuple(Day(start, *found.get(number, (0, 0))) for number, (start, _) in enumerate(keys, 1))

    async def largest_threads(self, connection: AnyConnection, since: bytes, limit: int) -> tuple[ThreadSize, ...]:
        """Threads by size."""
        records = await connection.fetch(self.text["largest_threads"], since, limit)
        return tuple(
            ThreadSize(record["thread_id"], record["checkpoints"], record["payload_bytes"]) for record in records
        )


async def counts(
    connection: AnyConnection, queries: StatisticsQueries, days: Sequence[tuple[int, bytes]], limit: int
) -> Counts:
    """All of it; the threads that gained most are those of the days."""
    visible, hidden, volume, chains = await queries.count_checkpoints(connection)
    return Counts(
        threads=await queries.count_threads(connection),
        checkpoints=visible,
        hidden=hidden,
        volumes={"checkpoints": volume, **await queries.count_volumes(connection)},
        chains=chains,
        disk_bytes=await queries.measure_tables(connection),
        days=await queries.count_days(connection, days, None),
        largest=await queries.largest_threads(connection, b"", limit),
        fastest=await queries.largest_threads(connection, days[0][1], limit) if days else (),
    )
