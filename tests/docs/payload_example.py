"""The example of `docs/format.md`: a thread of three checkpoints, saved with fixed ids, as its rows are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltastore import DeltaSaver
from deltastore.core.frame import seal, unseal
from deltastore.core.model import SegmentKind, location
from deltastore.core.payload import checkpoint_binding, metadata_binding, pack_page, segment_binding
from deltastore.core.pieces import NewPage, PieceList, own

TASK = "11111111-2222-3333-4444-555555555555"
REPLY = "hello, who is there?"
LONG = "x" * 1100


@dataclass(frozen=True)
class Payload:
    """One payload as it is stored, what it is sealed together with, and what is in it."""

    sealed: bytes
    associated: bytes
    plain: bytes


def payloads() -> dict[str, Payload]:
    """The payloads of the example by their names in the document."""
    thread = saved(DeltaSaver.in_memory(snapshot_frequency=2))
    found = {}
    for number, row in enumerate(thread.checkpoints.values(), 1):
        found[f"checkpoint {number}"] = _opened(row.payload, checkpoint_binding(row))
    for segment in thread.segments.values():
        binding = segment_binding(segment.kind, segment.namespace, segment.checkpoint_id)
        found[segment.kind.name.lower()] = _opened(segment.payload, binding)
    [(metadata_id, document)] = thread.metadata.items()
    found["metadata"] = _opened(document.payload, metadata_binding(metadata_id))
    pieces = PieceList([location(4, 0), location(4, 1), location(300, 0), b"\x00\x07", own(0)])
    page = pack_page(NewPage(pieces, [b"\x00\xa3hey"]))
    binding = segment_binding(SegmentKind.PAGES, "", row.checkpoint_id)
    found["page"] = _opened(seal(page, associated=binding), binding)
    return found


def saved(saver: DeltaSaver) -> Any:
    """The thread of the example in the storage of a saver in memory."""
    _save(saver)
    [thread] = saver._bridge.engine.storage._threads.values()  # type: ignore[attr-defined]
    return thread


def _opened(sealed: bytes, associated: bytes) -> Payload:
    return Payload(sealed, associated, unseal(sealed, associated=associated))


def _save(saver: DeltaSaver) -> None:
    config: Any = {"configurable": {"thread_id": "example", "checkpoint_ns": ""}}
    seen: dict[str, Any] = {"agent": {"log": 1}}

    first = _checkpoint(1, {"input": 1, "log": 1}, {"input": {"n": 1}, "log": ["hi"]}, {})
    config = saver.put(config, first, _metadata("input", -1), {"input": 1, "log": 1})
    saver.put_writes(config, [("log", [REPLY]), ("more", None)], TASK, "~1")
    second = _checkpoint(2, {"input": 2, "log": 2}, {"log": ["hi", REPLY]}, seen)
    config = saver.put(config, second, _metadata("loop", 0), {"input": 2, "log": 2})
    third = _checkpoint(3, {"input": 2, "log": 3}, {"log": ["hi", REPLY, LONG]}, seen)
    saver.put(config, third, _metadata("loop", 1), {"log": 3})


def _metadata(source: str, step: int) -> Any:
    return {"source": source, "step": step, "user": "ann"}


def _checkpoint(number: int, versions: dict[str, Any], values: dict[str, Any], seen: dict[str, Any]) -> Any:
    return {
        "v": 4,
        "id": f"1f0a1b2c-3d4e-6f70-8123-{number:012x}",
        "ts": f"2026-01-01T00:00:0{number}.250000+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": seen,
        "updated_channels": ["log"],
    }
