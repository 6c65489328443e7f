"""Keys of ids: order, bijection and length, for canonical UUIDs and everything near them."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltastore.core.identifiers import (
    UUID_KEY_BYTES,
    pack_checkpoint_id,
    pack_uuid,
    thread_key,
    unpack_checkpoint_id,
    unpack_uuid,
)
from deltastore.errors import CorruptPayloadError

CANONICAL = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Every boundary of the digit classes and its neighbours, NUL, and characters of two, three and four UTF-8 bytes.
EDGE_CHARACTERS = "\0 ,-./0189:@AFGZ`afg~\x7f\x80éﬀ\ud7ff\ue000\uffff\U00010000\U0010ffff"

uuids = st.uuids().map(str) | st.sampled_from(
    ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]
)
characters = st.sampled_from(EDGE_CHARACTERS) | st.characters(codec="utf-8")
texts = st.text(characters, max_size=40)


@st.composite
def near_uuids(draw: st.DrawFn) -> str:
    """A UUID cut somewhere, with something inserted or replaced, and perhaps going on as the UUID did."""
    base = draw(uuids | st.just("1f0a1b2c-3d4e-6f70-8123-456789abcdef"))
    cut = draw(st.integers(0, len(base)))
    middle = draw(st.text(characters, max_size=3))
    skipped = draw(st.integers(0, 3))
    tail = base[cut + skipped :] if draw(st.booleans()) else ""
    return base[:cut] + middle + tail


ids = uuids | near_uuids() | texts | uuids.map(str.upper) | st.integers().map(str)


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[str, str]:
    """Two ids that share a prefix and go different ways after it."""
    base = draw(ids)
    cut = draw(st.integers(0, len(base)))
    return base[:cut] + draw(texts) + base[cut:], base[:cut] + draw(texts | st.just(base[cut + 1 :]))


def assert_ordered(one: str, other: str) -> None:
    utf8_one, utf8_other = one.encode(), other.encode()
    key_one, key_other = pack_checkpoint_id(one), pack_checkpoint_id(other)
    assert (key_one < key_other, key_one == key_other) == (utf8_one < utf8_other, utf8_one == utf8_other)


@given(ids, ids)
@example("", "\0")
@example("1f0a1b2c", "1f0a1b2c-")
@example("1f0a1b2c-", "1f0a1b2c-/")
@example("1f0a1b2c,", "1f0a1b2c-")
@example("1f0a1b2c-g", "1f0a1b2c.")
@example("1f0a1b2c-3d4e-6f70-8123-456789abcdef", "1f0a1b2c-3d4e-6f70-8123-456789abcdef\0")
def test_keys_sort_as_ids(one: str, other: str) -> None:
    assert_ordered(one, other)


@given(neighbours())
def test_keys_of_neighbours_sort_as_ids(pair: tuple[str, str]) -> None:
    assert_ordered(*pair)


@pytest.mark.parametrize("place", range(37))
def test_every_place_sorts_every_edge_character(place: int) -> None:
    base = "1f0a1b2c-3d4e-6f70-8123-456789abcdef"
    near = [base[:place] + character + base[place + 1 :] for character in EDGE_CHARACTERS]
    near += [base[:place] + character for character in EDGE_CHARACTERS]
    near += [base[:place] + character + base[place:] for character in EDGE_CHARACTERS]
    near += [base[:place], base, base + base]
    assert sorted(near, key=pack_checkpoint_id) == sorted(near)
    assert len({pack_checkpoint_id(text) for text in near}) == len(set(near))


@given(ids)
def test_key_gives_back_the_id(text: str) -> None:
    key = pack_checkpoint_id(text)
    assert unpack_checkpoint_id(key) == text
    assert UUID_KEY_BYTES <= len(key) <= UUID_KEY_BYTES + len(text.encode())


@given(uuids)
def test_canonical_uuid_takes_17_bytes(text: str) -> None:
    assert len(pack_checkpoint_id(text)) == UUID_KEY_BYTES


@given(st.binary(max_size=24) | st.builds(bytes.__add__, ids.map(pack_checkpoint_id), st.binary(max_size=2)))
@example(b"")
@example(b"\xff" * 17)
@example(pack_checkpoint_id("1f0a1b2c-3d4e-6f70-8123-456789abcdef") + b"\xff")
def test_bytes_are_a_key_or_refused(key: bytes) -> None:
    try:
        text = unpack_checkpoint_id(key)
    except CorruptPayloadError:
        return
    assert pack_checkpoint_id(text) == key


def test_lone_surrogate_is_not_packed_silently() -> None:
    with pytest.raises(UnicodeEncodeError):
        pack_checkpoint_id("1f0a1b2c-\ud800")


def test_frozen_keys() -> None:
    """Keys are stored in databases: these never change."""
    assert pack_checkpoint_id("1f0a1b2c-3d4e-6f70-8123-456789abcdef").hex() == "254f11153289cb22a27028e0746205c85d"
    assert pack_checkpoint_id("checkpoint-7").hex() == "c05900b883342886c5f6384758ac2386bc" + b"heckpoint-7".hex()
    assert thread_key("thread-1").hex() == "cabb205012b43a748eb7e291b1770e58"


@given(ids)
def test_only_canonical_uuids_pack_to_16_bytes(text: str) -> None:
    raw = pack_uuid(text)
    if CANONICAL.fullmatch(text):
        assert raw == UUID(text).bytes
        assert unpack_uuid(raw) == text
    else:
        assert raw is None


@given(texts)
def test_thread_key_is_16_bytes_and_tells_ids_apart(text: str) -> None:
    assert len(thread_key(text)) == 16
    assert thread_key(text) != thread_key(text + "x")
