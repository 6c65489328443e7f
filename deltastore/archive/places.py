"""Where archives are kept: any folder that fsspec knows (`file:///…`, `s3://…`, `memory://…`, a plain path).

A file gets its name only when it is whole: it is written under another name, and then moved. Local files and the
folder are flushed to the disk, since what they hold is about to be removed from the database.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from deltastore.errors import InvalidConfigError


class Place:
    """A folder.

    Args:
        url: The folder; made when the first file is written.

    Raises:
        InvalidConfigError: fsspec is not installed, does not know the protocol, or lacks a package for it.
    """

    def __init__(self, url: str) -> None:
        self._files, root = _found(url)
        self._root = root.rstrip("/")
        self.url = url.rstrip("/")

    def check(self, *, make: bool) -> None:
        """Looks whether a local folder is there and can be written to. Other places show that with the first file.

        Args:
            make: It may be missing, if it can be made.

        Raises:
            InvalidConfigError: It is not so.
        """
        if not _is_local(self._files):
            return
        folder = Path(self._root or "/")
        while make and not os.path.lexists(folder):
            folder = folder.parent
        if not folder.exists():
            raise InvalidConfigError(
                f"there is no folder {folder}",
                detail="no thread was touched",
                hint="correct the path, or say --make-folder",
            )
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise InvalidConfigError(f"{folder} is no folder that can be written to", detail="no thread was touched")

    def url_of(self, name: str) -> str:
        """The address of a file."""
        return f"{self.url}/{name}"

    @contextmanager
    def written(self) -> Iterator[Draft]:
        """A new file without a name; gone at the end unless it was named.

        Raises:
            InvalidConfigError: The place cannot be written to.
        """
        draft = Draft(self._files, self._root, self.url)
        try:
            yield draft
        except OSError as error:
            raise _refused(self.url, "written to", error) from error
        finally:
            draft.discard()


class Draft:
    """A file that has no name yet."""

    def __init__(self, files: Any, root: str, url: str) -> None:
        name = f".partial-{secrets.token_hex(8)}"
        self._files = files
        self._root = root
        self._path = f"{root}/{name}"
        self._is_named = False
        self._file: IO[bytes] | None = None
        self.url = f"{url}/{name}"

    def open(self) -> IO[bytes]:
        """The file for writing."""
        self._files.makedirs(self._root, exist_ok=True)
        self._file = self._files.open(self._path, "wb")
        return self._file

    def close(self) -> None:
        """Ends the writing."""
        assert self._file is not None
        self._file.close()
        self._flush(self._path)

    def name(self, name: str) -> None:
        """Gives the file its name; a file that has it already is replaced."""
        self._files.mv(self._path, f"{self._root}/{name}")
        self._is_named = True
        self._flush(self._root)

    def discard(self) -> None:
        """Removes the file if it has no name."""
        if self._file is None or self._is_named:
            return
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._files.rm_file(self._path)

    def _flush(self, path: str) -> None:
        if not _is_local(self._files):
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def opened(url: str) -> Iterator[IO[bytes]]:
    """A file for reading.

    Raises:
        InvalidConfigError: It cannot be opened or read.
    """
    files, path = _found(url)
    try:
        with files.open(path, "rb") as file:
            yield file
    except IsADirectoryError as error:
        raise InvalidConfigError(
            f"{url} is a folder", hint=f"name its files: {url.rstrip('/')}/*.deltastore"
        ) from error
    except OSError as error:
        raise _refused(url, "read", error) from error


def _is_local(files: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415 - an extra

    return isinstance(files, LocalFileSystem)


def opener() -> Callable[[str], tuple[Any, str]]:
    """What gives the file system and the path of an address. Raises `InvalidConfigError` if fsspec is not installed."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise InvalidConfigError(
            "archives need one more package",
            detail=str(error),
            hint="pip install 'langgraph-checkpoint-deltastore[archive]'",
        ) from error
    found: Callable[[str], tuple[Any, str]] = url_to_fs
    return found


def _found(url: str) -> tuple[Any, str]:
    url_to_fs = opener()
    try:
        files, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InvalidConfigError(f"{url!r} cannot be used as a place for archives", detail=str(error)) from error
    return files, path


def _refused(url: str, verb: str, error: OSError) -> InvalidConfigError:
    return InvalidConfigError(f"{url} cannot be {verb}", detail=f"{type(error).__name__}: {error}")
