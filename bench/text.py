"""Real text for the workloads: code and prose of the Python standard library.

Text is addressed, not drawn. A turn has a page of code and a page of prose and cuts its pieces from these one after the
other. The pages of a conversation do not overlap until it has used up the library once, whatever the order in which
they are asked for, and after that they begin at other places. So as long as the library is long enough no conversation
repeats itself, which would flatter every compressor. What a conversation has once or seldom (its first files, its
summaries) is cut from a part that is kept aside for that.

The library's own tests are left out because some distributions do not ship them.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path

LONGEST_SHARE = 1.4  # of the mean length of a piece (`bench.messages.characters_about`)
CODE_ASIDE_CHARACTERS = 600_000
PROSE_ASIDE_CHARACTERS = 350_000
_SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__"})
_DOCSTRING = re.compile(r'"""(.{80,}?)"""', re.DOTALL)
_STRIDES = (7_919, 7_927)  # primes, so that walking by one of them visits every page once
_SHIFT_CHARACTERS = 2_971  # what a second pass through the text is shifted by
_LINE_CHARACTERS = 120  # pieces begin with a line if one begins within this


class Page:
    """A stretch of text to cut pieces from."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def take(self, characters: int) -> str:
        """The next piece, of about so many characters; shorter where the page ends."""
        line = self._text.find("\n", self._position, self._position + _LINE_CHARACTERS) + 1
        start = line or self._position
        self._position = start + characters
        piece = self._text[start : self._position]
        return piece.rstrip() or piece


@dataclass(frozen=True)
class Text:
    """Text that is cut into pages."""

    characters: str

    def page(self, start: int, number: int, *means: int) -> Page:
        """A page with room for a piece of each of these mean lengths; the same each time.

        Args:
            start: Where a conversation starts in the text.
            number: Of the page in the conversation, from 0.
        """
        room, count = self.page_characters(*means), self.pages(*means)
        stride = next(stride for stride in _STRIDES if count == 1 or count % stride)
        passes = start // count + number // count
        position = ((start + number) * stride % count * room + passes * _SHIFT_CHARACTERS) % len(self.characters)
        page = self.characters[position : position + room]
        return Page(page + self.characters[: min(room - len(page), position)])  # the text is a ring

    def pages(self, *means: int) -> int:
        """How many pages with room for such pieces there are that do not overlap."""
        return max(1, len(self.characters) // self.page_characters(*means))

    @staticmethod
    def page_characters(*means: int) -> int:
        """The length of a page with room for such pieces."""
        return sum(int(mean * LONGEST_SHARE) + _LINE_CHARACTERS for mean in means)


@dataclass(frozen=True)
class Corpus:
    """All text.

    Args:
        code: Source files, one after the other, without those aside.
        prose: Their longer docstrings, one after the other, without those aside.
        code_aside: Source files for what a conversation has once.
        prose_aside: Docstrings for what it has seldom.
        modules: Names of the source files, as paths within the library.
    """

    code: Text
    prose: Text
    code_aside: Text
    prose_aside: Text
    modules: tuple[str, ...]

    def digest(self) -> str:
        """SHA-256 of all of it, in hexadecimal: what two runs have to share to have played the same text."""
        texts = (text.characters for text in (self.code, self.prose, self.code_aside, self.prose_aside))
        return hashlib.sha256("\0".join((*texts, *self.modules)).encode("utf-8", errors="replace")).hexdigest()

    def module(self, index: int) -> str:
        """The path of some module of the library."""
        return self.modules[index * _STRIDES[0] % len(self.modules)]


@functools.cache
def standard_library() -> Corpus:
    """Reads the standard library of the running interpreter (about 12 MB, once per process)."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in root.rglob("*.py") if not _SKIPPED_FOLDERS.intersection(path.parts))
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    code = "\n".join(texts)
    prose = "\n\n".join(match.strip() for text in texts for match in _DOCSTRING.findall(text))
    return Corpus(
        code=Text(code[CODE_ASIDE_CHARACTERS:]),
        prose=Text(prose[PROSE_ASIDE_CHARACTERS:]),
        code_aside=Text(code[:CODE_ASIDE_CHARACTERS]),
        prose_aside=Text(prose[:PROSE_ASIDE_CHARACTERS]),
        modules=tuple(str(path.relative_to(root)) for path in files),
    )
