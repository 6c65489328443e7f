"""Short keys for ids: digests of thread ids, ordered keys of checkpoint ids, raw bytes of task ids.

A checkpoint id is almost always a lower-case UUID in its 8-4-4-4-12 form, but may be any text, and readers see
checkpoints in the order of that text. So its key must keep three promises at once, for *every* text:

- **order**: keys compared as bytes sort exactly as the ids do (as UTF-8 bytes, which is Python's order of `str`);
- **bijection**: the key gives back the id, and no two ids share a key;
- **size**: a canonical UUID takes 17 bytes instead of 36.

How. An id is read against the UUID pattern, whose 32 *places* are hexadecimal digits (the dash before a place belongs
to that place). Each place becomes a digit in base 19, in the order of the text:

    0      LOW      the id leaves the pattern here with something below `0`, or ends here
    1-10   0-9
    11     BETWEEN  the id leaves the pattern here with something between `9` and `a`
    12-17  a-f
    18     HIGH     the id leaves the pattern here with something above `f`

At a place after a dash, "something" starts with the dash's position: what is below `-0` is LOW, what is above `-f` is
HIGH. An id that leaves the pattern has zeros in all later places. The 32 digits make one number below 19**32 < 2**136:
17 bytes, big-endian. What the pattern did not take, from the place where the id left it or after the 36th character,
follows as UTF-8. Two ids that leave at the same place with the same digit differ only there, so that text orders them;
an id that ends sorts before its extensions since no text sorts before some text.

Left out on purpose: any check of what a good id is. NUL and the empty text have keys too; refusing them is the
caller's business. A lone surrogate has no UTF-8 form and raises `UnicodeEncodeError`.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

from deltastore.errors import CorruptPayloadError

THREAD_KEY_BYTES: Final = 16
UUID_KEY_BYTES: Final = 17
"""Length of the key of a canonical UUID, and of the number at the start of every checkpoint key."""

_UUID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PLACES: Final = ["-[0-9a-f]" if place in (8, 12, 16, 20) else "[0-9a-f]" for place in range(32)]
_UUID_PREFIX: Final = re.compile("".join(f"(?:{place}" for place in _PLACES) + ")?" * len(_PLACES))
_LOW, _BETWEEN, _HIGH = "0", "b", "i"
_LEAVING_DIGIT: Final = re.compile("[0bi]")
_HEX: Final = "0123456789abcdef"
_DIGITS: Final = "123456789acdefgh"
"""The base 19 digit, as `int(text, 19)` reads it, of each hexadecimal digit."""
_DIGIT_OF_HEX: Final = str.maketrans(_HEX, _DIGITS, "-")
_HEX_OF_DIGIT: Final = str.maketrans(_DIGITS, _HEX)
_DIGIT_PAIRS: Final = [high + low for high in "0123456789abcdefghi" for low in "0123456789abcdefghi"]


def thread_key(thread_id: str) -> bytes:
    """The 16-byte key of a thread: a digest, so that a thread id may be of any length."""
    return blake2b(thread_id.encode(), digest_size=THREAD_KEY_BYTES, person=b"deltastore").digest()


def shown_namespace(namespace: str) -> str:
    """A namespace as errors and lists name it."""
    return repr(namespace) if namespace else "(root)"


def pack_checkpoint_id(checkpoint_id: str) -> bytes:
    """The ordered key of a checkpoint id: 17 bytes for a canonical UUID, else up to 17 bytes more than the id.

    Raises:
        UnicodeEncodeError: The id holds a lone surrogate.
    """
    if _UUID.fullmatch(checkpoint_id):
        return int(checkpoint_id.translate(_DIGIT_OF_HEX), 19).to_bytes(UUID_KEY_BYTES)
    match = _UUID_PREFIX.match(checkpoint_id)
    taken = match.group() if match else ""
    digits = taken.translate(_DIGIT_OF_HEX)
    rest = checkpoint_id[len(taken) :]
    if len(digits) < len(_PLACES):
        digits += _leaving_digit(rest, after_dash=_PLACES[len(digits)][0] == "-")
    return int(digits.ljust(len(_PLACES), "0"), 19).to_bytes(UUID_KEY_BYTES) + rest.encode()


def _leaving_digit(rest: str, *, after_dash: bool) -> str:
    """The digit of the place where an id leaves the pattern with `rest`."""
    dash = "-" if after_dash else ""
    if rest < dash + "0":
        return _LOW
    return _BETWEEN if rest < dash + "a" else _HIGH


def unpack_checkpoint_id(key: bytes) -> str:
    """The checkpoint id of an ordered key.

    Raises:
        CorruptPayloadError: No id has this key.
    """
    digits = _read_digits(int.from_bytes(key[:UUID_KEY_BYTES]))
    leaves_at = _LEAVING_DIGIT.search(digits)
    taken = digits[: leaves_at.start()] if leaves_at else digits
    text = _with_dashes(taken.translate(_HEX_OF_DIGIT)) + key[UUID_KEY_BYTES:].decode(errors="replace")
    if (leaves_at or len(key) != UUID_KEY_BYTES) and pack_checkpoint_id(text) != key:
        raise CorruptPayloadError(
            "a stored checkpoint key belongs to no checkpoint id",
            detail=f"found {len(key)} bytes starting with {key[:UUID_KEY_BYTES].hex()}",
            hint="the row was damaged, or written by something other than deltastore",
        )
    return text


def _read_digits(number: int) -> str:
    """The 32 lowest digits of a number in base 19."""
    pairs = []
    for _ in range(len(_PLACES) // 2):
        number, pair = divmod(number, len(_DIGIT_PAIRS))
        pairs.append(_DIGIT_PAIRS[pair])
    return "".join(reversed(pairs))


def pack_uuid(text: str) -> bytes | None:
    """The 16 raw bytes of a canonical UUID (lower case, 8-4-4-4-12); None for any other text."""
    return bytes.fromhex(text.replace("-", "")) if _UUID.fullmatch(text) else None


def unpack_uuid(raw: bytes) -> str:
    """The canonical text of the 16 raw bytes of a UUID."""
    return _with_dashes(raw.hex())


def _with_dashes(digits: str) -> str:
    """Up to 32 hexadecimal digits with the dashes that a UUID has between them."""
    groups = digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]
    return "-".join(filter(None, groups))
