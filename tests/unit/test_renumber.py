"""Other segment ids in payloads: all of them, in order, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deltastore.core.model import SegmentKind
from deltastore.core.payload import pack, unpack
from deltastore.core.renumber import renumber_checkpoint, renumber_segment
from deltastore.errors import CorruptPayloadError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "payload_v1.json").read_text(encoding="utf-8"))
DOCUMENTS = {name: bytes.fromhex(text) for name, text in GOLDEN["documents"].items()}
CHECKPOINTS = [name for name, plain in DOCUMENTS.items() if name == "anchor" or "delta" in name]
PAGES = [name for name in DOCUMENTS if name.startswith("page")]
WRITES = [name for name in DOCUMENTS if "writes" in name]


def renumber(name: str, plain: bytes, change):
    if name in CHECKPOINTS:
        return renumber_checkpoint(plain, change)
    kind = SegmentKind.PAGES if name in PAGES else SegmentKind.WRITES if name in WRITES else SegmentKind.VALUES
    return renumber_segment(kind, plain, change)


@pytest.mark.parametrize("name", [*CHECKPOINTS, *PAGES, *WRITES, "values"])
def test_there_and_back_is_the_same_document(name: str) -> None:
    plain = DOCUMENTS[name]
    assert unpack(renumber(name, plain, lambda number: number)) == unpack(plain)
    changed = renumber(name, plain, lambda number: number * 1000 + 7)
    assert renumber(name, changed, lambda number: (number - 7) // 1000) == pack(unpack(plain))
    assert (changed == pack(unpack(plain))) == (not seen(name, plain))


def seen(name: str, plain: bytes) -> list[int]:
    """The ids that a document names."""
    found: list[int] = []

    def note(number: int) -> int:
        found.append(number)
        return number

    renumber(name, plain, note)
    return found


def test_ids_of_every_place() -> None:
    columns = [[5, False, None, 2, -3], [0, 1, b"\x00\x01", 2, 3]]
    delta = [0, [], [3, 4], [], [], [["a", 1, 1, 0, 4, columns, [[9], [0], ["key"]]]]]
    anchor = [1, [], True, [], [["a", 1, [0, columns, 1]]], [["b", None, [columns]], ["c", [1, [2, columns]], [3]]]]
    page = [None, *columns, []]
    writes = ["task", "path", [[0, "a", 1, *columns], [1, "b", 2, [8], [0], ["key"]]], [b"\x00\x01"]]
    assert seen("first delta", pack(delta)) == [3, 7, 5, 7, 4, 9]
    assert seen("anchor", pack(anchor)) == [5, 7, 4] * 3
    assert seen("page", pack(page)) == [5, 7, 4]
    assert seen("writes", pack(writes)) == [5, 7, 4, 8]
    changed = unpack(renumber_checkpoint(pack(delta), {3: 1, 7: 3, 5: 2, 4: 1, 9: 4}.__getitem__))
    assert changed[2] == [1, 2]
    assert changed[5][0][5] == [[2, False, None, 1, -2], [0, 1, b"\x00\x01", 2, 3]]
    assert changed[5][0][6] == [[4], [0], ["key"]]


@pytest.mark.parametrize("document", [[], [2, []], [0, []], [1, [], True, [], [[]], []], 5, [0, [], ["x"], [], [], []]])
def test_what_is_no_checkpoint_is_refused(document: object) -> None:
    with pytest.raises(CorruptPayloadError):
        renumber_checkpoint(pack(document), lambda number: number)


@pytest.mark.parametrize("document", [[], [1, 2], 5, ["task", "path", [[0]], []]])
@pytest.mark.parametrize("kind", [SegmentKind.PAGES, SegmentKind.WRITES])
def test_what_is_no_segment_is_refused(document: object, kind: SegmentKind) -> None:
    with pytest.raises(CorruptPayloadError):
        renumber_segment(kind, pack(document), lambda number: number)
