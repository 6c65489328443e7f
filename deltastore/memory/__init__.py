"""Storage in dicts: for users' unit tests, and as the model that PostgreSQL's storage is compared with."""

from deltastore.memory.storage import MemoryStorage

__all__ = ["MemoryStorage"]
