"""Threads re-packed in place, so that they take less than half the space: `compact_threads`, `compact_by_policy`.

How a thread is packed is in `core/packing.py`, how it is done while others may write to it in `repacking.py`.
"""

from deltastore.compaction.api import compact_by_policy, compact_threads
from deltastore.core.compacted import CompactedThread, Compaction, CompactionReport

__all__ = ["CompactedThread", "Compaction", "CompactionReport", "compact_by_policy", "compact_threads"]
