"""The example of `docs/format.md` is what the code stores, and its bytes can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deltastore.conversion.convert import IGNORED_CHANNELS
from deltastore.core.codec import TAGS
from deltastore.core.compress import Codec
from deltastore.core.frame import unseal
from deltastore.core.metadata import SOURCES
from deltastore.core.model import SegmentKind
from tests.docs.payload_example import payloads

TEXT = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- example: ([\w ]+), (plain|sealed|associated) -->\n```text\n(.*?)```", re.DOTALL)
LINE = re.compile(r"((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: x (\d+))?(?:  .*)?")


def bytes_of(block: str) -> bytes:
    """The bytes of a block: pairs of digits, perhaps repeated, then after two spaces what they mean."""
    found = b""
    for line in block.splitlines():
        match = LINE.fullmatch(line)
        assert match, f"neither bytes nor a comment: {line!r}"
        found += bytes.fromhex(match[1]) * int(match[2] or 1)
    return found


BLOCKS = {(name, part): bytes_of(block) for name, part, block in BLOCK.findall(TEXT)}
PAYLOADS = payloads()


@pytest.mark.parametrize(("name", "part"), BLOCKS)
def test_the_example_is_what_is_stored(name: str, part: str) -> None:
    payload, documented = PAYLOADS[name], BLOCKS[name, part]
    if part == "sealed":  # another zstd may compress to other bytes; those of the document stay readable
        assert unseal(documented, associated=payload.associated) == payload.plain
    else:
        assert documented.hex(" ") == getattr(payload, part).hex(" ")


def test_every_payload_of_the_example_is_documented() -> None:
    assert {name for name, _ in BLOCKS} == set(PAYLOADS)


def test_small_payloads_are_stored_as_documented() -> None:
    assert PAYLOADS["checkpoint 2"].sealed == BLOCKS["checkpoint 2", "sealed"]


@pytest.mark.parametrize("name", [*TAGS, *sorted(IGNORED_CHANNELS), *SOURCES])
def test_every_name_of_the_format_is_in_the_document(name: str) -> None:
    assert f"`{name}`" in TEXT


def test_every_number_of_the_format_is_in_the_document() -> None:
    for name, tag in TAGS.items():
        assert f"| {tag} | `{name}` |" in TEXT
    for codec in Codec:
        assert f"| {int(codec)} | " in TEXT
    for number, source in enumerate(SOURCES):
        assert f"{number} `{source}`" in TEXT
    for kind in SegmentKind:
        assert re.search(rf"{int(kind)} {kind.name.lower().rstrip('s')}s?\b", TEXT)
