"""Files that are written whole or not at all: under a temporary name beside the real one, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import UsageError


def write_whole(path: Path, text: str) -> None:
    """Writes a file; what was there before stays until the new text is complete.

    Raises:
        UsageError: It cannot be written. Nothing half is left.
    """
    with _written_beside(path, text) as temporary:
        temporary.replace(path.resolve())


def check_writable(path: Path) -> None:
    """Tries whether a file can be written, without touching what is there.

    Raises:
        UsageError: It cannot.
    """
    with _written_beside(path, "\n"):
        pass


@contextmanager
def _written_beside(path: Path, text: str) -> Iterator[Path]:
    """The text in a temporary file beside `path`, or beside what that leads to as a link; removed at the end."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} cannot be written: expected a file, found a folder or a device")
        real = path.resolve()
        temporary = real.with_name(f".{real.name}.{os.getpid()}.part")
        try:
            temporary.write_text(text, encoding="utf-8")
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
