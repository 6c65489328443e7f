"""The envelope: round trip, damage, misplacement, ciphers, hostile lengths, frozen vectors."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.core import frame
from deltastore.core.compress import PLAIN_BYTES_MAX, Codec
from deltastore.core.frame import OVERHEAD_BYTES_MAX, seal, unseal
from deltastore.errors import CorruptPayloadError, UnreadableValueError, UnserializableValueError

ROW = b"namespace\0checkpoint\0parent"
GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "frame_v1.json").read_text())
TEXT = b'{"status": "success", "results": [1, 2, 3]} ' * 12


@dataclass
class XorCipher:
    """Enough of a cipher to test with: named, keyed, and it notices a wrong key (if it authenticates)."""

    key: int
    authenticates: bool = True
    name: str = "xor"

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return self.name, bytes((self.key,)) + bytes(byte ^ self.key for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == self.name
        if self.authenticates and ciphertext[0] != self.key:
            raise ValueError("MAC check failed")
        return bytes(byte ^ self.key for byte in ciphertext[1:])


ciphers = st.none() | st.builds(XorCipher, st.integers(1, 255), st.booleans(), st.text(max_size=200))
payloads = st.binary(max_size=300) | st.text(max_size=300).map(str.encode) | st.binary(max_size=20).map(TEXT.__add__)


def with_checksum(unchecked: bytes, associated: bytes = ROW) -> bytes:
    """What an attacker or a broken writer could store: any bytes under a right checksum."""
    return unchecked + crc32(unchecked, crc32(associated)).to_bytes(4)


@given(payloads, st.binary(max_size=60), ciphers)
def test_round_trip(plain: bytes, associated: bytes, cipher: XorCipher | None) -> None:
    sealed = seal(plain, associated=associated, cipher=cipher)
    assert unseal(sealed, associated=associated, cipher=cipher) == plain


@given(st.binary(max_size=20_000))
def test_overhead_is_small(plain: bytes) -> None:
    assert len(seal(plain, associated=ROW)) <= len(plain) + OVERHEAD_BYTES_MAX


@pytest.mark.parametrize(("plain_bytes", "overhead_bytes"), [(0, 7), (127, 7), (128, 8), (16_384, 9)])
def test_overhead_of_incompressible_payloads(plain_bytes: int, overhead_bytes: int) -> None:
    plain = bytes((number * number * 7 + number // 3) % 251 for number in range(plain_bytes))
    sealed = seal(plain, associated=ROW)
    assert len(sealed) <= plain_bytes + overhead_bytes


@pytest.mark.parametrize("cipher", [None, XorCipher(7)])
@pytest.mark.parametrize("plain", [b"", b"\x93\x01\x02\x03", TEXT])
def test_every_changed_byte_is_noticed(plain: bytes, cipher: XorCipher | None) -> None:
    sealed = seal(plain, associated=ROW, cipher=cipher)
    for position in range(len(sealed)):
        for flip in (0x01, 0x10, 0x80, 0xFF):
            damaged = bytearray(sealed)
            damaged[position] ^= flip
            with pytest.raises(CorruptPayloadError):
                unseal(bytes(damaged), associated=ROW, cipher=cipher)


@given(payloads, st.binary(min_size=1, max_size=9))
def test_other_lengths_are_noticed(plain: bytes, more: bytes) -> None:
    sealed = seal(plain, associated=ROW)
    for damaged in (sealed + more, more + sealed, *(sealed[:length] for length in range(len(sealed)))):
        with pytest.raises(CorruptPayloadError):
            unseal(damaged, associated=ROW)


@given(payloads, st.binary(max_size=30), st.binary(max_size=30))
def test_payload_of_another_row_is_noticed(plain: bytes, row: bytes, other_row: bytes) -> None:
    sealed = seal(plain, associated=row)
    if row != other_row:
        with pytest.raises(CorruptPayloadError, match="another row"):
            unseal(sealed, associated=other_row)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_under_a_right_checksum_raise_nothing_else(unchecked: bytes, marked: bool) -> None:
    for body in (unchecked, b"\xd1" + unchecked, b"\xd1\x01\x20\x00" + unchecked):
        with contextlib.suppress(CorruptPayloadError, UnreadableValueError):
            unseal(with_checksum(body), associated=ROW, cipher=XorCipher(7) if marked else None)


@given(payloads)
def test_ciphertext_holds_no_plain_bytes(plain: bytes) -> None:
    sealed = seal(b"a secret that nobody may read" + plain, associated=ROW, cipher=XorCipher(0xA5))
    assert b"secret" not in sealed


def test_compression_comes_before_encryption() -> None:
    assert len(seal(TEXT, associated=ROW, cipher=XorCipher(7))) < len(TEXT) / 4


@given(payloads, st.booleans())
def test_wrong_key_is_not_damage(plain: bytes, authenticates: bool) -> None:
    sealed = seal(TEXT + plain, associated=ROW, cipher=XorCipher(7, authenticates))
    with pytest.raises(UnreadableValueError, match="key"):
        unseal(sealed, associated=ROW, cipher=XorCipher(9, authenticates))


def test_missing_and_other_cipher() -> None:
    sealed = seal(TEXT, associated=ROW, cipher=XorCipher(7))
    with pytest.raises(UnreadableValueError, match="no cipher is configured"):
        unseal(sealed, associated=ROW)
    with pytest.raises(UnreadableValueError, match="xor"):
        unseal(sealed, associated=ROW, cipher=XorCipher(7, name="aes"))


def test_plain_payloads_stay_readable_after_a_cipher_was_configured() -> None:
    assert unseal(seal(TEXT, associated=ROW), associated=ROW, cipher=XorCipher(7)) == TEXT


@pytest.mark.parametrize(
    ("unchecked", "message"),
    [
        (b"\xd2\x00\x01a", "format version 2"),
        (b"\xd1\x0f\x01a", "codec 15"),
        (b"\xd1\x40\x01a", "codec 64"),
        (b"\xc1\x00\x01a", "not a payload"),
        (b"\xd1\x00\x02a", "another length"),
        (b"\xd1\x00\x00a", "another length"),
        (b"\xd1\x00\xff\xff\xff\xff\x7fa", "impossible length"),
        (b"\xd1\x00\x80\x80\x80\x80\x80\x01a", "impossible length"),
        (b"\xd1\x00\x80", "impossible length"),
        (b"\xd1\x80\x30aes", "impossible length"),
        (b"\xd1\x01\x05garbage", "does not decompress"),
        (b"\xd1\x01\x00", "does not decompress"),
    ],
)
def test_refused_headers(unchecked: bytes, message: str) -> None:
    with pytest.raises(CorruptPayloadError, match=message):
        unseal(with_checksum(unchecked), associated=ROW)


def test_too_large_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "PLAIN_BYTES_MAX", 100)
    assert PLAIN_BYTES_MAX < 2**30
    with pytest.raises(UnserializableValueError, match="101 bytes"):
        seal(bytes(101), associated=ROW)


@pytest.mark.parametrize("vector", GOLDEN["payloads"], ids=lambda vector: vector["name"])
def test_frozen_payloads_open_for_ever(vector: dict) -> None:
    cipher = XorCipher(vector["xor_key"]) if vector["xor_key"] else None
    plain = unseal(bytes.fromhex(vector["sealed"]), associated=bytes.fromhex(vector["associated"]), cipher=cipher)
    assert plain == bytes.fromhex(vector["unit"]) * vector["count"]


def test_frozen_payloads_cover_every_codec() -> None:
    used = {bytes.fromhex(vector["sealed"])[1] for vector in GOLDEN["payloads"]}
    assert used == {codec | ciphered for codec in Codec for ciphered in (0, 0x80)}
