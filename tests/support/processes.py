"""Python processes to be killed: a script, its output line by line, and a signal at any moment."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]


class Script:
    """A running Python process; what it prints is read with `line()`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def _output(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def line(self) -> str:
        """The next printed line; fails if the process ended without one."""
        text = self._output.readline().rstrip("\n")
        assert text, f"the script ended with code {self.process.wait()}: {self._error()}"
        return text

    def kill(self) -> None:
        """`kill -9`, and waits for the end."""
        self.process.kill()
        self.process.wait()

    def finish(self, text: str = "") -> str:
        """Gives the script `text` as its last input and waits for its end; returns the rest of its output."""
        output, error = self.process.communicate(text, timeout=60)
        assert self.process.returncode == 0, error
        return output

    def _error(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextmanager
def running(
    code: str,
    *arguments: object,
    user: str | None = None,
    python: str = sys.executable,
    new_group: bool = False,
) -> Iterator[Script]:
    """Runs Python code with `sys.argv[1:]` as given; at the end of the block it is killed if it still runs.

    Another `python` than ours gets our packages; `user` is a system user to run as.
    """
    with subprocess.Popen(
        [python, "-u", "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        user=user,
        group=user and pwd.getpwnam(user).pw_gid,
        extra_groups=user and [],
        process_group=0 if new_group else None,
    ) as process:
        try:
            yield Script(process)
        finally:
            process.kill()


def eventually(condition: Callable[[], object], seconds_max: float = 15) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
