"""Pages of the documentation, their code blocks, and how the Python ones are run.

The Python blocks of a page run in order with one namespace, in an empty folder. One marked `<!-- not run -->` in the
line above is only compiled; a text block marked `<!-- prints -->` is what the Python block above it must print. Every
`postgresql://` address in a block means a fresh database.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_ADDRESS = re.compile(r"postgresql://[^\"'\s]+")


@dataclass(frozen=True)
class Block:
    """One code block: its language, its text, the mark above it and its first line in the page."""

    language: str
    text: str
    mark: str
    line: int


def name_of(page: Path) -> str:
    """How a page is named in test ids and errors."""
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    """The code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match["language"], match["text"], match["mark"] or "", text.count("\n", 0, match.start("text")) + 1)
        for match in _BLOCK.finditer(text)
    ]


def compiled(page: Path, block: Block, text: str) -> CodeType:
    """A Python block as code, whose tracebacks show lines of the page. It may await at its top level."""
    padded = "\n" * (block.line - 1) + text
    code: CodeType = compile(padded, name_of(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


def run(page: Path, new_dsn: Callable[[], str]) -> None:
    """Runs the Python blocks of a page and compares what they print."""
    namespace: dict[str, Any] = {"__name__": "__page__"}
    dsns: dict[str, str] = {}
    printed = ""
    with asyncio.Runner() as runner:
        for block in blocks_of(page):
            if block.language == "python":
                text = _ADDRESS.sub(lambda match: dsns.setdefault(match[0], new_dsn()), block.text)
                code = compiled(page, block, text)
                printed = "" if block.mark.startswith("not run") else _output(code, namespace, runner)
            elif block.mark == "prints":
                assert printed == block.text, (
                    f"{name_of(page)}:{block.line} says it prints:\n{block.text}but:\n{printed}"
                )


def _output(code: CodeType, namespace: dict[str, Any], runner: asyncio.Runner) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        result = eval(code, namespace)
        if asyncio.iscoroutine(result):
            runner.run(result)
    return output.getvalue()
