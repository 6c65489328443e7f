"""A process per cell, so that memory and CPU time are the cell's own; the runner lets one work at a time.

The runner sends (method of `Cell`, arguments) and waits for the answer. Between commands the process sleeps in its
event loop.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from bench.cell import Cell, CellSpec
from bench.errors import BenchError, TargetError, one_line

_JOIN_SECONDS = 10


@dataclass(frozen=True)
class _Answer:
    value: Any
    problem: BenchError | None = None


class CellProcess:
    """A cell in another process."""

    def __init__(self, spec: CellSpec) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, remote = context.Pipe()
        self._process = context.Process(target=_main, args=(spec, remote), daemon=True)
        self._process.start()
        remote.close()

    def call(self, method: str, *args: Any) -> Any:
        """Runs a method of the cell and waits for what it returns.

        Raises:
            BenchError: What the cell raised, or that its process has ended.
        """
        try:
            self._connection.send((method, args))
            answer: _Answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(_JOIN_SECONDS)
            raise TargetError(f"its process ended with code {self._process.exitcode} during {method}") from error
        if answer.problem:
            raise answer.problem
        return answer.value

    def stop(self) -> None:
        """Lets the process end by itself, and kills it if it does not."""
        self._connection.close()
        self._process.join(_JOIN_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()
        self._process.join(_JOIN_SECONDS)
        self._connection.close()


def _main(spec: CellSpec, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's to handle
    logging.getLogger().addHandler(logging.NullHandler())  # drivers would log tracebacks over the progress bar
    asyncio.run(_serve(spec, connection))


async def _serve(spec: CellSpec, connection: Connection) -> None:
    cell: Cell | None = None
    while True:
        try:
            method, args = await asyncio.to_thread(connection.recv)
        except (EOFError, OSError):
            return
        try:
            cell = cell or Cell(spec)
            answer = _Answer(await getattr(cell, method)(*args))
        except BenchError as error:
            answer = _Answer(None, error)
        except Exception as error:  # noqa: BLE001 - whatever a saver raises is the target's failure
            answer = _Answer(None, TargetError(f"{method}: {one_line(error)}"))
        connection.send(answer)
