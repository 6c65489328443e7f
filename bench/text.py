"""Real text for the workloads: code and prose of the Python standard library.

Pieces are addressed, not drawn: pieces of different index do not overlap until the library has been used up once, and
after that they start at other places. So a long run does not repeat itself, which would flatter every compressor.
The library's own tests are left out because some distributions do not ship them.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path

_SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__"})
_DOCSTRING = re.compile(r'"""(.{80,}?)"""', re.DOTALL)
_STRIDE = 7_919  # prime, so that walking by it visits every slot once
_SHIFT_CHARACTERS = 2_971  # what a second pass through the text is shifted by


@dataclass(frozen=True)
class Corpus:
    """Text to cut pieces from.

    Args:
        code: Source files, one after the other.
        prose: Their longer docstrings, one after the other.
        modules: Names of the source files, as paths within the library.
    """

    code: str
    prose: str
    modules: tuple[str, ...]

    def code_piece(self, index: int, characters: int) -> str:
        """About `characters` of source code, from the start of a line; the same index gives the same piece."""
        return _piece(self.code, index, characters)

    def prose_piece(self, index: int, characters: int) -> str:
        """About `characters` of docstring text, from the start of a line."""
        return _piece(self.prose, index, characters)

    def digest(self) -> str:
        """SHA-256 of all of it, in hexadecimal: what two runs have to share to have played the same text."""
        text = "\0".join((self.code, self.prose, *self.modules))
        return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()

    def module(self, index: int) -> str:
        """The path of some module of the library."""
        return self.modules[index * _STRIDE % len(self.modules)]


def _piece(text: str, index: int, characters: int) -> str:
    slots = max(1, len(text) // characters)
    position = index * _STRIDE % slots * characters + index // slots * _SHIFT_CHARACTERS
    position %= max(1, len(text) - characters)
    start = text.find("\n", position) + 1
    piece = text[start : start + characters].rstrip()
    return piece if len(piece) > characters // 2 else text[position : position + characters]


@functools.cache
def standard_library() -> Corpus:
    """Reads the standard library of the running interpreter (about 12 MB, once per process)."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in root.rglob("*.py") if not _SKIPPED_FOLDERS.intersection(path.parts))
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    code = "\n".join(texts)
    prose = "\n\n".join(match.strip() for text in texts for match in _DOCSTRING.findall(text))
    return Corpus(code=code, prose=prose, modules=tuple(str(path.relative_to(root)) for path in files))
