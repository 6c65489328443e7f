"""The changing half of the engine: delete runs, keep the latest, put an existing id again, copy.

Each is one transaction on one thread under its exclusive lock, and each follows one pattern: read the structure of the
thread, decide with pure functions (`core/sweep.py`), apply. Nothing is decided from the cache.

Making a row an anchor changes its depth, so the rows that build on it are renumbered with it: depth counts the steps
to the anchor, and the link check of `core/chain.py` relies on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from deltastore.cache import Cache
from deltastore.core.chain import describe
from deltastore.core.draft import Put
from deltastore.core.edits import RowUpdate, ThreadChanges, ThreadRows
from deltastore.core.frame import Cipher
from deltastore.core.header import same
from deltastore.core.model import CheckpointRow, SegmentKind, ThreadRef
from deltastore.core.sealing import seal_checkpoint, seal_metadata
from deltastore.core.sweep import RowKey, changed_marks, hide, supported, sweep
from deltastore.errors import DatabaseUnavailableError
from deltastore.options import EngineOptions
from deltastore.reading import Reader
from deltastore.storage import Storage, ThreadEdit
from deltastore.structure import Structure, anchored, drafted_references, read_rows, read_structure, renumbered
from deltastore.writing import ATTEMPTS, Basis, Writer


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Deletes, prunes, replaces and copies."""

    storage: Storage
    cache: Cache
    options: EngineOptions
    reader: Reader
    writer: Writer

    async def delete_thread(self, thread_key: bytes) -> None:
        """Removes a thread with everything that belongs to it."""
        await self.storage.delete_thread(thread_key)
        self.cache.forget(thread_key)

    async def delete_runs(self, run_ids: Sequence[str], cipher: Cipher | None) -> None:
        """Removes the checkpoints of these runs from all threads; what survives rebuilds to what it did.

        Raises:
            StoredDataError: A thread cannot be read; it was left as it was.
        """
        wanted = set(run_ids)
        for thread_key in await self.storage.find_runs(run_ids):
            async with self.storage.edit(thread_key) as edit:
                rows = await read_rows(edit, cipher)
                if rows is not None:
                    documents = {metadata_id for metadata_id, run_id in rows.metadata if run_id in wanted}
                    deleted = {row.key for row in rows.checkpoints if row.metadata_id in documents}
                    structure = await self._structure(edit, rows, (), cipher)
                    await edit.apply(self._deletion(structure, deleted))
            self.cache.forget(thread_key)

    async def keep_latest(self, thread_key: bytes, cipher: Cipher | None) -> None:
        """Removes all but the newest visible checkpoint of each namespace, which becomes an anchor.

        Raises:
            StoredDataError: The thread cannot be read; it was left as it was.
        """
        async with self.storage.edit(thread_key) as edit:
            await self.keep_latest_in(edit, cipher)
        self.cache.forget(thread_key)

    async def keep_latest_in(self, edit: ThreadEdit, cipher: Cipher | None) -> None:
        """The same in an edit that is open. Raises `StoredDataError`."""
        rows = await read_rows(edit, cipher)
        if rows is None:
            return
        heads: dict[str, CheckpointRow] = {}
        for row in rows.checkpoints:
            if not row.hidden and row.checkpoint_id >= heads.get(row.namespace, row).checkpoint_id:
                heads[row.namespace] = row
        structure = await self._structure(edit, rows, heads.values(), cipher)
        await edit.apply(self._pruning(structure, list(heads.values()), cipher))

    async def copy_thread(self, source_key: bytes, target: ThreadRef) -> bool:
        """Copies a thread; False if the target has rows already."""
        return await self.storage.copy_thread(source_key, target)

    async def put_again(self, thread: ThreadRef, put: Put, cipher: Cipher | None) -> None:
        """Puts a checkpoint whose id is stored already: nothing if it is the same, else it replaces the stored one.

        What was built on the replaced checkpoint keeps its state.

        Raises:
            DatabaseUnavailableError: The thread was changed by others all the time.
        """
        for _ in range(ATTEMPTS):
            if await self._is_stored(thread, put, cipher) or await self._replace(thread, put, cipher):
                return
            self.cache.forget(thread.key)
        raise DatabaseUnavailableError(
            f"{describe(thread, put.namespace, put.checkpoint_id)} could not be replaced: others changed the thread",
            hint="retry",
        )

    async def _is_stored(self, thread: ThreadRef, put: Put, cipher: Cipher | None) -> bool:
        """Whether the stored checkpoint is the one that was put."""
        loaded = await self.reader.load(thread, put.namespace, put.checkpoint_id, cipher)
        if loaded is None or loaded.state.header != put.header or loaded.parent_id != put.parent_id:
            return False
        if (loaded.volatile, loaded.shared) != (put.volatile, put.shared):
            return False
        for channel in put.named & put.header.versions.keys():
            stored, given = loaded.state.values.get(channel), put.values.get(channel)
            if (stored is None) != (given is None):
                return False
            if stored is None or given is None:
                continue
            parts = stored.kind, stored.pieces.keys or None, loaded.items.read(stored.pieces)
            if parts != (given.kind, given.keys or None, given.items):
                return False
        return all(
            same(version, loaded.state.header.versions[channel]) for channel, version in put.header.versions.items()
        )

    async def _replace(self, thread: ThreadRef, put: Put, cipher: Cipher | None) -> bool:
        """Replaces a stored checkpoint. False if the thread changed since the basis was read."""
        basis = await self.writer.basis(thread, put, cipher)
        drafted = self.writer.draft(put, basis, always_anchor=True)
        metadata = seal_metadata(put, cipher)
        row, segments = seal_checkpoint(put, drafted, metadata.metadata_id, cipher)
        async with self.storage.edit(thread.key) as edit:
            rows = await read_rows(edit, cipher)
            stored = None if rows is None else next((each for each in rows.checkpoints if each.key == row.key), None)
            if rows is None or stored is None or _is_stale(rows, put, basis):
                return False
            children = [
                each
                for each in rows.checkpoints
                if each.namespace == put.namespace and each.parent_id == put.checkpoint_id and each.depth > 0
            ]
            structure = await self._structure(edit, rows, children, cipher)
            hidden = {(each.namespace, each.checkpoint_id) for each in rows.checkpoints if each.hidden}
            parent = put.namespace, put.parent_id
            is_cut_off = stored.orphaned and parent not in {each.key for each in rows.checkpoints}
            is_orphaned = parent in hidden or (is_cut_off and stored.parent_id == put.parent_id)
            updates = [RowUpdate(replace(row, orphaned=is_orphaned), segments)]
            for child in children:
                updates += self._reanchor(structure, child, child, cipher)
            await edit.apply(ThreadChanges(updates=tuple(updates), new_metadata=(metadata,)))
        self.cache.forget(thread.key)
        await self._sweep(thread.key, cipher)
        return True

    async def _sweep(self, thread_key: bytes, cipher: Cipher | None) -> None:
        """Removes what no visible checkpoint needs any more."""
        async with self.storage.edit(thread_key) as edit:
            rows = await read_rows(edit, cipher)
            if rows is not None:
                await edit.apply(self._deletion(await self._structure(edit, rows, (), cipher), set()))

    # --- pieces of the verbs

    async def _structure(
        self, edit: ThreadEdit, rows: ThreadRows, folded: Iterable[CheckpointRow], cipher: Cipher | None
    ) -> Structure:
        return await read_structure(edit, rows, folded, self.options.ignored_channels, cipher)

    def _deletion(self, structure: Structure, deleted: set[RowKey]) -> ThreadChanges:
        rows = structure.rows
        marks = hide(rows.checkpoints, deleted)
        marked = {row.key: replace(row, hidden=marks[row.key][0]) for row in rows.checkpoints}
        swept = sweep(
            marked,
            structure.needs(supported(marked)),
            rows.segments,
            (metadata_id for metadata_id, _ in rows.metadata),
            rows.epoch,
        )
        return changed_marks(rows, marks, swept)

    def _pruning(self, structure: Structure, heads: Sequence[CheckpointRow], cipher: Cipher | None) -> ThreadChanges:
        rows = structure.rows
        updates = [
            anchored(structure, head, replace(head, orphaned=head.parent_id is not None), cipher)
            for head in heads
            if not _is_pruned(head)
        ]
        kept = {head.key: head for head in heads} | {update.row.key: update.row for update, _ in updates}
        needed = structure.needs(head.key for head in heads if _is_pruned(head))
        needed |= {update.row.key: drafted_references(drafted) for update, drafted in updates}
        marked = {row.key: kept.get(row.key, replace(row, hidden=True)) for row in rows.checkpoints}
        swept = sweep(marked, needed, rows.segments, (metadata_id for metadata_id, _ in rows.metadata), rows.epoch)
        return ThreadChanges(
            updates=tuple(update for update, _ in updates),
            delete_checkpoints=swept.checkpoints,
            delete_segments=swept.segments,
            delete_metadata=swept.metadata,
        )

    def _reanchor(
        self, structure: Structure, stored: CheckpointRow, row: CheckpointRow, cipher: Cipher | None
    ) -> list[RowUpdate]:
        """`row` in full, and the rows that build on it renumbered."""
        updates = [anchored(structure, stored, row, cipher)[0]]
        waiting = [stored]
        while waiting:
            parent = waiting.pop()
            for child in structure.rows.checkpoints:
                if (
                    child.namespace == parent.namespace
                    and child.parent_id == parent.checkpoint_id
                    and child.depth == parent.depth + 1
                ):
                    updates.append(renumbered(child, replace(child, depth=child.depth - stored.depth), cipher))
                    waiting.append(child)
        return updates


def _is_pruned(head: CheckpointRow) -> bool:
    """Whether an earlier prune left it as it is: doing so again would only make running saves start anew."""
    return head.depth == 0 and head.orphaned == (head.parent_id is not None)


def _is_stale(rows: ThreadRows, put: Put, basis: Basis) -> bool:
    """Whether the thread changed since the basis was read: something was removed, or the parent got other writes."""
    if basis.parent is None:
        return basis.cached is not None and basis.cached.epoch != rows.epoch
    writes = [
        segment
        for segment in rows.segments
        if segment.kind is SegmentKind.WRITES
        and (segment.namespace, segment.checkpoint_id) == (put.namespace, put.parent_id)
    ]
    return basis.cached is None or basis.cached.epoch != rows.epoch or len(writes) != len(basis.writes)
