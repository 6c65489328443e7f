"""deltastore: a LangGraph checkpointer for PostgreSQL that stores only what each super-step changed."""

from deltastore.connect import DeltaSaver
from deltastore.errors import (
    BrokenChainError,
    CallerError,
    CorruptPayloadError,
    DatabaseError,
    DatabaseRefusedError,
    DatabaseUnavailableError,
    DeltastoreError,
    InvalidConfigError,
    SchemaVersionError,
    StoredDataError,
    ThreadBusyError,
    ThreadDeletedError,
    UnreadableValueError,
    UnserializableValueError,
    WrongLoopError,
)

__all__ = [
    "BrokenChainError",
    "CallerError",
    "CorruptPayloadError",
    "DatabaseError",
    "DatabaseRefusedError",
    "DatabaseUnavailableError",
    "DeltaSaver",
    "DeltastoreError",
    "InvalidConfigError",
    "SchemaVersionError",
    "StoredDataError",
    "ThreadBusyError",
    "ThreadDeletedError",
    "UnreadableValueError",
    "UnserializableValueError",
    "WrongLoopError",
]
