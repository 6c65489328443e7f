"""Parts as bytes: what is sealed comes back, and only in its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.core.digests import digest
from deltastore.core.edits import NewRows
from deltastore.core.frame import seal
from deltastore.core.model import CheckpointRow, MetadataRow, SegmentKind, SegmentRow
from deltastore.core.payload import pack
from deltastore.core.staging import open_part, seal_part
from deltastore.errors import CorruptPayloadError

KEY = b"k" * 16
NUMBERS = st.integers(-(2**63), 2**63 - 1)
IDS = st.lists(st.integers(1, 2**62), max_size=3).map(tuple)
BYTES = st.binary(max_size=40)
CHECKPOINTS = st.builds(
    CheckpointRow, st.text(max_size=5), BYTES, st.none() | BYTES, st.integers(0, 2**31 - 1), IDS, BYTES, NUMBERS
)
SEGMENTS = st.builds(
    SegmentRow, st.integers(1, 2**62), st.sampled_from(SegmentKind), st.text(max_size=5), BYTES, BYTES, IDS
)
METADATA = st.builds(MetadataRow, NUMBERS, st.text(max_size=9), BYTES)
ROWS = st.builds(NewRows, *(st.lists(each, max_size=4).map(tuple) for each in (CHECKPOINTS, SEGMENTS, METADATA)))


@given(ROWS, st.integers(0, 99))
def test_rows_come_back(rows: NewRows, part: int) -> None:
    assert open_part(seal_part(rows, KEY, part, b"before"), KEY, part, b"before") == rows


def test_a_part_opens_only_in_its_place() -> None:
    first = seal_part(NewRows(), KEY, 0, b"")
    second = seal_part(NewRows(), KEY, 1, digest(first))
    assert open_part(second, KEY, 1, digest(first)) == NewRows()
    for wrong in ((b"K" * 16, 1, digest(first)), (KEY, 2, digest(first)), (KEY, 1, digest(second)), (KEY, 1, b"")):
        with pytest.raises(CorruptPayloadError):
            open_part(second, *wrong)


@pytest.mark.parametrize("document", [None, [], [[], []], [[[1]], [], []], [[], [[1, 9, "", b"", b"", []]], []]])
def test_another_form_is_refused(document: object) -> None:
    sealed = seal(pack(document), associated=pack(["part", KEY, 0, b""]))
    with pytest.raises(CorruptPayloadError, match="form"):
        open_part(sealed, KEY, 0, b"")
