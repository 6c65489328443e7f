"""Counts what a saver says to PostgreSQL and hears from it, whatever driver it uses: a proxy that reads message frames.

    client ──> Unix socket in a folder of ours ──> server

Frames are counted as they pass and never changed: Query and Execute are statements, DataRow is a row, a round trip is a
flight of client messages that the server then answers. Used in passes of their own that are not timed. The connection
to the server is never encrypted, so it does not work with servers that insist on TLS.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

_PORT = "5432"
_HEADER_BYTES = 5
_STATEMENT_TYPES = frozenset(b"QE")
_ROW_TYPE = ord("D")
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Traffic:
    """What went over the wire."""

    statements: int = 0
    round_trips: int = 0
    rows: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(*(getattr(self, name) - getattr(earlier, name) for name in self.__dataclass_fields__))


class _Frames:
    """Splits one direction of a connection into message types. The client's first message has no type byte."""

    def __init__(self, *, first_is_startup: bool) -> None:
        self._buffer = bytearray()
        self._startup = first_is_startup
        self._skip_bytes = 0

    def feed(self, chunk: bytes) -> list[int]:
        """Types of the messages that begin in this chunk."""
        types: list[int] = []
        self._buffer += chunk
        while True:
            skipped = min(self._skip_bytes, len(self._buffer))
            del self._buffer[:skipped]
            self._skip_bytes -= skipped
            header_bytes = _HEADER_BYTES - self._startup
            if self._skip_bytes or len(self._buffer) < header_bytes:
                return types
            (length,) = struct.unpack_from("!I", self._buffer, header_bytes - 4)
            if not self._startup:
                types.append(self._buffer[0])
            self._skip_bytes = length + header_bytes - 4
            self._startup = False


class _Turns:
    """Who spoke last on one connection."""

    def __init__(self) -> None:
        self.client_spoke_last = False


class WireCounter:
    """Counts over all connections through the proxy."""

    def __init__(self, dsn: str) -> None:
        self.traffic = Traffic()
        self._server = conninfo_to_dict(dsn)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection of a client until either side closes."""
        try:
            server_reader, server_writer = await self._connect()
        except OSError:
            writer.close()
            return
        turns = _Turns()
        pumps = (
            self._pump(reader, server_writer, turns, client=True),
            self._pump(server_reader, writer, turns, client=False),
        )
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = str(self._server.get("host") or "localhost"), str(self._server.get("port") or _PORT)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(port))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, turns: _Turns, *, client: bool
    ) -> None:
        frames = _Frames(first_is_startup=client)
        try:
            while chunk := await reader.read(_READ_BYTES):
                self._count(frames.feed(chunk), len(chunk), turns, client=client)
                writer.write(chunk)
                await writer.drain()
        finally:
            writer.close()

    def _count(self, types: list[int], size_bytes: int, turns: _Turns, *, client: bool) -> None:
        seen = self.traffic
        if client:
            statements = sum(kind in _STATEMENT_TYPES for kind in types)
            self.traffic = replace(
                seen, statements=seen.statements + statements, sent_bytes=seen.sent_bytes + size_bytes
            )
        else:
            self.traffic = replace(
                seen,
                rows=seen.rows + types.count(_ROW_TYPE),
                received_bytes=seen.received_bytes + size_bytes,
                round_trips=seen.round_trips + turns.client_spoke_last,
            )
        turns.client_spoke_last = client


@asynccontextmanager
async def counting_proxy(dsn: str) -> AsyncIterator[tuple[str, WireCounter]]:
    """Opens a proxy to a server; gives the DSN that goes through it, and the counter."""
    counter = WireCounter(dsn)
    with tempfile.TemporaryDirectory(prefix="bench-wire-") as folder:
        server = await asyncio.start_unix_server(counter.handle, f"{folder}/.s.PGSQL.{_PORT}")
        async with server:
            yield _proxied_dsn(conninfo_to_dict(dsn), folder), counter


def _proxied_dsn(server: dict[str, Any], folder: str) -> str:
    user, password = quote(str(server.get("user") or "postgres"), safe=""), server.get("password")
    login = f"{user}:{quote(str(password), safe='')}" if password else user
    database = quote(str(server.get("dbname") or user), safe="")
    return f"postgresql://{login}@/{database}?host={quote(folder, safe='/')}&port={_PORT}"
