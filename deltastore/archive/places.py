"""Where archives are kept: any folder that fsspec knows (`file:///…`, `s3://…`, `memory://…`, a plain path).

A file gets its name only when it is whole: it is written under another name, and then moved. Local files and the
folder are flushed to the disk, since what they hold is about to be removed from the database.

Folders are made where a file cannot be opened without, and not before: in an object store the first part of the path is
a bucket, which a slip in its name must not create.

Each protocol raises what its client raises, not only `OSError`. So whatever comes out of a file system is reported as
the place's refusal, at each call of it and nowhere else.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from deltastore.errors import InvalidConfigError

PACKAGES = {"s3": "archive-s3", "s3a": "archive-s3"}
"""The extras that bring the package of a protocol."""

_STAYS = "the thread is still in the database: correct the place and run it again"


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

    def draft(self) -> Draft:
        """A new file without a name."""
        return Draft(self._files, self._root, self.url)


class Draft:
    """A file that has no name yet. To be discarded in the end.

    Its calls take a while; each raises `InvalidConfigError` if the place refuses it.
    """

    def __init__(self, files: Any, root: str, url: str) -> None:
        name = f".partial-{secrets.token_hex(8)}"
        self._files = files
        self._root = root
        self._path = f"{root}/{name}"
        self._place = url
        self._is_named = False
        self._file: IO[bytes] | None = None
        self.url = f"{url}/{name}"

    def open(self) -> None:
        """Begins the writing."""
        with self._writing():
            try:
                self._file = self._files.open(self._path, "wb")
            except FileNotFoundError:
                self._files.makedirs(self._root, exist_ok=True)
                self._file = self._files.open(self._path, "wb")

    def write(self, data: bytes, /) -> None:
        """Adds bytes."""
        assert self._file is not None
        with self._writing():
            self._file.write(data)

    def close(self) -> None:
        """Ends the writing."""
        assert self._file is not None
        with self._writing():
            self._file.close()
            self._flush(self._path)

    def name(self, name: str) -> None:
        """Gives the file its name; a file that has it already is replaced."""
        with self._writing():
            self._files.mv(self._path, f"{self._root}/{name}")
            self._is_named = True
            self._flush(self._root)

    def discard(self) -> None:
        """Removes the file if it has no name, as far as the place allows that. Raises nothing."""
        if self._file is None or self._is_named:
            return
        with suppress(Exception):  # where it goes up in parts, this gives those up; else nothing happens, or a refusal
            self._file.discard()  # type: ignore[attr-defined]
        with suppress(Exception):
            self._file.close()
        with suppress(Exception):
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
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise _refused(self._place, "written to", error, hint=_STAYS) from error


class Source:
    """A file for reading, from its beginning."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._files, self._path = _found(url)
        with _reading(url):
            self._file: IO[bytes] = self._files.open(self._path, "rb")

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes. Raises `InvalidConfigError` if it cannot be read."""
        with _reading(self._url):
            return self._file.read(size)

    def close(self) -> None:
        """Ends the reading."""
        self._file.close()


@contextmanager
def opened(url: str) -> Iterator[Source]:
    """A file for reading.

    Raises:
        InvalidConfigError: It cannot be opened or read.
    """
    source = Source(url)
    try:
        yield source
    finally:
        source.close()


def matching(url: str) -> list[str]:
    """The files that an address with `*` in it stands for, by name; of another address only itself.

    Raises:
        InvalidConfigError: The place cannot be listed, or nothing matches.
    """
    if "*" not in url:
        return [url]
    files, path = _found(url)
    with _reading(url):
        files.invalidate_cache()
        found = sorted(files.glob(path))
    if not found:
        raise InvalidConfigError(f"no file matches {url}")
    return [files.unstrip_protocol(each) for each in found]


@contextmanager
def _reading(url: str) -> Iterator[None]:
    try:
        yield
    except IsADirectoryError as error:
        raise InvalidConfigError(
            f"{url} is a folder", hint=f"name its files: {url.rstrip('/')}/*.deltastore"
        ) from error
    except Exception as error:
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
        extra = PACKAGES.get(url.partition("://")[0]) if isinstance(error, ImportError) else None
        raise InvalidConfigError(
            f"{url!r} cannot be used as a place for archives",
            detail=str(error),
            hint=f"pip install 'langgraph-checkpoint-deltastore[{extra}]'" if extra else "",
        ) from error
    return files, path


def _refused(url: str, verb: str, error: Exception, *, hint: str = "") -> InvalidConfigError:
    return InvalidConfigError(f"{url} cannot be {verb}", detail=f"{type(error).__name__}: {error}", hint=hint)
