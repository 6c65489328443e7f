"""One typed function for each statement of `overview.sql`, under the same name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltastore.core.model import Chains, ThreadRef
from deltastore.core.overview import NamespaceEntry, ThreadEntry, ThreadsQuery
from deltastore.postgres import rows
from deltastore.postgres.queries import AnyConnection, statements


class Overview:
    """The statements for one schema.

    Args:
        schema: Name of the schema, unquoted.

    Raises:
        InvalidConfigError: The schema's name cannot be used.
    """

    def __init__(self, schema: str) -> None:
        self.text = statements(schema, "overview.sql")

    async def newest_threads(self, connection: AnyConnection, query: ThreadsQuery) -> list[ThreadEntry]:
        """A page of threads."""
        after = (None, None) if query.cursor is None else (query.cursor.newest, query.cursor.thread_key)
        place = *after, query.limit, query.pinned
        async with connection.transaction(isolation="read_committed"):
            await connection.execute(self.text["without_jit"])
            if query.document is None:
                records = await connection.fetch(self.text["newest_threads"], *place)
            else:
                records = await connection.fetch(self.text["newest_threads_with_metadata"], *place, query.document)
        return [_thread_entry(record) for record in records]

    async def namespaces(
        self, connection: AnyConnection, thread_key: bytes, after: str | None, limit: int
    ) -> list[NamespaceEntry]:
        """Namespaces of a thread behind a name."""
        first = "" if after is None else after + "\x01"  # the next text in order: there is no NUL
        records = await connection.fetch(self.text["namespaces"], thread_key, first, limit)
        return [NamespaceEntry(record["namespace"], record["checkpoint_id"]) for record in records]

    async def load_structures(
        self, connection: AnyConnection, thread_key: bytes, namespace: str, checkpoint_ids: Sequence[bytes]
    ) -> Chains | None:
        """Rows that rebuild some checkpoints without their values."""
        wanted = rows.keys(checkpoint_ids)
        records = await connection.fetch(self.text["load_structures"], thread_key, namespace, wanted)
        return rows.chains(records, thread_key, namespace, checkpoint_ids)


def _thread_entry(record: Any) -> ThreadEntry:
    if record["thread_id"] is None:
        raise rows.threadless(record["thread_key"])
    head = None if record["checkpoint_id"] is None else rows.list_entry(record)
    thread = ThreadRef(record["thread_key"], record["thread_id"])
    return ThreadEntry(thread, record["created_at"], record["pinned"], record["newest"], head)
