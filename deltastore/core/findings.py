"""What verification finds: faults while it looks, findings when it is done.

A *fault* is one thing that is wrong with one row. A checkpoint is *hurt* by it if the checkpoint, or the history of one
of its DeltaChannels, cannot be loaded because of it. It is *lost* if it cannot be rebuilt from what is there; what is
hurt and not lost can be saved by a repair. Hidden checkpoints are no reader's business, so they never count as hurt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from deltastore.core.identifiers import unpack_checkpoint_id
from deltastore.core.sweep import RowKey
from deltastore.errors import CorruptPayloadError


class Kind(StrEnum):
    """What is wrong."""

    THREAD = "thread"
    """The thread's own row is missing, doubled, or its key is not that of its id."""
    DUPLICATE = "duplicate"
    """A row is stored twice under one key."""
    PAYLOAD = "payload"
    """A payload's checksum, length, form or version is wrong, or it does not fit its parent."""
    LINK = "link"
    """The parent is missing, or the row says another parent, depth, metadata or range than its payload was made for."""
    CYCLE = "cycle"
    """Parents that lead in a circle."""
    MISSING = "missing"
    """A segment, page, item or metadata document that something needs is not there."""
    ANCHOR = "anchor"
    """An anchor differs from what its parent's chain gives for the same versions."""
    METADATA = "metadata"
    """The searchable form of the metadata is not that of the exact one."""
    ORPHAN = "orphan"
    """Nothing needs the row."""
    CIPHER = "cipher"
    """A payload cannot be decrypted with the given key, or there is none. Its checksum is right."""
    TYPE = "type"
    """A value is of a type that this process cannot build."""
    VALUE = "value"
    """The serializer cannot read a value."""


UNTOUCHED = frozenset({Kind.CIPHER, Kind.TYPE, Kind.VALUE, Kind.ANCHOR})
"""What a repair leaves alone: the rows are sound, and what is missing may be the right key, module or decision."""


@dataclass(eq=False, slots=True)
class Fault:
    """One thing that is wrong, while it is not yet known what it hurts.

    Attributes:
        kind: What is wrong.
        row: Which row, in words.
        detail: What was found and expected.
        key: The checkpoint that the row belongs to, if there is one.
        is_notice: Worth knowing, and no damage.
        is_mendable: What the row should be is known.
        more: How many other rows cannot be read for the same reason.
        hurt: Visible checkpoints that it hurts.
    """

    kind: Kind
    row: str
    detail: str
    key: RowKey | None = None
    is_notice: bool = False
    is_mendable: bool = False
    more: int = 0
    hurt: set[RowKey] = field(default_factory=set)

    @property
    def is_loss(self) -> bool:
        """Whether what needs the row cannot be had any more."""
        return self.kind not in UNTOUCHED and not self.is_mendable


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint by its namespace and id."""

    namespace: str
    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong in a thread.

    Attributes:
        kind: What is wrong.
        row: Which row, in words.
        detail: What was found and what was expected.
        at: The checkpoint that the row belongs to, or None.
        hurt: Visible checkpoints that cannot be loaded because of it, oldest first.
        lost: Those of them that cannot be rebuilt from what is there; the others can be saved by a repair.
        is_notice: Worth knowing, and no damage.
    """

    kind: Kind
    row: str
    detail: str
    at: Place | None = None
    hurt: tuple[Place, ...] = ()
    lost: tuple[Place, ...] = ()
    is_notice: bool = False


@dataclass(frozen=True, slots=True)
class ThreadFindings:
    """What was found in one thread.

    Attributes:
        thread_id: The thread's id, or None if its row is missing and the id was not given.
        thread_key: The thread's key in hexadecimal digits.
        checkpoints: How many visible checkpoints it has.
        rows: How many rows were looked at.
        payload_bytes: Their payloads.
        findings: What is wrong or worth knowing.
        hurt: Visible checkpoints that cannot be loaded.
        lost: Those of them that cannot be rebuilt.
        readable: The newest checkpoint of each namespace that can be loaded, where a newer one is hurt.
        unswept: Rows of deleted or replaced checkpoints that the next sweep removes.
        quarantined: Rows that earlier repairs took out.
    """

    thread_id: str | None
    thread_key: str
    checkpoints: int = 0
    rows: int = 0
    payload_bytes: int = 0
    findings: tuple[Finding, ...] = ()
    hurt: tuple[Place, ...] = ()
    lost: tuple[Place, ...] = ()
    readable: tuple[Place, ...] = ()
    unswept: int = 0
    quarantined: int = 0

    @property
    def damages(self) -> tuple[Finding, ...]:
        """The findings that are more than notices."""
        return tuple(finding for finding in self.findings if not finding.is_notice)

    @property
    def is_sound(self) -> bool:
        """Whether there is no damage."""
        return not self.damages

    def as_json(self) -> dict[str, Any]:
        """The findings as JSON."""
        return asdict(self)


def place_of(key: RowKey) -> Place:
    """A checkpoint in words that people use."""
    return Place(key[0], shown(key[1]))


def shown(checkpoint_id: bytes) -> str:
    """A checkpoint's id, or its key in hexadecimal digits if no id has that key."""
    try:
        return unpack_checkpoint_id(checkpoint_id)
    except CorruptPayloadError:
        return checkpoint_id.hex()


def places_of(keys: Iterable[RowKey]) -> tuple[Place, ...]:
    """Checkpoints, oldest first."""
    return tuple(place_of(key) for key in sorted(keys, key=lambda each: (each[1], each[0])))


def finding_of(fault: Fault, lost: set[RowKey]) -> Finding:
    """A fault whose consequences are known."""
    return Finding(
        fault.kind,
        f"{fault.row} and {fault.more} more" if fault.more else fault.row,
        fault.detail,
        None if fault.key is None else place_of(fault.key),
        places_of(fault.hurt),
        places_of(fault.hurt & lost),
        fault.is_notice,
    )
