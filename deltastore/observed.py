"""A storage that reports what it does, around any other one: times, bytes, chains, refusals, removed rows.

All that it reports is in what goes in and comes out of the storage's protocol, so neither the engine nor a storage
knows of it, and a saver without an observer has no such layer at all. Operations that are not named here are handed
through and not reported.

A chain is read back to its anchor, or to a state that the cache holds. So whether the cache helped can be seen in the
rows that come: with an anchor among them it did not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from typing import Any, cast

from deltastore import observing
from deltastore.core.edits import ThreadChanges
from deltastore.core.model import Chains, Known, ListEntry, ListQuery, Refusal, Save, Saved, SaveWrites, SegmentRow
from deltastore.observing import Observer
from deltastore.storage import Storage


def observed(storage: Storage, observer: Observer | None) -> Storage:
    """The storage, with an observer if there is one."""
    return storage if observer is None else cast("Storage", _ObservedStorage(storage, observer))


@contextmanager
def timed(observer: Observer, span: str, metric: str, **attributes: str) -> Iterator[None]:
    """A span, and its duration as a measure with the name of the error that ended it, if any."""
    started, error_name = monotonic(), ""
    try:
        with observer.span(span, attributes):
            yield
    except BaseException as error:
        error_name = type(error).__name__
        raise
    finally:
        more = {"error": error_name} if error_name else {}
        observer.measure(metric, monotonic() - started, {**attributes, **more})


class _Observed:
    """Hands through what a subclass does not report."""

    def __init__(self, inner: Any, observer: Observer) -> None:
        self._inner = inner
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _ObservedStorage(_Observed):
    async def save(self, save: Save) -> Saved | Refusal:
        with self._operation("save"):
            answer = await self._inner.save(save)
        self._saved("save", answer, (save.row, *save.new_segments, *filter(None, [save.metadata])))
        return cast("Saved | Refusal", answer)

    async def save_writes(self, save: SaveWrites) -> Saved | Refusal:
        with self._operation("save_writes"):
            answer = await self._inner.save_writes(save)
        self._saved("save_writes", answer, (save.segment,))
        return cast("Saved | Refusal", answer)

    async def load_chains(
        self, thread_key: bytes, namespace: str, checkpoint_ids: Sequence[bytes] | None, known: Known | None = None
    ) -> Chains | None:
        with self._operation("load_chains"):
            chains: Chains | None = await self._inner.load_chains(thread_key, namespace, checkpoint_ids, known)
        if chains is not None:
            self._read("load_chains", (*chains.rows, *chains.segments, *chains.metadata))
            self._chains(chains)
        return chains

    async def load_segments(self, thread_key: bytes, segment_ids: Sequence[int]) -> list[SegmentRow]:
        with self._operation("load_segments"):
            found: list[SegmentRow] = await self._inner.load_segments(thread_key, segment_ids)
        self._read("load_segments", found)
        return found

    async def list_checkpoints(self, query: ListQuery) -> list[ListEntry]:
        with self._operation("list_checkpoints"):
            entries: list[ListEntry] = await self._inner.list_checkpoints(query)
        self._read("list_checkpoints", [part for entry in entries for part in (entry.row, entry.metadata)])
        return entries

    async def delete_thread(self, thread_key: bytes) -> None:
        with self._operation("delete_thread"):
            await self._inner.delete_thread(thread_key)

    @asynccontextmanager
    async def edit(self, *given: Any, **options: Any) -> AsyncIterator[Any]:
        with self._operation("edit"):
            async with self._inner.edit(*given, **options) as edit:
                yield _ObservedEdit(edit, self._observer)

    def _operation(self, name: str) -> Any:
        return timed(self._observer, f"deltastore.storage.{name}", observing.STATEMENT_SECONDS, operation=name)

    def _saved(self, operation: str, answer: Saved | Refusal, parts: Iterable[Any]) -> None:
        if isinstance(answer, Refusal):
            self._observer.count(observing.REFUSALS, 1, {"operation": operation, "reason": answer.name.lower()})
        else:
            written_bytes = sum(len(part.payload) for part in parts)
            self._observer.count(observing.WRITTEN_BYTES, written_bytes, {"operation": operation})

    def _read(self, operation: str, parts: Iterable[Any]) -> None:
        read_bytes = sum(len(part.payload) for part in parts)
        self._observer.count(observing.READ_BYTES, read_bytes, {"operation": operation})

    def _chains(self, chains: Chains) -> None:
        if not chains.targets:
            return
        depths = {row.checkpoint_id: row.depth for row in chains.rows}
        for target in chains.targets:
            self._observer.measure(observing.CHAIN_LENGTH, depths[target] + 1, {})
        self._observer.measure(observing.CHAIN_ROWS, len(chains.rows), {})
        is_hit = 0 not in depths.values()
        self._observer.count(observing.CACHE_HITS if is_hit else observing.CACHE_MISSES, 1, {})


class _ObservedEdit(_Observed):
    async def remove(self) -> None:
        await self._inner.remove()
        self._observer.count(observing.REMOVED_ROWS, 1, {"rows": "threads"})

    async def apply(self, changes: ThreadChanges) -> None:
        await self._inner.apply(changes)
        if changes.packs:
            return
        for rows, gone in (
            ("checkpoints", changes.delete_checkpoints),
            ("segments", changes.delete_segments),
            ("metadata", changes.delete_metadata),
        ):
            if gone:
                self._observer.count(observing.REMOVED_ROWS, len(gone), {"rows": rows})
