"""Looking at threads: which there are, their history, one checkpoint, and what differs between two.

Every function takes an open `DeltaSaver`, however it was opened, and may be awaited on any event loop; in a synchronous
program `asyncio.run(show(saver, …))` does. Nothing here changes anything, and no value that cannot be decoded makes a
screen fail: it is shown as `Unopened`. The commands `deltastore threads`, `history`, `show` and `diff` print what these
functions give.
"""

from deltastore.inspection.checkpoints import show
from deltastore.inspection.differences import diff
from deltastore.inspection.history import history
from deltastore.inspection.messages import Call, Message, message_of
from deltastore.inspection.records import (
    ChannelChange,
    ChannelDifference,
    ChannelView,
    CheckpointView,
    Difference,
    HistoryEntry,
    ItemDifference,
    NamespaceSummary,
    ThreadSummary,
    WriteView,
)
from deltastore.inspection.threads import find_thread, namespaces, threads
from deltastore.inspection.values import Unopened

__all__ = [
    "Call",
    "ChannelChange",
    "ChannelDifference",
    "ChannelView",
    "CheckpointView",
    "Difference",
    "HistoryEntry",
    "ItemDifference",
    "Message",
    "NamespaceSummary",
    "ThreadSummary",
    "Unopened",
    "WriteView",
    "diff",
    "find_thread",
    "history",
    "message_of",
    "namespaces",
    "show",
    "threads",
]
