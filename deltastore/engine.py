"""The engine: the verbs of the saver over one storage, with one cache.

It knows states and items, not LangGraph's configs. There is no lock: calls for different checkpoints run side by side
on the whole pool. The verbs live in `reading.py`, `writing.py`, `maintenance.py`, `retention/` and
`repacking.py` and are put together here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deltastore.cache import Cache
from deltastore.core.draft import Put
from deltastore.core.frame import Cipher
from deltastore.core.model import Refusal, ThreadRef
from deltastore.errors import BrokenChainError, ThreadDeletedError
from deltastore.maintenance import Maintenance
from deltastore.options import EngineOptions
from deltastore.reading import Reader
from deltastore.repacking import Repacking
from deltastore.retention import Retention
from deltastore.storage import Storage
from deltastore.writing import Writer, was_deleted


@dataclass(slots=True)
class Engine:
    """Reads, writes and maintains threads. Used from one event loop at a time."""

    storage: Storage
    options: EngineOptions = field(default_factory=EngineOptions)
    cache: Cache = field(init=False)
    reader: Reader = field(init=False)
    writer: Writer = field(init=False)
    maintenance: Maintenance = field(init=False)
    retention: Retention = field(init=False)
    repacking: Repacking = field(init=False)

    def __post_init__(self) -> None:
        self.cache = Cache(self.options.cache_bytes)
        self.reader = Reader(self.storage, self.cache, self.options)
        self.writer = Writer(self.storage, self.cache, self.options, self.reader)
        self.maintenance = Maintenance(self.storage, self.cache, self.options, self.reader, self.writer)
        self.retention = Retention(self.storage, self.cache, self.options)
        self.repacking = Repacking(self.storage, self.cache)

    async def save(self, thread: ThreadRef, put: Put, cipher: Cipher | None) -> None:
        """Stores a checkpoint; a stored one of the same id is replaced.

        Raises:
            DatabaseError: Nothing was stored, or (unavailable) it is not known whether it was.
            StoredDataError: The parent cannot be rebuilt.
            ThreadDeletedError: The thread was deleted, and the save names a checkpoint of what it was.
        """
        try:
            refused = await self.writer.save(thread, put, cipher)
        except BrokenChainError as error:
            is_gone = await self.storage.extend_deletion(thread.key, put.checkpoint_id)
            if is_gone and not isinstance(error, ThreadDeletedError):
                raise was_deleted(thread, put.namespace, put.checkpoint_id) from error
            raise
        if refused is Refusal.EXISTS:
            await self.maintenance.put_again(thread, put, cipher)
