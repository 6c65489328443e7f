"""A line to the database that breaks on command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit


class Proxy:
    """Stands between client and server.

    Attributes:
        dsn: How to reach the database through the proxy.
        cuts_answers: Close a connection in place of passing on the server's next answer on it.
        swallows: Pass nothing on, in neither direction, and close nothing: as when a network drops packets.
        answered: How many packets of the server were passed on.
    """

    def __init__(self, target: str) -> None:
        url = urlsplit(target)
        query = parse_qs(url.query)
        self._host = query.get("host", [url.hostname or "localhost"])[0]
        self._port = int(query.get("port", [str(url.port or 5432)])[0])
        self._login = f"postgresql://{url.username}@127.0.0.1"
        self._database = url.path
        self._writers: list[asyncio.StreamWriter] = []
        self.dsn = ""
        self.cuts_answers = False
        self.swallows = False
        self.answered = 0

    def listening(self, port: int) -> None:
        self.dsn = f"{self._login}:{port}{self._database}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._host.startswith("/"):
            there, server = await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            there, server = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, server]
        await asyncio.gather(self._pass_on(reader, server), self._pass_on(there, writer, answers=True))

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if self.swallows:
                    continue
                if answers and self.cuts_answers:
                    break
                target.write(data)
                await target.drain()
                self.answered += answers
        if not self.swallows:
            target.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def proxy_to(dsn: str) -> AsyncIterator[Proxy]:
    """A proxy in front of the database."""
    proxy = Proxy(dsn)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.listening(server.sockets[0].getsockname()[1])
    try:
        yield proxy
    finally:
        proxy.close()
        server.close()
        await server.wait_closed()
