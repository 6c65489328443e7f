"""The command `deltastore`: options, one call of the library, its answer as text or as JSON.

Errors of deltastore end the command with one line and the exit code of their class: 2 the call is wrong, 3 the
database, 4 stored data that does not add up.
"""

from __future__ import annotations

import sys

from deltastore.errors import DeltastoreError


def main() -> None:
    """Entry point of the console script."""
    try:
        from deltastore.cli.commands import deltastore  # noqa: PLC0415 - click and rich are an extra
    except ModuleNotFoundError as error:
        sys.exit(f"deltastore: {error}; pip install 'langgraph-checkpoint-deltastore[cli]'")
    try:
        deltastore()
    except DeltastoreError as error:
        print(f"deltastore: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)
