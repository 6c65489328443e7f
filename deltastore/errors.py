"""The one tree of errors, split by whose fault it is.

    DeltastoreError
    ├── CallerError (ValueError)        the call is wrong: fix the call
    │   ├── InvalidConfigError          thread id, namespace, checkpoint id, option
    │   ├── UnserializableValueError    a value the serializer cannot keep exactly
    │   └── WrongLoopError              a synchronous call on the saver's own event loop, or a closed saver
    ├── DatabaseError                   the database is away, busy or not set up
    │   ├── DatabaseUnavailableError    no connection within the configured time (retrying later can help)
    │   │   └── ThreadBusyError         others hold the thread for longer than the caller wanted to wait
    │   ├── DatabaseRefusedError        the server refused a statement (rights, disk, configuration)
    │   └── SchemaVersionError          the schema is missing, older or newer than this code
    └── StoredDataError                 what was stored does not add up: never answered with a guess
        ├── CorruptPayloadError         checksum, length, format or codec of one payload is wrong
        ├── BrokenChainError            a checkpoint, segment or page that is needed is missing
        │   └── ThreadDeletedError      a save names a checkpoint of a thread that was deleted
        └── UnreadableValueError        the serializer or the cipher cannot read a stored value

Every error carries `detail` (what was found and expected) and `hint` (what to do next); both are part of its text.
The command line takes its exit code from the class (`exit_code`), and `retryable` says whether trying again can help.
"""

from __future__ import annotations

from typing import ClassVar


class DeltastoreError(Exception):
    """Anything that deltastore raises on purpose.

    Args:
        message: What went wrong, in lower case, with the thread, namespace, checkpoint and channel where known.
        detail: What was found and what was expected.
        hint: What to do next.
    """

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        self.message = message
        self.detail = detail
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        parts = [self.message]
        if self.detail:
            parts.append(self.detail)
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "; ".join(parts)


class CallerError(DeltastoreError, ValueError):
    """The call itself is wrong; nothing was sent to the database."""

    exit_code = 2


class InvalidConfigError(CallerError):
    """A thread id, namespace, checkpoint id, filter or option has the wrong type or form."""


class UnserializableValueError(CallerError):
    """A value cannot be stored so that the same value comes back. Nothing of the call was stored."""


class WrongLoopError(DeltastoreError, RuntimeError):
    """A synchronous call on the saver's own event loop, or a call on a saver that is not open."""

    exit_code = 2


class DatabaseError(DeltastoreError):
    """The database did not do what was asked."""

    exit_code = 3


class DatabaseUnavailableError(DatabaseError):
    """No usable connection within the configured time. Nothing is known to be stored by the failed call."""

    retryable = True


class ThreadBusyError(DatabaseUnavailableError):
    """Others held the thread for longer than the caller wanted to wait, or made it meanwhile. Nothing was done."""


class DatabaseRefusedError(DatabaseError):
    """The server answered with an error that trying again does not mend."""


class SchemaVersionError(DatabaseError):
    """The schema is missing, or older or newer than this code."""


class StoredDataError(DeltastoreError):
    """Stored data does not add up. deltastore never returns a state that it cannot prove."""

    exit_code = 4


class CorruptPayloadError(StoredDataError):
    """A payload has a wrong checksum, length, format version or codec."""


class BrokenChainError(StoredDataError):
    """A checkpoint, segment or page that the requested state needs is missing, or the links do not fit."""


class ThreadDeletedError(BrokenChainError):
    """A save or writes name a checkpoint of a thread that was deleted. Nothing was stored; the thread stays deleted."""


class UnreadableValueError(StoredDataError):
    """The serializer or the cipher cannot read a stored value (another key, a refused or missing type)."""
