"""deltastore: a LangGraph checkpointer for PostgreSQL that stores only what each super-step changed."""

from deltastore.connect import DeltaSaver
from deltastore.core.retained import RetentionReport
from deltastore.core.retention import RetentionPolicy, RetentionRule
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
    "RetentionPolicy",
    "RetentionReport",
    "RetentionRule",
    "SchemaVersionError",
    "StoredDataError",
    "ThreadBusyError",
    "ThreadDeletedError",
    "UnreadableValueError",
    "UnserializableValueError",
    "WrongLoopError",
]
