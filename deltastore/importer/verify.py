"""Proof of an import: checkpoints loaded from both sides and compared by value and type."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langgraph.checkpoint.base import CheckpointTuple

from deltastore.conversion import convert, validate
from deltastore.core import metadata as metadatas
from deltastore.core.codec import Codec
from deltastore.core.frame import Cipher
from deltastore.core.model import ThreadRef
from deltastore.engine import Engine
from deltastore.importer.assemble import counted
from deltastore.importer.histories import SourceHistories, marked
from deltastore.importer.source import Node, OpenThread, SkipThread
from deltastore.importer.unopened import exact_form
from deltastore.loaded import Loaded

Verify = Literal["sample", "full", "none"]
SAMPLE_CHECKPOINTS = 5


@dataclass(frozen=True, slots=True)
class Verifier:
    """Compares checkpoints.

    Attributes:
        engine: Reads the target.
        codec: Decodes the target in the way in which the source decodes.
        cipher: Opens ciphered payloads.
        fingerprint: Gives equal things for equal values of equal types.
        adapt: Changes what the target gives before it is compared.
    """

    engine: Engine
    codec: Codec
    cipher: Cipher | None
    fingerprint: Callable[[Any], Any] = exact_form
    adapt: Callable[[CheckpointTuple], CheckpointTuple] = lambda found: found

    async def verify(
        self,
        thread: ThreadRef,
        source: OpenThread,
        nodes: Sequence[Node],
        tree: Sequence[Node],
        *,
        is_cut_off: bool = False,
    ) -> None:
        """Compares checkpoints one by one.

        Args:
            thread: The thread.
            source: The thread in the source.
            nodes: Which checkpoints.
            tree: All checkpoints of the source, of which the histories of DeltaChannels are rebuilt.
            is_cut_off: The target was not given their parents.

        Raises:
            SkipThread: Something differs; the text says where and what.
            StoredDataError: The target cannot be read.
        """
        histories = SourceHistories(source, tree, self.fingerprint)
        for node in nodes:
            namespace, key = validate.namespace(node.namespace), validate.checkpoint_key(node.checkpoint_id)
            loaded = await self.engine.reader.load(thread, namespace, key, self.cipher)
            where = f"namespace {node.namespace!r}, checkpoint {node.checkpoint_id!r}"
            if loaded is None:
                raise SkipThread(f"{where}: it is not in the target")
            expected = await source.load(node)
            if is_cut_off:
                expected = expected._replace(parent_config=None)
            found = self._difference(expected, self.adapt(convert.tuple_of(self.codec, loaded)))
            if found is None:
                found = await self._differing_history(thread, node, expected, loaded, histories)
            if found is not None:
                raise SkipThread(f"{where}: the target differs from the source in {found}")

    async def _differing_history(
        self, thread: ThreadRef, node: Node, source: CheckpointTuple, target: Loaded, histories: SourceHistories
    ) -> str | None:
        """Which DeltaChannel would be rebuilt from something else, or None."""
        named = counted(source.metadata or {}) | metadatas.delta_channels(target.volatile)
        channels = named.difference(target.state.values)
        if not channels:
            return None
        expected = await histories.of(node, channels)
        stored = await self.engine.reader.history(
            thread, target.namespace, target.checkpoint_id, sorted(channels), self.cipher
        )
        for channel, entry in convert.histories_of(self.codec, stored, channels).items():
            seed = marked(self.fingerprint(entry["seed"])) if "seed" in entry else None
            writes = [(task_id, marked(self.fingerprint(value))) for task_id, _, value in entry["writes"]]
            if (seed, writes) != expected[channel]:
                return f"the history of the DeltaChannel {channel!r}"
        return None

    def _difference(self, source: CheckpointTuple, target: CheckpointTuple) -> str | None:
        """Where two checkpoints differ, or None."""
        if _address(source.config) != _address(target.config):
            return "its address"
        if _address(source.parent_config) != _address(target.parent_config):
            return f"its parent: {_address(source.parent_config)} and {_address(target.parent_config)}"
        left, right = dict(source.checkpoint), dict(target.checkpoint)
        for part in ("channel_values", "channel_versions", "versions_seen"):
            if found := self._differing_key(left.pop(part, None) or {}, right.pop(part, None) or {}):
                return f"{part} of {found}"
        if found := self._differing_key(left, right):
            return f"its key {found}"
        if found := self._differing_key(source.metadata or {}, target.metadata or {}):
            return f"its metadata {found}"
        return self._differing_write(source.pending_writes or [], target.pending_writes or [])

    def _differing_key(self, left: Any, right: Any) -> str | None:
        """The first key in which two mappings differ; 1, 1.0 and True are three keys."""
        one, other = ({(type(key), key): value for key, value in each.items()} for each in (left, right))
        for kind, key in sorted({*one, *other}, key=repr):
            place = kind, key
            if place not in one or place not in other:
                return f"{key!r}, which only the {'target' if place in other else 'source'} has"
            if isinstance(one[place], Mapping) and self._differing_order_is_nothing(one[place], other[place]):
                continue
            if self.fingerprint(one[place]) != self.fingerprint(other[place]):
                return repr(key)
        return None

    def _differing_order_is_nothing(self, left: Any, right: Any) -> bool:
        """Whether two mappings have the same entries in another order, which JSON columns do not keep."""
        return isinstance(right, Mapping) and self._differing_key(left, right) is None

    def _differing_write(self, left: Sequence[Any], right: Sequence[Any]) -> str | None:
        if len(left) != len(right):
            return f"its pending writes: {len(left)} and {len(right)}"
        for position, (one, other) in enumerate(zip(left, right, strict=True)):
            same_place = tuple(one[:2]) == tuple(other[:2])
            if not same_place or self.fingerprint(one[2]) != self.fingerprint(other[2]):
                return f"pending write {position}, to {one[1]!r}"
        return None


def chosen(order: Sequence[Node], verify: Verify) -> list[Node]:
    """Which checkpoints to compare: all, none, or the head of each namespace and some by chance."""
    if verify == "none":
        return []
    if verify == "full" or len(order) <= SAMPLE_CHECKPOINTS:
        return list(order)
    heads: dict[str, Node] = {}
    for node in order:
        if node.namespace not in heads or node.checkpoint_id > heads[node.namespace].checkpoint_id:
            heads[node.namespace] = node
    some = random.sample(list(order), SAMPLE_CHECKPOINTS)
    return list({node.key: node for node in (*heads.values(), *some)}.values())


def _address(config: Any) -> tuple[str, str, str] | None:
    if config is None:
        return None
    settings = config["configurable"]
    return str(settings["thread_id"]), settings.get("checkpoint_ns") or "", settings["checkpoint_id"]
