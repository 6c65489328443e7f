"""One checkpoint of LangGraph's PostgreSQL saver, put together from its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.serde.types import TASKS

from deltastore.core.codec import SNAPSHOT, Codec, EncodedValue, ValueKind
from deltastore.core.digests import digest
from deltastore.importer.raw import Cut, RawValues, whole
from deltastore.importer.reading import encoded
from deltastore.importer.source import NOTHING_BEFORE, Before, Node, SkipThread, SourceCheckpoint, SourceWrite
from deltastore.importer.tree import Ancestors

OWN_SENDS_VERSION = 4
"""From this format on a checkpoint has its queued sends itself."""
FIRST_VERSION = f"{1:032}.{0:016}"
"""What LangGraph's saver gives to a channel of a checkpoint that has no channel yet."""
COUNTERS = "counters_since_delta_snapshot"
JAVASCRIPT_DELTA = "delta_writes_versioned"

Typed = tuple[str, bytes]
Token = tuple[str, str]
"""Tells values of a channel apart: ("blob", version), ("inline", JSON text) or ("sends", parent)."""
BLOB, INLINE, SENDS = "blob", "inline", "sends"


@dataclass(slots=True)
class StoredCheckpoint:
    """The rows of one checkpoint.

    Attributes:
        node: Its place.
        checkpoint: Its JSON document.
        metadata: Its metadata.
        writes: Its pending writes.
        sends: Queued sends that are stored at its parent.
        tokens: What its channels hold, once it is known.
        changed: Those that hold something else than at the parent.
    """

    node: Node
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: Sequence[SourceWrite]
    sends: Sequence[Typed] = ()
    tokens: dict[str, Token] = field(default_factory=dict)
    changed: dict[str, Token] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """How reasons name it."""
        return f"namespace {self.node.namespace!r}, checkpoint {self.node.checkpoint_id!r}"

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The (channel, version) pairs whose stored values it needs."""
        return [(channel, version) for channel, (kind, version) in self.changed.items() if kind == BLOB]


class Assembler:
    """Puts checkpoints of one thread together, each after its parent.

    Args:
        codec: Encodes values that the tables hold as JSON.
        raw: Encodes values that the tables hold as bytes.
        stored: Namespace, channel and version of every stored value.
        order: The checkpoints that will come.
        before: What is known of those that came in an earlier run.
    """

    def __init__(
        self,
        codec: Codec,
        raw: RawValues,
        stored: Mapping[tuple[str, str, str], int],
        order: Sequence[Node],
        before: Before = NOTHING_BEFORE,
    ) -> None:
        self._codec = codec
        self._raw = raw
        self._stored = stored
        self._stored_channels = {(namespace, channel) for namespace, channel, _ in stored}
        self._checked = before.nodes
        self._delta_channels = {*before.delta_channels}
        self._tokens: Ancestors[tuple[Mapping[str, Any], dict[str, Token]]] = Ancestors(order)
        self._cuts: Ancestors[dict[str, Cut]] = Ancestors(order)

    def look(self, row: StoredCheckpoint) -> None:
        """Finds out what a checkpoint needs: fills `tokens` and `changed`. Raises `SkipThread`."""
        self._refuse_javascript_delta(row)
        versions, node = row.checkpoint["channel_versions"], row.node
        for channel, value in row.checkpoint["channel_values"].items():
            row.tokens[channel] = INLINE, json.dumps(value)
        for channel, version in versions.items():
            if (node.namespace, channel, str(version)) in self._stored:
                row.tokens[channel] = BLOB, str(version)
        if row.sends:
            versions[TASKS] = max(versions.values()) if versions else FIRST_VERSION
            row.tokens[TASKS] = SENDS, node.parent_id or ""
        parent_versions, parent_tokens = self._tokens.parent_of(node) or ({}, {})
        row.changed = {channel: token for channel, token in row.tokens.items() if parent_tokens.get(channel) != token}
        if node.key not in self._checked:
            self._check_missing(row, parent_versions)
        self._tokens.keep(node, (dict(versions), row.tokens))

    def assemble(self, row: StoredCheckpoint, values: Mapping[tuple[str, str], Typed]) -> SourceCheckpoint:
        """The checkpoint, from the stored values that it needs. Raises `SkipThread`."""
        before = self._cuts.parent_of(row.node) or {}
        cuts = {channel: before[channel] for channel in row.tokens if channel not in row.changed}
        for channel, (kind, version) in row.changed.items():
            where = f"{row.where}, channel {channel!r}"
            if kind == BLOB:
                cuts[channel] = self._raw.cut(*values[channel, version], where, before.get(channel))
            elif kind == INLINE:
                cuts[channel] = Cut(encoded(self._codec, row.checkpoint["channel_values"][channel], where))
            else:
                cuts[channel] = Cut(sends_value(self._raw, row.sends, where))
            self._check_marker(row, channel, kind, cuts[channel].value)
        self._cuts.keep(row.node, cuts)
        return SourceCheckpoint(
            row.node,
            row.checkpoint,
            row.metadata,
            {channel: cuts[channel].value for channel in row.changed},
            frozenset(row.tokens.keys() - row.changed.keys()),
            row.writes,
            sum(len(values[pair][1]) for pair in row.pairs),
        )

    def _refuse_javascript_delta(self, row: StoredCheckpoint) -> None:
        if JAVASCRIPT_DELTA in row.metadata:
            raise SkipThread(f"{row.where}: a DeltaChannel thread of LangGraph.js, whose writes have another order")
        self._delta_channels |= counted(row.metadata)

    def _check_marker(self, row: StoredCheckpoint, channel: str, kind: str, value: EncodedValue) -> None:
        if value.kind & SNAPSHOT:
            self._delta_channels.add(channel)
        elif (
            kind == INLINE
            and channel in self._delta_channels
            and row.tokens[channel][1] == "true"
            and row.node.key not in self._checked
        ):
            raise SkipThread(f"{row.where}: the stored snapshot of the DeltaChannel {channel!r} is missing")

    def _check_missing(self, row: StoredCheckpoint, parent_versions: Mapping[str, Any]) -> None:
        """A channel that was updated and available has a value, unless it is a DeltaChannel."""
        versions = row.checkpoint["channel_versions"]
        for channel in row.checkpoint.get("updated_channels") or ():
            if (
                channel not in row.tokens
                and channel in versions
                and versions[channel] != parent_versions.get(channel)
                and (row.node.namespace, channel) in self._stored_channels
                and channel not in self._delta_channels
            ):
                raise SkipThread(
                    f"{row.where}: the value of channel {channel!r}, version {versions[channel]!r}, is missing"
                )


def counted(metadata: Mapping[str, Any]) -> frozenset[str]:
    """The DeltaChannels that a checkpoint's metadata counts the writes of."""
    counters = metadata.get(COUNTERS)
    return frozenset(counters) if isinstance(counters, dict) else frozenset()


def sends_value(raw: RawValues, sends: Sequence[Typed], where: str) -> EncodedValue:
    """A list of queued sends, as LangGraph's saver makes it of the writes at the parent."""
    items = []
    for kind, data in sends:
        kind, data = raw.decrypted(kind, data, where)  # noqa: PLW2901
        raw.cut(kind, data, where)
        items += whole(kind, data).items
    return EncodedValue(ValueKind.LIST, items, None, [digest(item) for item in items])
