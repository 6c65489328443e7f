"""Verification of one thread: all of its rows opened, all of its chains walked, and what nothing needs found.

Pure: the rows come as a survey, payloads of segments in batches (`batches`, `take`), and `finish` gives the findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deltastore.core.codec import Codec
from deltastore.core.findings import Kind, ThreadFindings, finding_of, place_of, places_of, shown
from deltastore.core.frame import Cipher
from deltastore.core.model import SegmentKind, SegmentRow
from deltastore.core.opened import OpenedRow
from deltastore.core.opening import Opening
from deltastore.core.survey import SegmentHead, ThreadSurvey, batches
from deltastore.core.sweep import RowKey, references
from deltastore.core.walking import Walk

_NAMES = {SegmentKind.VALUES: "values", SegmentKind.PAGES: "a page", SegmentKind.WRITES: "writes"}


@dataclass(slots=True)
class Inspection:
    """Verifies one thread.

    Attributes:
        survey: Its rows.
        codec: Reads its values.
        cipher: Opens ciphered payloads.
        ignored: Channels that never get a history.
        thread_id: The thread's id, if it is known from elsewhere.
    """

    survey: ThreadSurvey
    codec: Codec
    cipher: Cipher | None
    ignored: frozenset[str]
    thread_id: str | None = None
    opening: Opening = field(init=False)
    walk: Walk = field(init=False)
    orphan_segments: set[int] = field(default_factory=set)
    orphan_metadata: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.opening = Opening(self.survey, self.codec, self.cipher, self.thread_id)
        self.walk = Walk(self.opening, self.ignored)

    def batches(self) -> Iterator[list[int]]:
        """Ids of the segments to give to `take`, in batches."""
        return batches({head.segment_id: head for head in self.survey.segments}.values())

    def take(self, rows: Sequence[SegmentRow]) -> None:
        """Opens segments with their payloads."""
        self.opening.take(rows)

    def finish(self) -> ThreadFindings:
        """What was found, once all segments were taken."""
        opening, survey = self.opening, self.survey
        opening.finish()
        self.walk.run()
        unswept = self._find_orphans()
        visible = {key for key, opened in opening.rows.items() if not opened.row.hidden}
        lost = {key for key, walked in self.walk.walked.items() if walked.is_lost}
        hurt = {key for fault in opening.faults for key in fault.hurt if fault.kind is not Kind.ANCHOR}
        return ThreadFindings(
            opening.thread_id,
            survey.key.hex(),
            len(visible),
            sum(map(len, (survey.threads, survey.checkpoints, survey.segments, survey.metadata))),
            opening.payload_bytes,
            tuple(finding_of(fault, lost) for fault in opening.faults),
            places_of(hurt),
            places_of(hurt & lost),
            tuple(place_of(key) for key in _newest_readable(visible, hurt)),
            unswept,
            survey.quarantined,
        )

    def needs(self, key: RowKey) -> set[int]:
        """Segments that a row needs, as far as it opens: what it names, its own ones and the writes to it."""
        opened = self.opening.rows[key]
        needed = set(opened.row.segments)
        if opened.payload is not None:
            needed |= references(opened.payload, opened.row)
        return needed

    def closure(self, needed: set[int]) -> set[int]:
        """The segments, and those that they repeat items of."""
        closed: set[int] = set()
        waiting = list(needed)
        while waiting:
            segment_id = waiting.pop()
            if segment_id not in closed and segment_id in self.opening.segments:
                closed.add(segment_id)
                waiting += self.opening.segments[segment_id].head.references
        return closed

    def _find_orphans(self) -> int:
        """Notes rows that nothing needs; how many of them the next sweep removes anyway."""
        rows = self.opening.rows
        needed = self.closure(set().union(*(self.needs(key) for key in rows))) if rows else set()
        writes = {each for each, opened in self.opening.segments.items() if opened.head.kind == SegmentKind.WRITES}
        needed |= self.closure(writes) - writes
        unswept = 0
        unneeded = {pack.segment_id for pack in self.opening.packs.packs.values() if pack.fault is None}
        for segment_id, opened in self.opening.segments.items():
            head = opened.head
            has_row = (head.namespace, head.checkpoint_id) in rows
            if segment_id in needed or opened.fault is not None or (has_row and head.kind == SegmentKind.WRITES):
                unneeded.discard(head.pack_id or 0)
            elif head.kind != SegmentKind.WRITES and head.pack_id is not None:
                continue  # it goes with its pack
            elif has_row:
                unswept += 1
            else:
                self._note_orphan(head)
                unneeded.discard(head.pack_id or 0)
        used = {opened.row.metadata_id for opened in rows.values()}
        for metadata_id, fault in self.opening.documents.items():
            if metadata_id not in used and fault is None:
                self.orphan_metadata.add(metadata_id)
                self.opening.fault(Kind.ORPHAN, f"metadata {metadata_id}", "no checkpoint has it")
        return unswept + len(unneeded) + _unneeded(rows)

    def _note_orphan(self, head: SegmentHead) -> None:
        key = head.namespace, head.checkpoint_id
        name, checkpoint = f"segment {head.segment_id}", shown(head.checkpoint_id)
        if head.kind == SegmentKind.WRITES:
            detail = f"writes to checkpoint {checkpoint}, which is not there; it may still come"
            self.opening.fault(Kind.ORPHAN, name, detail, key, is_notice=True)
            return
        self.orphan_segments.add(head.segment_id)
        detail = f"{_NAMES[SegmentKind(head.kind)]} of checkpoint {checkpoint}, which is not there; nothing needs it"
        self.opening.fault(Kind.ORPHAN, name, detail, key)


def _newest_readable(visible: set[RowKey], hurt: set[RowKey]) -> list[RowKey]:
    """The newest readable checkpoint of each namespace whose newest one is hurt."""
    heads: dict[str, bytes] = {}
    readable: dict[str, bytes] = {}
    for namespace, checkpoint_id in visible:
        heads[namespace] = max(heads.get(namespace, b""), checkpoint_id)
        if (namespace, checkpoint_id) not in hurt:
            readable[namespace] = max(readable.get(namespace, b""), checkpoint_id)
    return [(each, readable[each]) for each in sorted(readable) if (each, heads[each]) in hurt]


def _unneeded(rows: dict[RowKey, OpenedRow]) -> int:
    """How many hidden rows no visible one is built on."""
    supported: set[RowKey] = set()
    for key, opened in rows.items():
        current: RowKey | None = None if opened.row.hidden else key
        while current is not None and current in rows and current not in supported:
            supported.add(current)
            row = rows[current].row
            current = None if row.depth == 0 or row.parent_id is None else (row.namespace, row.parent_id)
    return len(rows) - len(supported)
