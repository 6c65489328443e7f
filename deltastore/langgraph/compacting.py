"""What the saver does for one thread that is written to no more: a verb that LangGraph does not know."""

from __future__ import annotations

from deltastore.core.compacted import CompactedThread
from deltastore.langgraph.bridge import Bridge
from deltastore.langgraph.calls import Calls


class CompactingSaver:
    """The part of `EngineSaver` that compacts."""

    _bridge: Bridge

    async def acompact_thread(self, thread_id: str) -> CompactedThread:
        """Re-packs a thread in place: its segments go into large packs. Every checkpoint reads as before.

        For threads that nobody goes on with for a while: less than half the bytes on disk, while a load takes a bit
        longer. It can be gone on with at any time; what comes then is packed by the next call.

        Returns:
            How many rows went into how many packs, and their bytes; `unchanged` if nothing would get smaller.

        Raises:
            InvalidConfigError: There is no such thread.
            ThreadBusyError: It is written to all the time; it is as it was.
            StoredDataError: It is damaged; it is as it was.
            DatabaseError: The database is away; the thread is as it was, or compacted.
        """
        return await self._bridge.arun(self._calls().compact_thread(thread_id))

    def compact_thread(self, thread_id: str) -> CompactedThread:
        """`acompact_thread`, waiting in this thread."""
        return self._bridge.run(self._calls().compact_thread(thread_id))

    def _calls(self) -> Calls:
        raise NotImplementedError
