"""Which objects were encoded, or decoded, before and did not change since: encoding them again can be skipped.

A graph hands over its whole list of messages after each super-step, and nearly all of them are the same objects as
before. Encoding an unchanged message costs several times as much as proving that it did not change: it is the *same
object*, and it still is what its imprint says (`core/imprint.py`), to any depth. So in-place mutation is seen. What has
no imprint is encoded each time, and so is everything if the serializer is not LangGraph's.

An object is kept as long as its identity is a key, so that no other one has it meanwhile. Nothing wrong follows where
that fails, as when another thread replaces what is remembered during an encoding: the imprint alone is the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltastore.core.imprint import Imprint, imprint


@dataclass(frozen=True, slots=True)
class Elements:
    """Objects that somebody else has, and their imprints.

    Attributes:
        objects: The objects, kept so that no other one can have the identity of one of them.
        imprints: The imprint of each object by its identity; None if it has none.
        size_bytes: Size of their encoded forms.
    """

    objects: Sequence[Any] = ()
    imprints: Mapping[int, Imprint | None] = field(default_factory=dict)
    size_bytes: int = 0

    @classmethod
    def of(cls, objects: Sequence[Any], imprints: Iterable[Imprint | None], items: Iterable[bytes]) -> Elements:
        """Objects with an imprint, and an encoded form, each."""
        return cls(objects, dict(zip(map(id, objects), imprints, strict=True)), sum(map(len, items)))

    def joined(self, other: Elements) -> Elements:
        """These and others."""
        return Elements(
            [*self.objects, *other.objects], {**self.imprints, **other.imprints}, self.size_bytes + other.size_bytes
        )


@dataclass(frozen=True, slots=True)
class Recall:
    """One encoding of one value: finds elements that did not change, and collects what to remember next time."""

    known: Sequence[Mapping[int, Imprint | None]]
    objects: list[Any] = field(default_factory=list)
    imprints: list[Imprint] = field(default_factory=list)

    def find(self, value: Any) -> Imprint | None:
        """What the element was when it was encoded, if it is proved not to have changed since."""
        for known in self.known:
            found = known.get(id(value))
            if found is not None:
                if found.is_of(value):
                    self.objects.append(value)
                    self.imprints.append(found)
                    return found
                return None
        return None

    def note(self, value: Any) -> Imprint | None:
        """What an element is *before* it is encoded. If another thread changes it meanwhile, that is seen next time."""
        noted = imprint(value, b"")
        return None if noted is None or (noted.contents is None and type(value) is not str) else noted

    def keep(self, value: Any, noted: Imprint | None, item: bytes, digest: bytes) -> None:
        """Remembers what a noted element was encoded to."""
        if noted is not None:
            noted.item, noted.digest = item, digest
            self.objects.append(value)
            self.imprints.append(noted)

    def elements(self) -> Elements:
        """All that was found and kept."""
        return Elements.of(self.objects, self.imprints, [each.item for each in self.imprints])
