"""A terminal of any width, or a pipe: what all screens share.

Nothing that is stored may steer the terminal: control characters are shown, not sent. What does not fit is cut, with a
mark that says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.text import Text

WIDE = 120
"""From this width on there is room for whole ids and times."""

SHORT_ID = 18
"""So much of a UUID of version 6 is its time: enough to tell the checkpoints of a thread apart."""

UNCUT = 1_000_000
"""A width that nothing reaches."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BREAKS = str.maketrans({"\n": "⏎", "\t": " "})


def console(*, is_cut: bool = True) -> Console:
    """Standard output, as plain text where it is no terminal.

    Args:
        is_cut: Whether lines are cut where there is no terminal either. If not, `COLUMNS` still says a width.
    """
    target = Console(highlight=False, markup=False, emoji=False)
    if not is_cut and not target.is_terminal and "COLUMNS" not in os.environ:
        target.width = UNCUT
    return target


def clean(text: str) -> str:
    """A text that cannot steer the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text.replace("\r\n", "\n"))


def line(text: str) -> str:
    """A text on one line."""
    return clean(text).translate(_BREAKS)


def cut(text: str, width: int) -> str:
    """A text on one line of exactly `width` cells; an ellipsis marks that it goes on."""
    text = line(text)
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def wrapped(text: str, width: int) -> list[str]:
    """One line of text as lines of at most `width` cells, cut between words if possible, equally indented."""
    content = text.expandtabs(4)
    if cell_len(content) <= width:
        return [content]
    indent = min(len(content) - len(content.lstrip()), width // 2)
    lines = Text(content.lstrip()).wrap(Console(width=width), width - indent)
    return [" " * indent + each.plain.rstrip() for each in lines]


def short_id(checkpoint_id: str) -> str:
    """The part of an id that tells checkpoints of a thread apart, or the whole id if it is no UUID."""
    return checkpoint_id[:SHORT_ID] if _UUID.fullmatch(checkpoint_id) else checkpoint_id


def when(moment: datetime | str | None) -> str:
    """A time to the second, in UTC; a stored text that is no time as it is."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return str(moment)
    if moment is None:
        return "-"
    moment = moment.astimezone(UTC) if moment.tzinfo is not None else moment
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def counted(count: int, what: str) -> str:
    """A number of things."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def size(number_bytes: float) -> str:
    """A number of bytes for people."""
    for unit, unit_bytes in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(number_bytes) >= unit_bytes:
            return f"{number_bytes / unit_bytes:,.1f} {unit}"
    return counted(round(number_bytes), "byte")


def pairs(values: Iterable[tuple[str, Any]]) -> str:
    """`name=value` pairs on one line."""
    return "  ".join(f"{name}={value if isinstance(value, str) else repr(value)}" for name, value in values)


def print_trimmed(target: Console, table: RenderableType) -> None:
    """A table; in a pipe without blanks at the ends of lines."""
    if target.is_terminal:
        target.print(table)
        return
    with target.capture() as captured:
        target.print(table)
    target.out("\n".join(each.rstrip() for each in captured.get().split("\n")), end="", highlight=False)


def print_line(target: Console, text: Text) -> None:
    """One line, cut to the width."""
    text.truncate(target.width, overflow="ellipsis")
    text.rstrip()
    target.print(text, no_wrap=True, overflow="ellipsis")
