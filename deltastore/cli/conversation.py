"""Values on a screen: messages as a conversation, everything else pretty-printed; both bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.pretty import pretty_repr
from rich.text import Text

from deltastore.cli.screen import clean, cut, line, wrapped
from deltastore.inspection.messages import Message, message_of
from deltastore.inspection.values import Unopened

STYLES = {"human": "bold green", "ai": "bold cyan", "tool": "bold magenta", "system": "bold yellow"}
ROLE_WIDTH = 7


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is shown.

    Attributes:
        width: Cells of a line.
        messages: The last so many messages of a conversation.
        text_lines: Lines of one message.
        elements: Elements of one container.
        characters: Characters of one text.
        value_lines: Lines of one value.
    """

    width: int
    messages: int | None = 20
    text_lines: int | None = 12
    elements: int | None = 20
    characters: int | None = 300
    value_lines: int | None = 40


def everything(width: int) -> Bounds:
    """No bounds but the width."""
    return Bounds(width, None, None, None, None, None)


def value_lines(value: Any, bounds: Bounds) -> Iterator[Text]:
    """The lines of a value, indented by two."""
    conversation = as_conversation(value)
    if conversation is not None:
        yield from _conversation(conversation, bounds)
        return
    shown = pretty_repr(
        _named(value),
        max_width=bounds.width - 2,
        max_length=bounds.elements,
        max_string=bounds.characters,
        max_depth=None if bounds.elements is None else 6,
    )
    lines = [piece for each in clean(shown).splitlines() for piece in wrapped(each, bounds.width - 2)]
    yield from (Text(f"  {each}") for each in _bounded(lines, bounds.value_lines, "lines"))


def one_line(value: Any, width: int) -> str:
    """A value on one line, cut to the width."""
    message = message_of(value)
    if message is None:
        return cut(
            pretty_repr(_named(value), max_width=10_000, max_length=20, max_string=200, max_depth=4), width
        ).rstrip()
    calls = " ".join(f"→ {call.name}({call.arguments})" for call in message.calls)
    return cut(" ".join(filter(None, (f"{message.role}:", message.text, calls))), width).rstrip()


def as_conversation(value: Any) -> list[Message] | None:
    """The messages of a value, if it is a message or a list of messages only."""
    elements = value if isinstance(value, list) and value else [value]
    found = [message_of(each) for each in elements]
    return [each for each in found if each is not None] if None not in found else None


def _conversation(messages: Sequence[Message], bounds: Bounds) -> Iterator[Text]:
    left_out = 0 if bounds.messages is None else max(len(messages) - bounds.messages, 0)
    if left_out:
        yield Text(f"  … {left_out:,} earlier messages", "dim")
    for message in messages[left_out:]:
        yield from _message(message, bounds)


def _message(message: Message, bounds: Bounds) -> Iterator[Text]:
    indent = ROLE_WIDTH + 2
    heading = " ".join(filter(None, (line(message.name), message.status)))
    text = clean(f"[{heading}] {message.text}" if heading else message.text)
    width = max(bounds.width - indent, 20)
    lines = [piece for each in text.splitlines() for piece in wrapped(each, width)]
    lines = _bounded(lines, bounds.text_lines, "lines")
    for call in message.calls:
        told = f"→ {line(call.name)}({line(call.arguments)})"
        lines += wrapped(told, width) if bounds.characters is None else [cut(told, width).rstrip()]
    role = Text(f"  {cut(message.role, ROLE_WIDTH - 1)} ", STYLES.get(message.role, "bold"))
    for number, each in enumerate(lines or [""]):
        content = Text(each, "dim" if each.startswith("… ") else "")
        yield role + content if number == 0 else Text(" " * indent) + content


def _bounded(lines: list[str], most: int | None, what: str) -> list[str]:
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"… {len(lines) - most + 1:,} more {what}"]


class _Closed:
    """Stands for an unopened object in a pretty print, under the name of its class."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __rich_repr__(self) -> Iterator[Any]:
        if isinstance(self._value, dict):
            yield from self._value.items()
        elif isinstance(self._value, list | tuple):
            yield from self._value
        else:
            yield self._value


def _named(value: Any) -> Any:
    """The value with every unopened object as one that prints the name of its class."""
    if isinstance(value, Unopened):
        return type(value.type_name or "unreadable", (_Closed,), {})(_named(value.value))
    if type(value) is dict:
        return {key: _named(each) for key, each in value.items()}
    return [_named(each) for each in value] if type(value) is list else value
