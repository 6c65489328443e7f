"""The handle of an embedded server: create, start, share, leave. The package's docstring states the contract."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self
from urllib.parse import quote

from deltastore.embedded import keeper
from deltastore.embedded.cluster import DATABASE, PORT, Cluster
from deltastore.embedded.programs import default_folder, find_programs, give_to_server_user
from deltastore.errors import DatabaseRefusedError, InvalidConfigError, WrongLoopError

DSN_PREFIX = "embedded"


def embedded_folder(dsn: str) -> Path:
    """The folder that a DSN `embedded` or `embedded:<folder>` means.

    Raises:
        InvalidConfigError: The DSN has another form, or the extra `embedded` is not installed.
    """
    if dsn == DSN_PREFIX:
        return default_folder()
    prefix, _, folder = dsn.partition(":")
    if prefix != DSN_PREFIX or not folder or "\0" in folder:
        raise InvalidConfigError(f"the DSN {dsn!r} names no folder", hint="write embedded:<folder>, or just embedded")
    return Path(folder)


class EmbeddedServer:
    """A share in the PostgreSQL server of a folder. Starting an already started handle checks that the server runs.

    Usable as `with` and as `async with`; the blocking calls of the latter run in a thread.

    Args:
        folder: Where the server keeps its data; created if it is missing.
        programs: Folder of PostgreSQL's programs; by default the ones of the wheel that fit the folder's data.
        settings: Server settings by name, for the case that this handle starts the server.
    """

    def __init__(
        self, folder: Path | str, *, programs: Path | None = None, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self._programs_folder = programs
        self._settings = settings
        self._clients: int | None = None

    @property
    def dsn(self) -> str:
        """The DSN of the database `deltastore` on the started server.

        Raises:
            WrongLoopError: The handle is not started.
        """
        lines = keeper.postmaster_lines(self.folder)
        if self._clients is None or len(lines) < 5:
            raise WrongLoopError(f"the embedded server in {self.folder} is not started", hint="call start() first")
        return f"postgresql://postgres@/{DATABASE}?host={quote(lines[4].strip(), safe='/')}&port={PORT}"

    @property
    def is_made(self) -> bool:
        """Whether the folder holds a database already."""
        return (self.folder / keeper.DATA).exists()

    def start(self, seconds_max: float = 60) -> str:
        """Makes sure that the server runs and holds it; blocks, for about two seconds when the folder is new.

        Returns:
            The DSN.

        Raises:
            InvalidConfigError: The extra `embedded` is not installed, or the folder holds something else.
            DatabaseRefusedError: The folder or PostgreSQL's programs cannot be used.
            DatabaseUnavailableError: Another process kept the gate for longer than `seconds_max`, or the
                server was not ready in this time after its start.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._refuse_foreign_folder()
            programs = find_programs(self.folder / keeper.DATA, self._programs_folder)
            give_to_server_user(self.folder, programs)
            self._enter(Cluster(self.folder, programs, self._settings), seconds_max)
        except OSError as error:
            raise DatabaseRefusedError(f"the embedded server cannot use {self.folder}", detail=str(error)) from error
        return self.dsn

    def stop(self) -> None:
        """Leaves the server, and stops it if nobody else uses it. Harmless when not started."""
        if self._clients is None:
            return
        self._leave()
        with (
            suppress(FileNotFoundError),  # the folder was removed: the server notices that within a minute and ends
            keeper.locked(self.folder / keeper.GATE_LOCK, keeper.STOP_SECONDS_MAX) as gate,
        ):
            if gate:
                keeper.stop_if_unused(self.folder, keeper.STOP_SECONDS_MAX)

    async def start_async(self, seconds_max: float = 60) -> str:
        """`start` in a thread. Cancelled while it runs, it first comes to an end and then leaves the server."""
        starting = asyncio.ensure_future(asyncio.to_thread(self.start, seconds_max))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            await asyncio.to_thread(self.stop)
            raise

    async def stop_async(self) -> None:
        """`stop` in a thread."""
        await asyncio.to_thread(self.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await self.start_async()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_async()

    def _refuse_foreign_folder(self) -> None:
        names = {path.name for path in self.folder.iterdir()}
        if names and keeper.GATE_LOCK not in names:
            raise InvalidConfigError(
                f"{self.folder} is not empty and holds no embedded server",
                detail=f"found {sorted(names)[:3]}",
                hint="name a new or an empty folder",
            )

    def _enter(self, cluster: Cluster, seconds_max: float) -> None:
        with keeper.locked(self.folder / keeper.GATE_LOCK, seconds_max) as gate:
            if not gate:
                raise cluster.late("another process holds its gate.lock")
            if self._clients is None:
                self._clients = keeper.open_lock(self.folder / keeper.CLIENTS_LOCK)
            fcntl.flock(self._clients, fcntl.LOCK_SH)
            try:
                self._ensure_keeper()
                cluster.ensure_created()
                cluster.ensure_running(time.monotonic() + seconds_max)
            except BaseException:
                self._leave()
                raise

    def _leave(self) -> None:
        if self._clients is not None:
            os.close(self._clients)
            self._clients = None

    def _ensure_keeper(self) -> None:
        with keeper.locked(self.folder / keeper.KEEPER_LOCK, 0) as absent:
            pass
        if absent:
            command = [sys.executable, "-P", keeper.__file__, str(self.folder)]
            nothing = subprocess.DEVNULL
            subprocess.run(command, check=True, stdin=nothing, stdout=nothing, stderr=nothing, cwd="/")
