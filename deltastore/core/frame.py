"""The envelope of every stored payload: it names itself, proves itself, and is bound to its row.

    offset  bytes  content
    0       1      0xD0 | format version (1): the mark that this is a payload of deltastore
    1       1      codec, which names its dictionary (compress.py); plus 0x80 if the body is ciphered
    2       0 or   when ciphered: length of the cipher's name in UTF-8 (as below), and the name
            1+n
    ..      1-5    length of the plain bytes: LEB128, seven bits a byte, lowest first
    ..      n      body
    end-4   4      CRC-32 of the associated data followed by all bytes before, big-endian

The *associated data* are not stored: they are what the reader knows anyway about where the payload is from (namespace,
checkpoint id, parent, ...). A payload that was moved to another row therefore fails its checksum.

Order. Sealing compresses, then encrypts (ciphertext does not compress), then checks; so damage is told from a wrong
key: a bad checksum is damage (`CorruptPayloadError`), and what fails after a good one in the cipher is the key
(`UnreadableValueError`). Reading checks before anything is decrypted, and bounds lengths before anything is allocated.

Left out on purpose: protection against someone who writes to the database on purpose. A checksum is no signature; a
cipher that authenticates protects the body, but the associated data are bound by the checksum only.
"""

from __future__ import annotations

from typing import Final, Protocol
from zlib import crc32

from deltastore.core.compress import PLAIN_BYTES_MAX, Codec, compress, decompress
from deltastore.errors import CorruptPayloadError, UnreadableValueError, UnserializableValueError

FORMAT_VERSION: Final = 1
OVERHEAD_BYTES_MAX: Final = 9
"""What sealing adds at most to a payload that is stored as it is, without a cipher and shorter than 256 MiB."""

_MARK: Final = 0xD0
_CIPHERED: Final = 0x80
_CHECKSUM_BYTES: Final = 4
_LENGTH_BYTES_MAX: Final = 5
_CODECS: Final = {int(codec): codec for codec in Codec}


class Cipher(Protocol):
    """What LangGraph calls a `CipherProtocol`."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """The cipher's name and the ciphertext."""

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """The plaintext; raises whatever it likes if the key or the ciphertext is wrong."""


def seal(plain: bytes, *, associated: bytes, cipher: Cipher | None = None, level: int | None = None) -> bytes:
    """Compresses, encrypts and checks a payload.

    Args:
        plain: The payload, at most `PLAIN_BYTES_MAX` bytes.
        associated: What the payload belongs to; the same bytes must be given to `unseal`.
        cipher: Encrypts the compressed payload; None leaves it readable.
        level: zstd level, 1 (fast) to 19 (small); by default one that suits the length.

    Raises:
        UnserializableValueError: The payload is too long.
    """
    if len(plain) > PLAIN_BYTES_MAX:
        raise UnserializableValueError(
            "a value is too large to be stored",
            detail=f"{len(plain)} bytes when serialised, at most {PLAIN_BYTES_MAX} are possible",
            hint="keep large data outside of the graph's state and store a reference to it",
        )
    codec, body = compress(plain, level)
    cipher_name = None
    if cipher is not None:
        cipher_name, body = cipher.encrypt(body)
    sealed = _head(codec, cipher_name, len(plain)) + body
    return sealed + _checksum(sealed, associated)


def _head(codec: Codec, cipher_name: str | None, plain_bytes: int) -> bytes:
    if cipher_name is None:
        return bytes((_MARK | FORMAT_VERSION, codec)) + _encode_length(plain_bytes)
    name = cipher_name.encode()
    head = bytes((_MARK | FORMAT_VERSION, codec | _CIPHERED)) + _encode_length(len(name)) + name
    return head + _encode_length(plain_bytes)


def declared_bytes(sealed: bytes) -> int:
    """The length of the plain bytes, as a sealed payload declares it. Raises `CorruptPayloadError`."""
    _, _, start = _read_codec(sealed)
    return _decode_length(sealed, start)[0]


