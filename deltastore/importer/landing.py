"""The rows of one thread, in batches, from what the source has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from deltastore.conversion import validate
from deltastore.core.codec import Codec
from deltastore.core.edits import NewRows
from deltastore.core.frame import Cipher
from deltastore.core.model import CheckpointRow, ThreadRef
from deltastore.engine import Engine
from deltastore.importer.builder import Numbers, ThreadBuilder
from deltastore.importer.replay import Replay
from deltastore.importer.source import NOTHING_BEFORE, Before, Node, OpenThread, ThreadShape
from deltastore.importer.tree import Ancestors

BATCH_BYTES = 8 * 1024 * 1024
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartLimits:
    """When a thread lands in parts, and how large a part gets.

    Attributes:
        from_bytes: A thread with so many source bytes lands in parts,
        from_checkpoints: or with so many checkpoints.
        part_bytes: A part ends after so many source bytes,
        part_checkpoints: or so many checkpoints.
    """

    from_bytes: int = 512 * MEBIBYTE
    from_checkpoints: int = 20_000
    part_bytes: int = 64 * MEBIBYTE
    part_checkpoints: int = 2_000

    def are_reached(self, shape: ThreadShape) -> bool:
        """Whether a thread is to land in parts."""
        return shape.source_bytes >= self.from_bytes or len(shape.nodes) >= self.from_checkpoints


@dataclass(frozen=True, slots=True)
class Target:
    """Where threads go.

    Attributes:
        engine: Over the target's storage, with the options that the saver will have.
        codec: The saver's.
        cipher: The saver's, if it encrypts.
    """

    engine: Engine
    codec: Codec
    cipher: Cipher | None = None


@dataclass(slots=True)
class Landing:
    """Reads a thread and makes its rows.

    Attributes:
        builder: Makes the rows.
        order: The checkpoints to read.
        limits: How much goes in one batch, beside the size of its rows; None for no matter.
        before: What an earlier run knew; checkpoints that it read are not built again.
        advance: Told how many source bytes were read.
        notes: What is worth knowing about the thread.
    """

    builder: ThreadBuilder
    order: Sequence[Node]
    limits: PartLimits | None = None
    before: Before = NOTHING_BEFORE
    advance: Callable[[int], None] = lambda _: None
    notes: list[str] = field(default_factory=list)

    async def checkpoints(self, opened: OpenThread) -> AsyncIterator[NewRows]:
        """All checkpoints with their pending writes. Raises `SkipThread` and `CallerError`."""
        limits, read_bytes, count = self.limits, 0, 0
        async for checkpoint in opened.checkpoints(self.order, self.before):
            self.advance(checkpoint.source_bytes)
            if checkpoint.node.key in self.before.nodes:
                continue
            await self.builder.add(checkpoint)
            read_bytes, count = read_bytes + checkpoint.source_bytes, count + 1
            is_part = limits is not None and (read_bytes >= limits.part_bytes or count >= limits.part_checkpoints)
            if is_part or self.builder.waiting_bytes > BATCH_BYTES:
                yield self.builder.take_rows()
                read_bytes = count = 0
        if self.builder.waiting_bytes:
            yield self.builder.take_rows()

    async def orphans(self, opened: OpenThread) -> NewRows:
        """Pending writes to checkpoints that are not there."""
        async for node, writes in opened.orphans():
            await self.builder.add_writes(node, writes)
            self.notes.append(
                f"namespace {node.namespace!r}: {len(writes)} pending writes to checkpoint {node.checkpoint_id!r}, "
                "which does not exist; they were taken over"
            )
        return self.builder.take_rows()


def landing_of(
    thread: ThreadRef,
    target: Target,
    order: Sequence[Node],
    advance: Callable[[int], None],
    replay: Replay | None = None,
) -> Landing:
    """A landing from the beginning, or behind what was replayed. Its builder has to be given numbers."""
    builder = ThreadBuilder(
        thread, target.codec, target.cipher, target.engine.options, Numbers(_no_numbers), Ancestors(order)
    )
    if replay is None:
        return Landing(builder, order, advance=advance)
    builder.parents, builder.places, builder.described = replay.parents, replay.places, replay.described
    builder.payload_bytes = replay.payload_bytes
    return Landing(builder, replay.rest(order), advance=advance)


async def _no_numbers(count: int) -> Sequence[int]:
    raise AssertionError(f"{count} numbers are wanted before any are given: a defect of deltastore")


class Visibility:
    """Hides all checkpoints but some.

    Args:
        visible: Namespace and id of those that readers will see.
        total: How many checkpoints there are.
    """

    def __init__(self, visible: Collection[tuple[str, str]], total: int) -> None:
        shown = {(validate.namespace(name), validate.checkpoint_key(key)) for name, key in visible}
        self._shown = None if len(shown) == total else shown

    def marked(self, rows: NewRows) -> NewRows:
        """The rows with their marks."""
        if self._shown is None:
            return rows
        return replace(rows, checkpoints=tuple(self._marked(row, self._shown) for row in rows.checkpoints))

    def _marked(self, row: CheckpointRow, shown: Collection[tuple[str, bytes]]) -> CheckpointRow:
        orphaned = row.parent_id is not None and (row.namespace, row.parent_id) not in shown
        return replace(row, hidden=row.key not in shown, orphaned=orphaned)
