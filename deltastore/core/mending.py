"""The columns that a checkpoint's payload was made for, found again.

A payload is sealed together with its row's parent, depth and metadata id. So a row in which one of these was changed (a
parent that leads in a circle, say) fails its checksum; and among the columns that it may have had, those that it was
made for are the ones under which the checksum is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from deltastore.core.findings import shown
from deltastore.core.frame import Cipher, unseal
from deltastore.core.model import CheckpointRow
from deltastore.core.payload import checkpoint_binding
from deltastore.errors import CorruptPayloadError, UnreadableValueError

TRIES_MAX = 500_000
"""Columns tried in one thread; a thread with thousands of damaged rows is past mending."""


@dataclass(slots=True)
class Mending:
    """Tries columns.

    Attributes:
        rows: All checkpoints of the thread.
        metadata_ids: Its metadata documents.
        cipher: Opens ciphered payloads.
        tries_left: How many more columns are tried.
    """

    rows: Sequence[CheckpointRow]
    metadata_ids: Iterable[int]
    cipher: Cipher | None
    tries_left: int = TRIES_MAX

    def mended(self, row: CheckpointRow) -> CheckpointRow | None:
        """The row with the columns that its payload was made for, or None if none of those tried are it."""
        for candidate in self._candidates(row):
            self.tries_left -= 1
            if self.tries_left < 0:
                return None
            try:
                unseal(candidate.payload, associated=checkpoint_binding(candidate), cipher=self.cipher)
            except CorruptPayloadError:
                continue
            except UnreadableValueError:  # the checksum is right, the key is not
                return None
            return candidate
        return None

    def _candidates(self, row: CheckpointRow) -> Iterator[CheckpointRow]:
        others = [each for each in self.rows if each.namespace == row.namespace and each.key != row.key]
        yield from (replace(row, depth=depth) for depth in sorted({each.depth + 1 for each in others} | {0}))
        yield from (replace(row, metadata_id=each) for each in self.metadata_ids)
        yield replace(row, parent_id=None, depth=0)
        for other in others:
            for depth in sorted({row.depth, other.depth + 1, 0}):
                yield replace(row, parent_id=other.checkpoint_id, depth=depth)


def difference(stored: CheckpointRow, mended: CheckpointRow) -> str:
    """What a row says, and what its payload says."""
    changes = []
    if stored.parent_id != mended.parent_id:
        old, new = (None if each is None else shown(each) for each in (stored.parent_id, mended.parent_id))
        changes.append(f"parent {old!r}, where its payload was made for {new!r}")
    changes += [
        f"{name} {getattr(stored, name)}, where its payload was made for {getattr(mended, name)}"
        for name in ("depth", "metadata_id")
        if getattr(stored, name) != getattr(mended, name)
    ]
    return f"the row says {' and '.join(changes)}"