def unseal(sealed: bytes, *, associated: bytes, cipher: Cipher | None = None) -> bytes:
    """Gives back what was sealed.

    Args:
        sealed: The stored bytes.
        associated: The same bytes that were given to `seal`.
        cipher: Decrypts the payload if it is encrypted; a payload that is not is read without it.

    Raises:
        CorruptPayloadError: The bytes are damaged, belong to another row, or are of a newer format.
        UnreadableValueError: The payload is encrypted, and there is no cipher or it cannot decrypt it.
    """
    end = len(sealed) - _CHECKSUM_BYTES
    if end < 2 + 1 or sealed[0] != _MARK | FORMAT_VERSION:
        raise _unknown(sealed)
    unchecked, found = sealed[:end], int.from_bytes(sealed[end:])
    if (expected := crc32(unchecked, crc32(associated))) != found:
        raise _corrupt("is damaged or belongs to another row", f"checksum {found:08x}, expected {expected:08x}")
    codec, cipher_name, start = _read_codec(unchecked)
    plain_bytes, start = _decode_length(unchecked, start)
    body = unchecked[start:]
    if cipher_name is None:
        return decompress(codec, body, plain_bytes)
    try:
        return decompress(codec, _decrypt(cipher, cipher_name, body), plain_bytes)
    except CorruptPayloadError as error:
        raise _wrong_key(cipher_name, error) from error


def _unknown(sealed: bytes) -> CorruptPayloadError:
    if len(sealed) < 2 + 1 + _CHECKSUM_BYTES or sealed[0] & 0xF0 != _MARK:
        return _corrupt("is not a payload of deltastore", f"found {len(sealed)} bytes starting with {sealed[:4].hex()}")
    return _newer(f"format version {sealed[0] & 0x0F}")


def _checksum(unchecked: bytes, associated: bytes) -> bytes:
    return crc32(unchecked, crc32(associated)).to_bytes(_CHECKSUM_BYTES)


def _read_codec(unchecked: bytes) -> tuple[Codec, str | None, int]:
    """Codec, name of the cipher, and where the length begins.

    The checksum is right, so what does not fit here was written wrongly or is newer.
    """
    flags = unchecked[1]
    codec = _CODECS.get(flags & ~_CIPHERED)
    if codec is None:
        raise _newer(f"codec {flags & ~_CIPHERED}")
    if not flags & _CIPHERED:
        return codec, None, 2
    name_bytes, start = _decode_length(unchecked, 2)
    return codec, unchecked[start : start + name_bytes].decode(errors="replace"), start + name_bytes


def _encode_length(length: int) -> bytes:
    encoded = bytearray()
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)


def _decode_length(unchecked: bytes, position: int) -> tuple[int, int]:
    """A length and the position after it."""
    length = 0
    for index, byte in enumerate(unchecked[position : position + _LENGTH_BYTES_MAX]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80 and length <= PLAIN_BYTES_MAX:
            return length, position + index + 1
    raise _corrupt("declares an impossible length", f"found {length} bytes or more, at most {PLAIN_BYTES_MAX} possible")


def _decrypt(cipher: Cipher | None, cipher_name: str, body: bytes) -> bytes:
    if cipher is None:
        raise UnreadableValueError(
            "a payload is encrypted and no cipher is configured",
            detail=f"encrypted with {cipher_name!r}",
            hint="open the saver with the EncryptedSerializer that the thread was written with",
        )
    try:
        return cipher.decrypt(cipher_name, body)
    except Exception as error:
        raise _wrong_key(cipher_name, error) from error


def _wrong_key(cipher_name: str, error: Exception) -> UnreadableValueError:
    return UnreadableValueError(
        "a payload cannot be decrypted",
        detail=f"encrypted with {cipher_name!r}, its checksum is right: {type(error).__name__}: {error}",
        hint="the key is not the one that the thread was written with",
    )


def _corrupt(problem: str, detail: str) -> CorruptPayloadError:
    return CorruptPayloadError(f"a payload {problem}", detail=detail, hint="restore the row from a backup")


def _newer(found: str) -> CorruptPayloadError:
    return CorruptPayloadError(
        "a payload was written by a newer deltastore, or is damaged",
        detail=f"found {found}",
        hint="upgrade deltastore on this machine",
    )
