"""The seam between the engine and where bytes are kept.

A storage speaks keys, sealed bytes and searchable metadata, never channel values. There are two: `memory.py` (dicts,
for users' unit tests and as a model for ours) and `postgres/` (the product); the same contract suite runs on both.

Promises of every storage:

- a save lands whole or not at all, and an acknowledged save survives (memory: as long as the process);
- segment ids grow: a segment saved after another one was acknowledged has the larger id;
- **epoch**: a number of the thread that changes, to a value never used before, whenever anything is removed or
  rewritten. A save that names an epoch is refused (`Refusal.STALE`) if the thread's differs, so references found at an
  epoch are proved to exist as long as a save at that epoch is accepted;
- a save says whether a pack may hold writes that came before their checkpoint (`Saved.is_amid_packs`): `parent_writes`
  does not count these;
- `edit` excludes every other save, delete and edit of the thread while it lasts;
- **deleted threads stay deleted**: `delete_thread` leaves a tombstone with the largest checkpoint id of the thread. As
  long as the thread is not there, a save that names a checkpoint (`held_id`, or a parent) is refused: as
  `Refusal.DELETED` if it has a parent or names one up to the tombstone's, else as `Refusal.EARLY`. A save that names
  none begins the thread anew. A save whose parent was deleted with the thread is refused then, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from deltastore.core.edits import LockBounds, NewRows, StagedThread, ThreadChanges, ThreadOutline, ThreadRows
from deltastore.core.model import (
    Chains,
    Known,
    ListEntry,
    ListQuery,
    MetadataRow,
    Refusal,
    Save,
    Saved,
    SaveWrites,
    SegmentRow,
    ThreadRef,
)
from deltastore.core.overview import NamespaceEntry, ThreadEntry, ThreadsQuery
from deltastore.core.statistics import Counts, Day
from deltastore.core.survey import Repairs, ThreadSurvey


class Survey(Protocol):
    """All rows of one thread as of one moment, whatever state they are in."""

    async def rows(self) -> ThreadSurvey:
        """All rows, segments without their payloads."""

    async def payloads(self, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads; those that do not exist are left out."""


class Repair(Survey, Protocol):
    """The same under the thread's exclusive lock, to be repaired."""

    async def apply(self, repairs: Repairs) -> None:
        """Makes the repairs; the thread's epoch moves on. Seen by others when the repair ends without an error."""


