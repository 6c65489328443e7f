"""The structure of a whole thread, read and rewritten: what every verb that removes something works on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from deltastore.core.chain import Chain
from deltastore.core.draft import Draft, anchor_draft
from deltastore.core.edits import RowUpdate, ThreadRows
from deltastore.core.frame import Cipher, seal, unseal
from deltastore.core.model import CheckpointRow, SegmentKind, SegmentRow, ThreadRef
from deltastore.core.packing import unpacked, unpacked_rows
from deltastore.core.payload import CheckpointPayload, checkpoint_binding
from deltastore.core.sealing import seal_row
from deltastore.core.sweep import RowKey, leftovers, references, supported
from deltastore.storage import ThreadView


@dataclass(frozen=True, slots=True)
class Structure:
    """A thread's rows as chains, one for each namespace."""

    rows: ThreadRows
    chains: dict[str, Chain]

    def needs(self, keys: Iterable[RowKey]) -> dict[RowKey, set[int]]:
        """The segments that rows need."""
        by_key = {row.key: row for row in self.rows.checkpoints}
        return {key: references(self.chains[key[0]].payload(key[1]), by_key[key]) for key in keys}


async def read_rows(view: ThreadView, cipher: Cipher | None) -> ThreadRows | None:
    """The structure of a whole thread, with the segments of packs in place of these; None if there is no such thread.

    Raises:
        StoredDataError: A pack cannot be opened.
    """
    rows = await view.rows()
    return None if rows is None else unpacked_rows(rows, cipher)


async def read_segments(
    view: ThreadView, thread: ThreadRef, segment_ids: Sequence[int], cipher: Cipher | None
) -> list[SegmentRow]:
    """Segments with their payloads, also those in packs; those that do not exist are left out.

    Raises:
        StoredDataError: A pack cannot be opened.
    """
    wanted = set(segment_ids)
    rows = await view.segments(segment_ids) if wanted else []
    return [segment for segment in unpacked(thread, rows, cipher) if segment.segment_id in wanted]


async def read_structure(
    view: ThreadView,
    rows: ThreadRows,
    folded: Iterable[CheckpointRow],
    ignored: frozenset[str],
    cipher: Cipher | None,
) -> Structure:
    """A thread as chains.

    Args:
        view: The thread.
        rows: Its structure.
        folded: Rows that are to be folded: the writes along their chains are opened.
        ignored: Channels that never get a history.
        cipher: Opens ciphered payloads.
    """
    visible = {row.key for row in folded}
    along = supported({row.key: replace(row, hidden=row.key not in visible) for row in rows.checkpoints})
    wanted = [
        segment.segment_id
        for segment in rows.segments
        if segment.kind == SegmentKind.WRITES and (segment.namespace, segment.checkpoint_id) in along
    ]
    writes = await read_segments(view, rows.thread, wanted, cipher)
    pages = [segment for segment in rows.segments if segment.kind == SegmentKind.PAGES]
    chains = {}
    for namespace in {row.namespace for row in rows.checkpoints}:
        chains[namespace] = Chain.of(
            rows.thread,
            namespace,
            [row for row in rows.checkpoints if row.namespace == namespace],
            [segment for segment in (*pages, *writes) if segment.namespace == namespace],
            ignored,
            cipher,
        )
    return Structure(rows, chains)


async def without_leftovers(view: ThreadView, rows: ThreadRows, cipher: Cipher | None) -> ThreadRows:
    """The structure without segments of which nothing is left but that their pack is still there.

    Raises:
        StoredDataError: It is damaged.
    """
    if all(segment.pack_id is None for segment in rows.segments):
        return rows
    structure = await read_structure(view, rows, (), frozenset(), cipher)
    by_key = {row.key: row for row in rows.checkpoints}
    gone = leftovers(by_key, set().union(*structure.needs(by_key).values()), rows.segments)
    return replace(rows, segments=tuple(each for each in rows.segments if each.segment_id not in gone))


def anchored(
    structure: Structure, stored: CheckpointRow, row: CheckpointRow, cipher: Cipher | None
) -> tuple[RowUpdate, Draft]:
    """`row` in full; the state is that of the `stored` one."""
    chain = structure.chains[stored.namespace]
    drafted = anchor_draft(chain.state(stored.checkpoint_id), [])
    row = replace(row, depth=0, segments=drafted.old_pages)
    payload = CheckpointPayload(chain.payload(stored.checkpoint_id).volatile, drafted.body)
    sealed, segments = seal_row(row, payload, drafted, cipher)
    return RowUpdate(sealed, segments), drafted


def renumbered(stored: CheckpointRow, row: CheckpointRow, cipher: Cipher | None) -> RowUpdate:
    """`row`, which differs from the `stored` one in depth and marks only, with its payload bound to it."""
    plain = unseal(stored.payload, associated=checkpoint_binding(stored), cipher=cipher)
    return RowUpdate(replace(row, payload=seal(plain, associated=checkpoint_binding(row), cipher=cipher)))


def drafted_references(drafted: Draft) -> set[int]:
    """Ids of the stored segments that a drafted anchor needs."""
    needed = set(drafted.old_pages)
    payload = CheckpointPayload([], drafted.body)
    row = CheckpointRow("", b"", None, 0, (), b"", 0)
    return needed | {each for each in references(payload, row) if each >= 0}
