"""Every row of a thread opened by itself: the first half of verification.

Loads stop at the first row that does not open. Here nothing stops: each row is opened as far as it goes, and what is
wrong with it is noted as a fault. What rows mean together is the second half, `walking.py`.

A row whose columns were changed is *mended* (`mending.py`): it goes on as what its payload was made for.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from deltastore.core import metadata as metadatas
from deltastore.core.chain import UNPACK
from deltastore.core.codec import Codec
from deltastore.core.digests import digest
from deltastore.core.findings import Fault, Kind, shown
from deltastore.core.frame import Cipher, unseal
from deltastore.core.identifiers import thread_key
from deltastore.core.mending import Mending, difference
from deltastore.core.model import CheckpointRow, MetadataRow, SegmentKind, SegmentRow, location
from deltastore.core.opened import OpenedPack, OpenedPacks, OpenedRow, OpenedSegment
from deltastore.core.packing import open_pack
from deltastore.core.payload import (
    checkpoint_binding,
    metadata_binding,
    segment_binding,
    unpack_checkpoint,
)
from deltastore.core.pieces import PieceList
from deltastore.core.survey import NO_ID, SegmentHead, ThreadSurvey
from deltastore.core.sweep import RowKey
from deltastore.core.unread import inline_items, inline_items_of, unread
from deltastore.core.writes import OpenSegment
from deltastore.errors import BrokenChainError, CorruptPayloadError, StoredDataError, UnreadableValueError

_KINDS = frozenset(int(kind) for kind in SegmentKind)
_Row = TypeVar("_Row")


@dataclass(slots=True)
class Opening:
    """The rows of a thread, opened. Give it all segments with `take`, then call `finish`.

    Attributes:
        survey: The rows.
        codec: Reads values.
        cipher: Opens ciphered payloads.
        thread_id: The thread's id, if its row is there or the id was given.
        faults: All that is wrong with single rows.
        segments: The segments by id, with those out of packs.
        packs: The packs.
        rows: The checkpoints by key.
        documents: What is wrong with each metadata document, or None, by id.
        projections: Documents whose searchable form is not that of the exact one: the form that it should have.
        bad_items: Items that cannot be read, by place.
        spoilt: Damaged copies of sound rows.
    """

    survey: ThreadSurvey
    codec: Codec
    cipher: Cipher | None
    thread_id: str | None = None
    faults: list[Fault] = field(default_factory=list)
    segments: dict[int, OpenedSegment] = field(default_factory=dict)
    packs: OpenedPacks = field(default_factory=OpenedPacks)
    rows: dict[RowKey, OpenedRow] = field(default_factory=dict)
    documents: dict[int, Fault | None] = field(default_factory=dict)
    projections: dict[int, str] = field(default_factory=dict)
    bad_items: dict[int | bytes, Fault] = field(default_factory=dict)
    spoilt: list[CheckpointRow | SegmentRow | MetadataRow] = field(default_factory=list)
    payload_bytes: int = 0
    _mending: Mending | None = None
    _reasons: dict[tuple[Kind, str], Fault] = field(default_factory=dict)
    _calls: dict[tuple[str, bytes, int], int] = field(default_factory=dict)

    def fault(self, kind: Kind, row: str, detail: str, key: RowKey | None = None, *, is_notice: bool = False) -> Fault:
        """Notes that something is wrong."""
        self.faults.append(fault := Fault(kind, row, detail, key, is_notice))
        return fault

    # --- segments

    def take(self, rows: Sequence[SegmentRow]) -> None:
        """Opens some segments with their payloads."""
        for segment_id, copies in _by_key(rows, lambda row: row.segment_id).items():
            self.payload_bytes += sum(len(copy.payload) for copy in copies)
            name = f"pack {segment_id}" if copies[0].kind == SegmentKind.PACK else f"segment {segment_id}"
            row, fault = self._one_of(copies, name, self._plain_segment)
            lost = fault if fault is not None and not fault.is_mendable else None
            twin = fault if len(set(copies)) > 1 else None
            if row.kind == SegmentKind.PACK:
                self._take_pack(row, lost, twin)
            else:
                self._take_segment(row, lost, twin)

    def _take_segment(self, row: SegmentRow, lost: Fault | None, twin: Fault | None) -> None:
        head = SegmentHead(row.segment_id, row.kind, row.namespace, row.checkpoint_id, row.references, 0, row.pack_id)
        opened = self.segments[row.segment_id] = OpenedSegment(head)
        self._note_repetition(row)
        if lost is not None:
            opened.fault = lost
            return
        opened.twin = twin
        self._open_segment(opened, row)

    def _take_pack(self, row: SegmentRow, lost: Fault | None, twin: Fault | None) -> None:
        name = f"pack {row.segment_id}"
        pack = OpenedPack(row.segment_id, row.first_checkpoint_id or b"", row.checkpoint_id, lost, twin)
        self.packs.add(pack)
        if lost is not None:
            return
        if NO_ID in row.references:
            pack.fault = self.fault(Kind.PAYLOAD, name, "it refers to a segment without an id")
            return
        try:
            segments = open_pack(row, self.cipher)
        except StoredDataError as error:
            pack.fault = self._unopened(error, name, None)
            return
        pack.first = min(segment.checkpoint_id for segment in segments)
        if pack.first != row.first_checkpoint_id:
            found, expected = (None if each is None else each.hex() for each in (row.first_checkpoint_id, pack.first))
            detail = f"its row says that it begins with checkpoint key {found}, expected {expected}"
            pack.trouble = self.fault(Kind.LINK, name, detail)
        for segment in segments:
            self._take_segment(segment, None, twin)

    def _plain_segment(self, row: SegmentRow) -> bytes:
        if row.pack_id is not None:
            return row.payload
        binding = segment_binding(row.kind, row.namespace, row.checkpoint_id)
        return unseal(row.payload, associated=binding, cipher=self.cipher)

    def _open_segment(self, opened: OpenedSegment, row: SegmentRow) -> None:
        name, key = f"segment {row.segment_id}", (row.namespace, row.checkpoint_id)
        if row.kind not in _KINDS or NO_ID in row.references:
            detail = f"unknown kind {row.kind}" if row.kind not in _KINDS else "it refers to a segment without an id"
            opened.fault = self.fault(Kind.PAYLOAD, name, detail, key)
            return
        try:
            segment = UNPACK[row.kind](row.segment_id, self._plain_segment(row))
        except StoredDataError as error:
            opened.fault = self._unopened(error, name, key)
            return
        opened.marks = array("q", map(hash, segment.items))
        self._read(segment.items, row.segment_id, name, key)
        if segment.page is not None:
            opened.page = segment.page
            self._read(list(inline_items(segment.page)), None, f"{name}, a page", key)
        if row.kind == SegmentKind.WRITES:
            opened.writes = OpenSegment(row.segment_id, (), segment.writes)
            self._read([item for each in segment.writes for item in inline_items(each.pieces)], None, name, key)

    def _note_repetition(self, row: SegmentRow) -> None:
        """Equal writes to a checkpoint under two ids: a call that was sent twice. Readers count the first."""
        if row.kind == SegmentKind.WRITES:
            call = row.namespace, row.checkpoint_id, hash(row.payload)
            first = self._calls.setdefault(call, row.segment_id)
            if first != row.segment_id:
                detail = f"it repeats the writes of segment {first}, which are the ones that count"
                self.fault(Kind.DUPLICATE, f"segment {row.segment_id}", detail, call[:2], is_notice=True)

    def _unopened(self, error: StoredDataError, row: str, key: RowKey | None) -> Fault:
        detail = "; ".join(filter(None, (error.message, error.detail)))
        if isinstance(error, UnreadableValueError):
            return self._unreadable(Kind.CIPHER, row, detail, key)
        return self.fault(Kind.PAYLOAD, row, detail, key)

    def _unreadable(self, kind: Kind, row: str, detail: str, key: RowKey | None) -> Fault:
        """The fault of a row that is sound and cannot be read; one for all rows with one reason."""
        fault = self._reasons.get((kind, detail))
        if fault is None:
            fault = self._reasons[kind, detail] = self.fault(kind, row, detail, key)
        else:
            fault.more += 1
        return fault

    def _read(self, items: Sequence[bytes], segment_id: int | None, row: str, key: RowKey | None) -> None:
        """Decodes items, and notes those that cannot be read."""
        for index, kind, message in unread(self.codec, items):
            place = items[index] if segment_id is None else location(segment_id, index)
            self.bad_items[place] = self._unreadable(kind, f"item {index} of {row}", message, key)

    # --- the rest

    def finish(self) -> None:
        """Opens the thread's row, the metadata and the checkpoints, once all segments were taken."""
        self._open_thread()
        for metadata_id, documents in _by_key(self.survey.metadata, lambda row: row.metadata_id).items():
            self.payload_bytes += sum(len(copy.payload) for copy in documents)
            document, fault = self._one_of(documents, f"metadata {metadata_id}", self._plain_document)
            is_lost = fault is not None and not fault.is_mendable
            self.documents[metadata_id] = fault if is_lost else self._open_document(document)
        for key, stored in _by_key(self.survey.checkpoints, lambda row: row.key).items():
            self.payload_bytes += sum(len(copy.payload) for copy in stored)
            hidden, orphaned = max((each.hidden, each.orphaned) for each in stored)
            copies = [replace(copy, hidden=hidden, orphaned=orphaned) for copy in stored]
            row, fault = self._one_of(copies, f"checkpoint {shown(key[1])}", self._unseal)
            self.rows[key] = OpenedRow(row, row)
            if fault is not None and len(set(copies)) > 1:
                self.rows[key].faults.append(fault)
        for opened in self.rows.values():
            if all(fault.is_mendable for fault in opened.faults):
                self._open_checkpoint(opened)

    def _one_of(
        self, copies: Sequence[_Row], name: str, open_row: Callable[[_Row], bytes]
    ) -> tuple[_Row, Fault | None]:
        """The row among its copies, and the fault that there are several.

        Among different copies it is the sound one, if there is just one; else the fault cannot be mended.
        """
        if len(copies) == 1:
            return copies[0], None
        key = getattr(copies[0], "key", None)
        different = list(dict.fromkeys(copies))
        sound = [copy for copy in different if _opens(copy, open_row)]
        detail = f"found {len(copies)} {'equal' if len(different) == 1 else 'different'} rows under one key"
        fault = self.fault(Kind.DUPLICATE, name, detail, key)
        fault.is_mendable = len(different) == 1 or len(sound) == 1
        if len(different) > 1 and len(sound) == 1:
            self.spoilt += [copy for copy in different if copy is not sound[0]]  # type: ignore[misc]
        return (sound or different)[0], fault

    def _open_thread(self) -> None:
        rows = self.survey.threads
        if len(rows) > 1:
            fault = self.fault(Kind.DUPLICATE, "the thread's row", f"found {len(rows)} of them, expected one")
            fault.is_mendable = True
        right = [row.thread_id for row in rows if thread_key(row.thread_id) == self.survey.key]
        if right:
            self.thread_id = right[0]
            return
        self.thread_id = self.thread_id or self._thread_id_in_metadata()
        if rows:
            self.fault(Kind.THREAD, "the thread's row", f"its id {rows[0].thread_id!r} is not the one of its key")
        elif self.thread_id is not None:
            self.fault(Kind.THREAD, "the thread's row", "it is missing")
        else:
            self.fault(Kind.THREAD, "the thread's row", "it is missing, and with it the thread's id")

    def _thread_id_in_metadata(self) -> str | None:
        """The thread's id, if an application keeps it in metadata as many do."""
        for row in self.survey.metadata:
            document = json.loads(row.document)
            candidate = document.get("thread_id") if isinstance(document, dict) else None
            if isinstance(candidate, str) and thread_key(candidate) == self.survey.key:
                return candidate
        return None

    def _plain_document(self, row: MetadataRow) -> bytes:
        return unseal(row.payload, associated=metadata_binding(row.metadata_id), cipher=self.cipher)

    def _open_document(self, row: MetadataRow) -> Fault | None:
        name = f"metadata {row.metadata_id}"
        try:
            plain = self._plain_document(row)
        except StoredDataError as error:
            return self._unopened(error, name, None)
        if row.metadata_id != int.from_bytes(digest(plain)[:8], "big", signed=True):
            return self.fault(Kind.PAYLOAD, name, "its id is not the digest of its contents")
        for _, kind, message in unread(self.codec, [plain]):
            return self._unreadable(kind, name, message, None)
        shared = self.codec.decode_item(plain, name)
        if not isinstance(shared, Mapping):
            return self.fault(Kind.VALUE, name, f"found a {type(shared).__name__}, expected a mapping")
        if not metadatas.is_projection(json.loads(row.document), shared):
            self.fault(Kind.METADATA, name, "its searchable form is not that of the exact one: filters may miss it")
            self.projections[row.metadata_id] = metadatas.searchable(shared)
        return None

    def _open_checkpoint(self, opened: OpenedRow) -> None:
        row, name = opened.row, f"checkpoint {shown(opened.row.checkpoint_id)}"
        try:
            plain = self._unseal(row)
        except CorruptPayloadError as error:
            mended = self._mend().mended(row)
            if mended is None:
                opened.faults.append(self._unopened(error, name, row.key))
                return
            opened.row = row = mended
            opened.faults.append(self.fault(Kind.LINK, name, difference(opened.stored, mended), row.key))
            opened.faults[-1].is_mendable = True
            plain = self._unseal(row)
        except UnreadableValueError as error:
            opened.faults.append(self._unopened(error, name, row.key))
            return
        self._unpack(opened, plain, name)
        if row.metadata_id not in self.documents:
            detail = f"its metadata document {row.metadata_id} is missing"
            opened.metadata_fault = self.fault(Kind.MISSING, name, detail, row.key)
        else:
            opened.metadata_fault = self.documents[row.metadata_id]

    def _unpack(self, opened: OpenedRow, plain: bytes, name: str) -> None:
        """Reads the document of a checkpoint whose checksum is right."""
        if not self._names_its_own(opened, name):
            return
        row = opened.row
        pages = {each: page for each in row.segments if (page := self._page(each)) is not None}
        try:
            opened.payload = unpack_checkpoint(plain, row.segments, pages)
        except BrokenChainError as error:
            damaged = [
                self.segments[each].fault if each in self.segments else self.packs.fault_of(each)
                for each in row.segments
            ]
            faults = [fault for fault in damaged if fault is not None]
            opened.faults += faults or [self.fault(Kind.MISSING, name, error.message, row.key)]
        except CorruptPayloadError as error:
            opened.faults.append(self._unopened(error, name, row.key))
        else:
            self._read(list(inline_items_of(opened.payload)), None, name, row.key)

    def _mend(self) -> Mending:
        if self._mending is None:
            self._mending = Mending([each.stored for each in self.rows.values()], list(self.documents), self.cipher)
        return self._mending

    def _unseal(self, row: CheckpointRow) -> bytes:
        return unseal(row.payload, associated=checkpoint_binding(row), cipher=self.cipher)

    def _page(self, segment_id: int) -> PieceList | None:
        segment = self.segments.get(segment_id)
        return None if segment is None else segment.page

    def _names_its_own(self, opened: OpenedRow, name: str) -> bool:
        """Whether a row names only its own values, and pages.

        What else it names at the end is left out, and it goes on: its payload refers to segments by position.
        """
        row = opened.row
        is_own = [self._is_own(each, row) for each in row.segments]
        if all(is_own):
            return True
        kept = is_own.index(False)
        fault = self.fault(Kind.LINK, name, f"it names segment {row.segments[kept]}, which is not its own", row.key)
        fault.is_mendable = not any(is_own[kept:])
        if not fault.is_mendable or NO_ID in row.segments:
            opened.faults.append(fault)
        opened.row = replace(row, segments=row.segments[:kept])
        return fault.is_mendable

    def _is_own(self, segment_id: int, row: CheckpointRow) -> bool:
        segment = self.segments.get(segment_id)
        if segment is None:
            return segment_id != NO_ID
        head = segment.head
        is_owner = (head.namespace, head.checkpoint_id) == row.key
        return (head.kind == SegmentKind.PAGES and row.depth == 0) or (head.kind == SegmentKind.VALUES and is_owner)


def _by_key(rows: Iterable[_Row], key: Any) -> dict[Any, list[_Row]]:
    groups: dict[Any, list[_Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _opens(row: _Row, open_row: Callable[[_Row], bytes]) -> bool:
    """Whether a row's checksum is right, whatever the key."""
    try:
        open_row(row)
    except CorruptPayloadError:
        return False
    except UnreadableValueError:
        return True
    return True
