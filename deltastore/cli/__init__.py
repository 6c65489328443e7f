"""The command `deltastore`: options, one call of the library, its answer as text or as JSON.

Errors of deltastore end the command with one line and the exit code of their class: 2 the call is wrong, 3 the
database, 4 stored data that does not add up. 5 is an answer that cannot be written: what was asked for may be done.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from deltastore.errors import CallerError, DeltastoreError

UNWRITTEN_EXIT_CODE = 5


def main() -> None:
    """Entry point of the console script."""
    try:
        from deltastore.cli.commands import deltastore  # noqa: PLC0415 - click and rich are an extra
    except ModuleNotFoundError as error:
        _end(f"{error}; hint: pip install 'langgraph-checkpoint-deltastore[cli]'", CallerError.exit_code)
    try:
        deltastore()
    except DeltastoreError as error:
        _end(str(error), error.exit_code)
    except OSError as error:
        if error.filename is not None:
            _end(str(error), CallerError.exit_code)
        _forget_output()
        _end(f"the answer cannot be written; {type(error).__name__}: {error}", UNWRITTEN_EXIT_CODE)


def _end(message: str, exit_code: int) -> None:
    with suppress(OSError):
        print(f"deltastore: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(exit_code)


def _forget_output() -> None:
    """What waits to be written is not tried again at the end of the process."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
