"""Rows of the driver to the records of `core/model.py` and `core/edits.py`, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

from deltastore.core.edits import ThreadOutline
from deltastore.core.identifiers import shown_namespace
from deltastore.core.model import (
    Chains,
    CheckpointRow,
    ListEntry,
    MetadataRow,
    NewSegment,
    Refusal,
    Save,
    Saved,
    SaveWrites,
    SegmentKind,
    SegmentRow,
    ThreadRef,
)
from deltastore.errors import BrokenChainError, CorruptPayloadError

_Row = TypeVar("_Row")

_KINDS = {int(kind): kind for kind in SegmentKind}
_REFUSALS = {1: Refusal.STALE, 2: Refusal.EXISTS, 4: Refusal.DELETED, 5: Refusal.EARLY}
_THREAD, _CHECKPOINT, _SEGMENT, _METADATA = range(4)


@dataclass(frozen=True, slots=True)
class ThreadHead:
    """The row of a thread; see `ThreadRows`."""

    thread: ThreadRef
    epoch: int
    revision: int
    pinned: bool
    created_seconds: float


def thread_head(record: Any, thread_key: bytes) -> ThreadHead | None:
    """The row of a thread from a record with the table's column names, or None for none."""
    if record is None:
        return None
    return ThreadHead(
        ThreadRef(thread_key, record["thread_id"]),
        record["epoch"],
        record["revision"],
        record["pinned"],
        record["created_seconds"],
    )


def outlines(records: Iterable[Any]) -> list[ThreadOutline]:
    """The answer of the statement `outline_threads`, in the order of the keys."""
    heads: dict[bytes, tuple[str, bool, float]] = {}
    checkpoints: dict[bytes, list[tuple[str, bytes, bool]]] = {}
    for part, key, label, checkpoint_id, mark, seconds in records:
        if part == _THREAD:
            heads[key] = (label, mark, seconds)
        else:
            checkpoints.setdefault(key, []).append((label, checkpoint_id, mark))
    return [
        ThreadOutline(ThreadRef(key, thread_id), pinned, created_seconds, tuple(checkpoints.get(key, ())))
        for key, (thread_id, pinned, created_seconds) in sorted(heads.items())
    ]


def save_answer(record: Any) -> Saved | Refusal | None:
    """What a save answered; None if it is to be run again."""
    if record["outcome"] == 0:
        is_amid_packs = record.get("is_amid_packs", False)
        return Saved(record["epoch"], numbers(record["segment_ids"]), record["server_seconds"], is_amid_packs)
    return _REFUSALS.get(record["outcome"])


def checkpoint_row(record: Any) -> CheckpointRow:
    """A checkpoint from a record with the table's column names."""
    return CheckpointRow(
        namespace=record["namespace"],
        checkpoint_id=record["checkpoint_id"],
        parent_id=record["parent_id"],
        depth=record["depth"],
        segments=numbers(record["segments"]),
        payload=record["payload"],
        metadata_id=record["metadata_id"],
        hidden=record["hidden"],
        orphaned=record["orphaned"],
    )


def segment_row(record: Any) -> SegmentRow:
    """A segment from a record with the columns in the order of `SegmentRow`."""
    segment_id, kind, namespace, checkpoint_id, payload, references = record
    return SegmentRow(segment_id, _kind(kind), namespace, checkpoint_id, payload, numbers(references))


def list_entry(record: Any) -> ListEntry:
    """An entry of a listing.

    Raises:
        BrokenChainError: The thread's row, or the metadata document that the checkpoint names, is not there.
    """
    if record["thread_id"] is None:
        raise threadless(record["thread_key"])
    if record["metadata_payload"] is None:
        namespace = shown_namespace(record["namespace"])
        raise BrokenChainError(
            f"metadata of a checkpoint of thread {record['thread_id']!r}, namespace {namespace} is missing",
            detail=f"checkpoint key {record['checkpoint_id'].hex()} names document {record['metadata_id']}, found none",
            hint="the database lost rows or was changed by hand: restore them from a backup",
        )
    return ListEntry(
        ThreadRef(record["thread_key"], record["thread_id"]),
        checkpoint_row(record),
        MetadataRow(record["metadata_id"], record["document"], record["metadata_payload"]),
    )


def segment_rows(records: Iterable[Any]) -> list[SegmentRow]:
    """Segments, each once. Raises `BrokenChainError` if there are different ones with one id."""
    found: dict[int, SegmentRow] = {}
    for record in records:
        row = segment_row(record)
        _keep(found, row.segment_id, row, "segment")
    return list(found.values())


def list_entries(records: Iterable[Any]) -> list[ListEntry]:
    """A page of a listing. Raises `BrokenChainError` if a checkpoint or its metadata is stored twice."""
    entries: list[ListEntry] = []
    for record in records:
        entry = list_entry(record)
        if entries and entries[-1].cursor == entry.cursor:
            raise _twice(f"a checkpoint of thread {entry.thread.thread_id!r}, or its metadata,")
        entries.append(entry)
    return entries


