"""Imprints of decoded values, so that the next load of a thread copies them instead of decoding them again.

Every turn of a conversation loads its whole state, and nearly all of it was loaded the turn before. Contract: what
`Templates.load` gives equals what decoding gives, in values and types, and shares nothing that can change with anything
that was or will be handed out.

- A *template* is the imprint of a decoded value (`core/imprint.py`). It has nothing that can change, and every copy is
  made anew from it.
- Only kinds that have imprints are kept. Everything else is decoded each time.
- Decoding is no function of the bytes alone: LangGraph's serializer gives a plain dict where a class is missing or
  refuses at that moment. So only what encodes to its item again is kept.

A template is found by the encoded item itself, so it cannot be stale, whatever happens to the thread. The first load
keeps none: who loads once pays nothing. A load keeps the templates that it used and forgets the others, so they take as
much memory as one state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltastore.core.collector import paused
from deltastore.core.imprint import Imprint, imprint

OBJECT_FACTOR = 4
"""Objects take about so many times the memory of their encoded form."""

Decode = Callable[[Sequence[bytes]], list[Any]]
Encode = Callable[[Any], bytes | None]


@dataclass(slots=True)
class Templates:
    """The templates of what was loaded last. Changed as a whole only, so threads may share it."""

    _by_item: Mapping[bytes, Imprint] = field(default_factory=dict)
    _is_first: bool = True
    size_bytes: int = 0

    def load(self, items: Sequence[bytes], decode: Decode, encode: Encode) -> list[Any]:
        """The values of items: copies where there are templates, decoded by `decode` where there are none.

        Args:
            items: The items.
            decode: Gives the values of items.
            encode: Gives the item of a value, or None if it has none.
        """
        if self._is_first:
            self._is_first = False
            return decode(items)
        with paused():
            return self._load_again(items, decode, encode)

    def _load_again(self, items: Sequence[bytes], decode: Decode, encode: Encode) -> list[Any]:
        found = self.find(items)
        values = [None if template is None else template.make() for template in found]
        missing = [position for position, template in enumerate(found) if template is None] if None in found else []
        decoded = decode([items[position] for position in missing]) if missing else []
        for position, value in zip(missing, decoded, strict=True):
            values[position], found[position] = value, _template(value, items[position], encode)
        self._by_item = {item: each for item, each in zip(items, found, strict=True) if each is not None}
        self.size_bytes = OBJECT_FACTOR * sum(map(len, self._by_item))
        return values

    def find(self, items: Iterable[bytes]) -> list[Imprint | None]:
        """The templates of items, None for each that has none."""
        return list(map(self._by_item.get, items))


def _template(value: Any, item: bytes, encode: Encode) -> Imprint | None:
    """A template of a value that was just decoded from an item, or None if it cannot be copied exactly."""
    template = imprint(value, item)
    return None if template is None or encode(value) != item else template
