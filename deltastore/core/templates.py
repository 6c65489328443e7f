"""Decoded values that are kept, so that the next load of a thread copies them instead of decoding them again.

Every turn of a conversation loads its whole state, and nearly all of it was loaded the turn before. Decoding a message
takes about six times as long as copying it. Contract: what `Templates.load` gives equals what decoding gives, in values
and types, and shares nothing that can change with anything that was or will be handed out.

- The kept original, the *template*, is never handed out; only copies are.
- A copy shares what cannot change (strings, numbers, dates) and copies every container, to any depth. Where copies stay
  alive, as all states of a history do, strings and numbers of their own would cost the garbage collector more than the
  containers.
- Only kinds that are copied exactly are kept: exact lists and dicts of such, and LangChain messages, which consist of
  nothing but their fields. Everything else is decoded each time.
- Decoding is no function of the bytes alone: LangGraph's serializer gives a plain dict where a class is missing or
  refuses at that moment. So only what encodes to its item again is kept.

A template is found by the encoded item itself, so it cannot be stale, whatever happens to the thread. The first load
keeps none: who loads once pays nothing. A load keeps the templates that it used and forgets the others, so they take as
much memory as one state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from deltastore.core.collector import paused
from deltastore.core.imprint import ATOMS, DEPTH_MAX, Imprint, fields_of, imprint, is_message

OBJECT_FACTOR = 4
"""Objects take about so many times the memory of their encoded form."""

Decode = Callable[[Sequence[bytes]], list[Any]]
Encode = Callable[[Any], bytes | None]
Plan = tuple[tuple[Any, Any], ...]
"""The parts of a container that are containers themselves: each part's key or position, and its own plan."""


def _plan(container: Any, depth: int = 0) -> Plan | None:
    """How an exact list or dict is copied; None if that cannot be done exactly."""
    is_dict = type(container) is dict
    if not is_dict and type(container) is not list:
        return None
    if depth == DEPTH_MAX or (is_dict and not all(type(key) in ATOMS for key in container)):
        return None
    plan: list[tuple[Any, Plan]] = []
    for key, part in container.items() if is_dict else enumerate(container):
        if type(part) not in ATOMS:
            below = _plan(part, depth + 1)
            if below is None:
                return None
            plan.append((key, below))
    return tuple(plan)


def _copy(container: Any, plan: Plan) -> Any:
    copied = container.copy()
    for key, below in plan:
        copied[key] = _copy(container[key], below) if below else container[key].copy()
    return copied


class _Slots(NamedTuple):
    """Where pydantic keeps what a model consists of besides its fields."""

    fields_set: Any
    extra: Any
    private: Any


@cache
def _slots(kind: Any) -> _Slots:
    return _Slots(kind.__pydantic_fields_set__, kind.__pydantic_extra__, kind.__pydantic_private__)


class Template(NamedTuple):
    """A decoded value that nobody else has.

    Attributes:
        original: The value.
        fields: The fields of a message; None for any other value.
        plan: How the value, or the message's fields, are copied; None for what cannot change.
        imprint: That of the value, which is that of its copies too; None if it has none.
    """

    original: Any
    fields: dict[str, Any] | None
    plan: Plan | None
    imprint: Imprint | None

    @classmethod
    def of(cls, value: Any, item: bytes, encode: Encode) -> Template | None:
        """A template of a value that was just decoded from an item, or None if it cannot be copied exactly."""
        fields = fields_of(value) if is_message(type(value)) else None
        plan = None if type(value) in ATOMS else _plan(value if fields is None else fields)
        if (plan is None and type(value) not in ATOMS) or encode(value) != item:
            return None
        return cls(value, fields, plan, imprint(value, item))

    def copy(self) -> Any:
        """An equal value that shares nothing that can change."""
        original, fields, plan, _ = self
        if plan is None:
            return original
        if fields is None:
            return _copy(original, plan)
        kind: Any = type(original)
        message, slots = object.__new__(kind), _slots(kind)
        object.__setattr__(message, "__dict__", _copy(fields, plan))
        slots.fields_set.__set__(message, original.__pydantic_fields_set__.copy())
        slots.extra.__set__(message, None if original.__pydantic_extra__ is None else {})
        slots.private.__set__(message, None)
        return message


@dataclass(slots=True)
class Templates:
    """The templates of what was loaded last. Changed as a whole only, so threads may share it."""

    _by_item: Mapping[bytes, Template] = field(default_factory=dict)
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
        found = list(map(self._by_item.get, items))
        values = [None if template is None else template.copy() for template in found]
        missing = [position for position, template in enumerate(found) if template is None] if None in found else []
        decoded = decode([items[position] for position in missing]) if missing else []
        for position, value in zip(missing, decoded, strict=True):
            template = found[position] = Template.of(value, items[position], encode)
            values[position] = value if template is None else template.copy()
        self._by_item = {item: each for item, each in zip(items, found, strict=True) if each is not None}
        self.size_bytes = OBJECT_FACTOR * sum(map(len, self._by_item))
        return values

    def imprints(self, items: Iterable[bytes]) -> list[Imprint | None]:
        """The imprints of items, None for each that has none."""
        found = map(self._by_item.get, items)
        return [None if template is None else template.imprint for template in found]