def chains(records: Iterable[Any], thread_key: bytes, namespace: str, wanted: Sequence[bytes] | None) -> Chains | None:
    """The answer of the statement `load_chains`: rows of one shape, told apart by their part."""
    thread: tuple[int, str] | None = None
    rows: dict[bytes, CheckpointRow] = {}
    segments: dict[int, SegmentRow] = {}
    metadata: dict[int, MetadataRow] = {}
    for part, number, label, checkpoint_id, parent_id, small, hidden, orphaned, ids, payload in records:
        if part == _SEGMENT:
            segment = SegmentRow(number, _kind(small), label, checkpoint_id, payload, numbers(ids))
            _keep(segments, number, segment, "segment")
        elif part == _CHECKPOINT:
            if checkpoint_id in rows:
                raise _twice(f"the checkpoint with key {checkpoint_id.hex()}")
            rows[checkpoint_id] = CheckpointRow(
                namespace, checkpoint_id, parent_id, small, numbers(ids), payload, number, hidden, orphaned
            )
        elif part == _METADATA:
            _keep(metadata, number, MetadataRow(number, label, payload), "metadata")
        elif part == _THREAD:
            if thread not in (None, (number, label)):
                raise _twice(f"the row of thread {label!r}")
            thread = (number, label)
    if thread is None:
        if rows:
            raise threadless(thread_key)
        return None
    epoch, thread_id = thread
    return Chains(
        thread=ThreadRef(thread_key, thread_id),
        epoch=epoch,
        targets=targets_among(rows, wanted),
        rows=tuple(rows.values()),
        segments=tuple(segments.values()),
        metadata=tuple(metadata.values()),
    )


def _keep(found: dict[int, _Row], number: int, row: _Row, name: str) -> None:
    """Keeps a row by its number; an equal one may be there. Raises `BrokenChainError` for a different one."""
    if found.setdefault(number, row) != row:
        raise _twice(f"{name} {number}")


def _twice(name: str) -> BrokenChainError:
    return BrokenChainError(
        f"{name} is stored twice",
        detail="found several rows under one key: the database lost its primary keys",
        hint="run deltastore verify --repair, and restore the keys of the tables",
    )


def threadless(thread_key: bytes) -> BrokenChainError:
    """What is raised where a thread has rows, but none in `delta_threads`."""
    return BrokenChainError(
        f"the row of the thread with key {thread_key.hex()} is missing",
        detail="found checkpoints of it, but no row in delta_threads",
        hint="the database lost rows or was changed by hand: restore them from a backup",
    )


def targets_among(rows: dict[bytes, CheckpointRow], wanted: Sequence[bytes] | None) -> tuple[bytes, ...]:
    """Which of the wanted checkpoints are there and visible; with None the head, the largest visible id."""
    if wanted is None:
        return tuple(sorted((key for key, row in rows.items() if not row.hidden), reverse=True)[:1])
    return tuple(key for key in dict.fromkeys(wanted) if key in rows and not rows[key].hidden)


def segment_columns(segments: Sequence[NewSegment]) -> tuple[str, list[str], str, str, bytes]:
    """New segments as parallel arrays (kinds, references, starts and lengths of payloads) and all payloads joined."""
    if not segments:
        return "{}", [], "{}", "{}", b""
    lengths = [len(segment.payload) for segment in segments]
    return (
        array(int(segment.kind) for segment in segments),
        [array(segment.references) for segment in segments],
        array([*accumulate(lengths, initial=1)][: len(lengths)]),
        array(lengths),
        b"".join(segment.payload for segment in segments),
    )


def save_arguments(save: Save) -> tuple[Any, ...]:
    """The parameters of the statement `save`."""
    row, metadata = save.row, save.metadata
    return (
        save.thread.key, save.thread.thread_id, save.epoch,
        row.namespace, row.checkpoint_id, row.parent_id, row.depth, array(row.segments), row.payload, row.metadata_id,
        row.hidden, row.orphaned, save.parent_writes, *segment_columns(save.new_segments),
        metadata and metadata.document, metadata and metadata.payload, save.held_id,
    )  # fmt: skip


def writes_arguments(save: SaveWrites) -> tuple[Any, ...]:
    """The parameters of the statement `save_writes`."""
    return (
        save.thread.key, save.thread.thread_id, save.epoch, save.namespace, save.checkpoint_id,
        int(save.segment.kind), array_or_null(save.segment.references), save.segment.payload, save.held_id,
    )  # fmt: skip


def array(values: Iterable[int | bool]) -> str:
    """Numbers or truth values as the text of a PostgreSQL array."""
    return "{" + ",".join(map(str, values)) + "}"


def array_or_null(values: Sequence[int]) -> str | None:
    """The same, but NULL for none."""
    return array(values) if values else None


def keys(values: Iterable[bytes]) -> str:
    """Byte strings as the text of a PostgreSQL array."""
    return "{" + ",".join(f'"\\\\x{value.hex()}"' for value in values) + "}"


def _kind(number: int) -> SegmentKind:
    if number not in _KINDS:
        raise CorruptPayloadError("a segment is of an unknown kind", detail=f"found {number}")
    return _KINDS[number]


def numbers(text: str | None) -> tuple[int, ...]:
    """The numbers in the text of a PostgreSQL array; none for NULL. Raises `CorruptPayloadError` for a NULL in it."""
    try:
        return tuple(map(int, text[1:-1].split(","))) if text and text != "{}" else ()
    except ValueError as error:
        raise CorruptPayloadError("a row names segments without an id", detail=f"found {text}") from error