class ThreadView(Protocol):
    """One thread as of one moment."""

    async def rows(self) -> ThreadRows | None:
        """The whole structure of the thread, or None if there is no such thread."""

    async def segments(self, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads; those that do not exist are left out."""

    async def documents(self, metadata_ids: Sequence[int]) -> list[MetadataRow]:
        """Metadata documents with their payloads; those that do not exist are left out."""

    async def quarantined(self) -> int:
        """How many rows of the thread a repair took out; they go with the thread."""

    async def payload_bytes(self, segment_ids: Sequence[int], metadata_ids: Sequence[int]) -> int:
        """The size of the payloads of segments and metadata documents, all together."""


class ThreadEdit(ThreadView, Protocol):
    """One thread under its exclusive lock."""

    async def is_still(self, rows: ThreadRows) -> bool:
        """Whether the thread is what it was when `rows` were read."""

    async def apply(self, changes: ThreadChanges) -> None:
        """Makes the changes. They are seen by others when the edit ends without an error, else dropped."""

    async def remove(self) -> None:
        """Removes all that the thread has, as `Storage.delete_thread` does."""

    async def restart(self, thread: ThreadRef) -> None:
        """Removes all that the thread has, and makes its row: what follows are the rows of a whole thread.

        Raises:
            ThreadBusyError: Someone else made the thread at the same moment: look again.
        """

    async def numbers(self, count: int) -> Sequence[int]:
        """New segment ids, ascending, larger than every id in the thread."""

    async def insert(self, rows: NewRows) -> None:
        """Adds rows to a thread that was restarted; may be called many times."""

    async def unstage(self) -> None:
        """Removes what is staged of the thread."""


class Staging(Protocol):
    """Parts of threads that are on their way and not whole yet: bytes that no other method sees.

    The parts of a thread are numbered from 0 on. Where two add the same part at once, one of them is told.
    """

    async def add(self, thread: ThreadRef, part: int, payload: bytes) -> bool:
        """Adds a part behind the one before it. False if another part is in this place, or none before it."""

    async def load(self, thread_key: bytes, part: int) -> bytes | None:
        """A part's payload, or None if there is no such part."""

    async def drop(self, thread_key: bytes, first_part: int = 0) -> None:
        """Removes the parts of a thread from one on."""

    async def threads(self) -> list[StagedThread]:
        """All threads that have parts, in the order of their keys."""


class Storage(Protocol):
    """Where rows are kept. All methods may raise `DatabaseError`."""

    async def setup(self) -> None:
        """Creates or migrates the schema; does nothing if it is up to date. Safe from many processes at once."""

    async def close(self) -> None:
        """Gives back what the storage itself opened. Calling it twice is harmless."""

    async def save(self, save: Save) -> Saved | Refusal:
        """Stores one checkpoint with its segments and metadata.

        Refused as stale too if the row is a delta whose parent is not there at the depth it builds on. Refused as
        deleted if the parent was deleted with the thread.
        """

    async def save_writes(self, save: SaveWrites) -> Saved | Refusal:
        """Stores the writes of one `put_writes` call."""

    async def load_chains(
        self, thread_key: bytes, namespace: str, checkpoint_ids: Sequence[bytes] | None, known: Known | None = None
    ) -> Chains | None:
        """Rows to rebuild the given checkpoints, or with None the head (largest visible id) of the namespace.

        Returns None if the thread does not exist. Chains end at known checkpoints, whose own rows are included.
        A target that does not exist or is hidden is left out of `Chains.targets`; the chain of a hidden one is among
        the rows all the same, for a save that builds on it.
        """

    async def load_segments(self, thread_key: bytes, segment_ids: Sequence[int]) -> list[SegmentRow]:
        """Segments with their payloads, and those that writes among them repeat items of; missing ones are left out."""

    async def list_checkpoints(self, query: ListQuery) -> list[ListEntry]:
        """One page of visible checkpoints, newest first (see `ListCursor` for the order)."""

    async def delete_thread(self, thread_key: bytes) -> None:
        """Removes every row of the thread from every table, and remembers that. No such thread: nothing happens."""

    async def extend_deletion(self, thread_key: bytes, checkpoint_id: bytes) -> bool:
        """Takes note that this checkpoint was not saved: of a deleted thread, it counts as deleted, too.

        Returns:
            Whether the thread was deleted and is not there.
        """

    async def forget_deletion(self, thread_key: bytes) -> bool:
        """Forgets that the thread was deleted: late saves are accepted again. False if it was not known to be."""

    async def forget_deletions(self, older_than_seconds: float) -> None:
        """Forgets all deletions that are older than this."""

    async def pin(self, thread_key: bytes, pinned: bool) -> bool:
        """Sets or takes away the mark that exempts a thread from retention. False if there is no such thread."""

    async def copy_thread(self, source_key: bytes, target: ThreadRef) -> bool:
        """Copies all rows of a thread, consistent as of one moment. False if the target has rows already."""

    async def find_runs(self, run_ids: Sequence[str]) -> list[bytes]:
        """Keys of the threads that have a metadata document with one of these run ids."""

    async def list_threads(self, after: bytes, limit: int) -> list[ThreadRef]:
        """Threads with a key larger than `after`, in the order of their keys; `b""` begins with the first."""

    async def survey_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Keys larger than `after` under which anything is stored, in order, whether there is a thread's row or not."""

    def survey(self, thread_key: bytes) -> AbstractAsyncContextManager[Survey]:
        """Reads all rows under a key as of one moment; holds up nobody."""

    async def newest_threads(self, query: ThreadsQuery) -> list[ThreadEntry]:
        """One page of threads, newest first (`core/overview.py` says in which order), with their heads, no state."""

    async def load_structures(
        self, thread_key: bytes, namespace: str, checkpoint_ids: Sequence[bytes]
    ) -> Chains | None:
        """As `load_chains`, but without segments of values and without metadata."""

    async def namespaces(self, thread_key: bytes, after: str | None, limit: int) -> list[NamespaceEntry]:
        """The first namespaces of a thread with visible checkpoints, in the order of their names, behind `after`."""

    async def outline_threads(self, after: bytes, limit: int) -> list[ThreadOutline]:
        """A page of threads as `list_threads`, with the keys of their checkpoints."""

    def view(self, thread_key: bytes) -> AbstractAsyncContextManager[ThreadView]:
        """Opens the thread for reading, as of one moment and without a lock."""

    def edit(self, thread_key: bytes, bounds: LockBounds | None = None) -> AbstractAsyncContextManager[ThreadEdit]:
        """Opens the thread for exclusive changes, as one transaction.

        Raises:
            ThreadBusyError: The thread was not to be had within the bounds.
        """

    async def count(self, days: Sequence[tuple[int, bytes]], limit: int) -> Counts:
        """Counts everything; `days` are beginnings in Unix time with their first keys, `limit` is that of lists."""

    async def count_days(self, thread_key: bytes, days: Sequence[tuple[int, bytes]]) -> tuple[Day, ...]:
        """What each day brought to one thread."""

    def repair(self, thread_key: bytes) -> AbstractAsyncContextManager[Repair]:
        """Opens the thread for a repair, as one transaction under its exclusive lock."""

    def staging(self) -> Staging:
        """Where parts of threads are kept until these are whole."""
