"""What a database and a thread hold, and how they grow: `database_statistics`, `thread_statistics`."""

from deltastore.core.statistics import (
    Chains,
    ChannelWeight,
    Counts,
    DatabaseStatistics,
    Day,
    Sample,
    ThreadSize,
    ThreadWeight,
    Volume,
)
from deltastore.statistics.api import database_statistics, thread_statistics

__all__ = [
    "Chains",
    "ChannelWeight",
    "Counts",
    "DatabaseStatistics",
    "Day",
    "Sample",
    "ThreadSize",
    "ThreadWeight",
    "Volume",
    "database_statistics",
    "thread_statistics",
]
