"""Stops an embedded server when its last user is gone, however that user went.

One keeper runs beside each embedded server, as a process of its own: `python keeper.py FOLDER`. It is
started by path and imports neither deltastore nor anything else that is not in the standard library or psutil, so it
costs little memory.

Three locks in the folder (flock: the kernel frees them when their holder dies, so no list of process ids can go stale):

- `clients.lock`: shared, held by each handle as long as it uses the server;
- `gate.lock`: exclusive, held while the server is created, started or stopped;
- `keeper.lock`: exclusive, held by the keeper as long as it lives.

Order of taking: gate before clients. Whoever holds the gate and gets `clients.lock` exclusively may stop the server:
nobody uses it and nobody can begin to. A process id is never trusted by itself: the operating system gives it again.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

CLIENTS_LOCK = "clients.lock"
GATE_LOCK = "gate.lock"
KEEPER_LOCK = "keeper.lock"
DATA = "data"
STOP_SECONDS_MAX = 60
SETTLE_SECONDS = 0.5


def open_lock(path: Path, *, create: bool = True) -> int:
    """Opens a lock file. The caller closes the file descriptor."""
    return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)


@contextmanager
def locked(path: Path, seconds_max: float, *, create: bool = True) -> Iterator[bool]:
    """Holds the file's exclusive lock inside the block; yields False if it was not to be had in `seconds_max`."""
    descriptor = open_lock(path, create=create)
    try:
        deadline = time.monotonic() + seconds_max
        while not (taken := try_lock(descriptor, fcntl.LOCK_EX)) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield taken
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, kind: int) -> bool:
    """Takes a lock (`fcntl.LOCK_SH` or `LOCK_EX`) if that needs no waiting."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def postmaster_lines(folder: Path) -> list[str]:
    """Lines of `postmaster.pid` (id, data folder, start time, port, socket folder, ...); empty if there is none."""
    try:
        return (folder / DATA / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def postmaster(folder: Path) -> psutil.Process | None:
    """The running server of the folder. A foreign process that got the id of a dead one does not count."""
    lines = postmaster_lines(folder)
    if not lines or not lines[0].strip().isdigit():
        return None
    try:
        process = psutil.Process(int(lines[0]))
        return process if is_postgres_of(process, folder) else None
    except psutil.Error:
        return None


def is_postgres_of(process: psutil.Process, folder: Path) -> bool:
    """Whether a process is a PostgreSQL process that works on the folder's data."""
    return (
        process.name().startswith("postgres")
        and process.status() != psutil.STATUS_ZOMBIE
        and Path(process.cwd()) == (folder / DATA).resolve()
    )


def is_listening(folder: Path) -> bool:
    """Whether something accepts connections on the folder's socket, be it in another container's process space."""
    lines = postmaster_lines(folder)
    if len(lines) < 5:
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(f"{lines[4].strip()}/.s.PGSQL.{lines[3].strip()}")
        except OSError:
            return False
        return True


def stop_if_unused(folder: Path, seconds_max: float) -> bool:
    """Stops the server if no handle uses it; returns whether none does. The caller holds the gate."""
    descriptor = open_lock(folder / CLIENTS_LOCK, create=False)
    try:
        while not try_lock(descriptor, fcntl.LOCK_EX):
            if try_lock(descriptor, fcntl.LOCK_SH):
                return False  # shared with other handles; else it was the keeper, which holds it for a moment
            time.sleep(0.001)
        stop(folder, seconds_max)
        return True
    finally:
        os.close(descriptor)


def stop(folder: Path, seconds_max: float) -> None:
    """Stops the server in order (SIGINT, "fast"), or at once (SIGQUIT) if that takes longer than `seconds_max`.

    Its end is seen in `postmaster()`, not waited for: a dead server may stay a zombie where no init process reaps.
    """
    lines = postmaster_lines(folder)
    for signal_number in (signal.SIGINT, signal.SIGQUIT):
        if (server := postmaster(folder)) is None:
            break
        with suppress(psutil.NoSuchProcess):
            server.send_signal(signal_number)
        deadline = time.monotonic() + seconds_max
        while postmaster(folder) is not None and time.monotonic() < deadline:
            time.sleep(0.01)
    with suppress(OSError, IndexError):
        Path(lines[4].strip()).rmdir()  # a socket folder of its own is empty now; the data folder never is


def wait_until_unused(folder: Path) -> None:
    """Returns when no process holds the folder's clients lock; it may be taken again at once."""
    descriptor = open_lock(folder / CLIENTS_LOCK, create=False)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def keep(folder: Path, keeper_lock: int) -> None:
    """Stops the folder's server as soon as nobody uses it, and returns; also when the folder was removed."""
    with suppress(FileNotFoundError):
        while True:
            wait_until_unused(folder)
            time.sleep(SETTLE_SECONDS)  # who was killed while starting the server leaves a start that is on its way
            with locked(folder / GATE_LOCK, STOP_SECONDS_MAX, create=False) as gate:
                if gate and stop_if_unused(folder, STOP_SECONDS_MAX):
                    os.close(keeper_lock)  # before the gate opens: who comes next must see that there is no keeper
                    return


def main(folder: Path) -> None:
    """Becomes the folder's keeper in a process of its own, or returns if there is one.

    The lock is taken before the fork, so that it is held when the caller's call of this program ends.
    """
    keeper_lock = open_lock(folder / KEEPER_LOCK)
    if try_lock(keeper_lock, fcntl.LOCK_EX) and os.fork() == 0:
        os.setsid()
        keep(folder, keeper_lock)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
