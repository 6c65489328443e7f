"""One PostgreSQL cluster in a folder: made whole or not at all, and brought to run. Called behind the gate only."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from deltastore.embedded import keeper
from deltastore.embedded.programs import Programs
from deltastore.errors import DatabaseRefusedError, DatabaseUnavailableError

DATABASE = "deltastore"
PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"
SOCKET_PATH_BYTES_MAX = 103
"""Every Unix takes a socket's path up to this length."""
BROKEN_SECONDS_MIN = 2
"""A lock file that was not filled within this time never will be."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster of `folder`, worked on with `programs`; `settings` apply when it is started."""

    folder: Path
    programs: Programs
    settings: Mapping[str, str]

    def ensure_created(self) -> None:
        """Makes the data folder with the database in it, beside its place, and moves it there when it is complete."""
        if (self.folder / keeper.DATA).exists():
            return
        for leftover in self.folder.glob("creating-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        new = self.folder / f"creating-{os.getpid()}-{time.monotonic_ns()}"
        sync = ["--no-sync"] if self.settings.get("fsync") == "off" else []
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", *sync]
        self.programs.run("initdb", *options, data=new)
        self.programs.run("postgres", "--single", "template1", data=new, stdin=f"CREATE DATABASE {DATABASE};\n")
        new.rename(self.folder / keeper.DATA)
        _sync(self.folder)

    def ensure_running(self, deadline: float) -> None:
        """Returns when the server accepts connections; starts it if it does not run.

        Raises:
            DatabaseRefusedError: It ended while starting; the detail says why.
            DatabaseUnavailableError: It was not ready at `deadline` (of `time.monotonic`).
        """
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise self.late(f"see {self._log}")
            if self._is_inhabited():
                time.sleep(0.02)
            else:
                self._launch(max(1, deadline - time.monotonic()))

    def late(self, why: str) -> DatabaseUnavailableError:
        """The error for a server that was not ready in time."""
        return DatabaseUnavailableError(f"the embedded server in {self.folder} was not ready in time", detail=why)

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _is_ready(self) -> bool:
        lines = keeper.postmaster_lines(self.folder)
        return len(lines) >= 8 and lines[7].strip() == "ready" and keeper.is_listening(self.folder)

    def _is_inhabited(self) -> bool:
        """Whether a server runs, begins or ends: also without its files, and processes whose postmaster was killed.

        Nobody may start another server meanwhile. Such processes end by themselves or become a server that is ready.
        """
        if keeper.postmaster(self.folder) is not None or keeper.is_listening(self.folder):
            return True
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if keeper.is_postgres_of(process, self.folder):
                    return True
        return False

    def _launch(self, seconds_max: float) -> None:
        socket_folder = self._socket_folder()
        for lock in (self.folder / keeper.DATA / "postmaster.pid", socket_folder / f"{SOCKET}.lock"):
            if self._is_misleading(lock):
                lock.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)
        settings = {
            **self.settings,
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(socket_folder),
        }
        options = shlex.join(f"--{name}={value}" for name, value in settings.items())
        command = [
            "start",
            "--wait",
            f"--timeout={int(seconds_max)}",
            f"--log={self._log.name}",
            f"--options={options}",
        ]
        try:
            self.programs.run("pg_ctl", *command, data=self.folder / keeper.DATA, seconds_max=seconds_max + 5)
        except DatabaseRefusedError as error:
            if self._is_inhabited():
                return  # a start whose starter was killed came first
            log = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
            raise DatabaseRefusedError(error.message, detail=f"{error.detail}\n{log}") from error

    def _is_misleading(self, lock: Path) -> bool:
        """Whether a lock file of PostgreSQL is broken, or its process id lives again as another process or a zombie.

        PostgreSQL would take that for a running server; it sees through other stale files by itself. A file that is
        empty may be just being written, by a start whose starter was killed.
        """
        try:
            process_id = lock.read_text().partition("\n")[0].strip()
            if not process_id.isdigit():
                return time.time() - lock.stat().st_mtime > BROKEN_SECONDS_MIN
            return not keeper.is_postgres_of(psutil.Process(int(process_id)), self.folder)
        except (FileNotFoundError, psutil.NoSuchProcess):
            return False
        except psutil.Error:
            return True

    def _socket_folder(self) -> Path:
        """The data folder, or a short one beside the temporary files where its path is too long or too odd."""
        data = (self.folder / keeper.DATA).resolve()
        fits = len(os.fsencode(data / SOCKET)) <= SOCKET_PATH_BYTES_MAX
        if fits and re.fullmatch(r"[\w/. +-]+", str(data), re.ASCII):
            return data
        name = hashlib.sha256(f"{data}-{data.stat().st_ino}".encode()).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"deltastore-{name}"
        owner = data.stat()
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(folder, owner.st_uid, owner.st_gid)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner.st_uid or found.st_mode & 0o077:
            raise DatabaseRefusedError(f"{folder} belongs to somebody else", hint="remove it, or set TMPDIR")
        return folder


def _sync(folder: Path) -> None:
    """Makes renames in a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
