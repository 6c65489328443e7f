"""PgBouncer in front of a test server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

CONFIGURATION = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {server_connections}
max_client_conn = 100
ignore_startup_parameters = extra_float_digits
logfile = {folder}/log
"""


@contextmanager
def pgbouncer(dsn: str, *, server_connections: int) -> Iterator[str]:
    """The DSN of a PgBouncer in transaction mode in front of the database; skips the test if it is not installed."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed (apt-get install pgbouncer): the pooler is NOT tested")
    target = urlsplit(dsn)
    query = {name: values[0] for name, values in parse_qs(target.query).items()}
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen_port = probe.getsockname()[1]
        configuration = CONFIGURATION.format(
            host=query.get("host", target.hostname),
            port=query.get("port", target.port or 5432),
            user=target.username,
            listen_port=listen_port,
            server_connections=server_connections,
            folder=folder,
        )
        path = Path(folder, "pgbouncer.ini")
        path.write_text(configuration)
        probe.close()
        command = [program, str(path)]
        if os.geteuid() == 0:
            command[1:1] = ["-u", _socket_owner(query.get("host")), "-q"]
            for each in (Path(folder), path):
                each.chmod(0o777)
        process = subprocess.Popen(command)
        try:
            _wait_for(listen_port, process)
            yield f"postgresql://{target.username}@127.0.0.1:{listen_port}{target.path}"
        finally:
            process.terminate()
            process.wait()


def _socket_owner(host: str | None) -> str:
    """PgBouncer does not run as root: the user who may reach the server's socket."""
    return Path(host).owner() if host and host.startswith("/") else "nobody"


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert process.poll() is None, "pgbouncer did not start"
            assert time.monotonic() < deadline, "pgbouncer does not listen"
            time.sleep(0.02)
        else:
            return
