"""Random but reproducible raw material for samples: ids, numbers, times, prose, code, JSON."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_KEYS = (_HERE / "keys.txt").read_text().split()
_WORDS = (_HERE / "words.txt").read_text().split()


class RandomText:
    """Draws from one seeded generator, so that a list of samples is the same on every machine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._prose = (_HERE / "prose.txt").read_text().splitlines()
        self._code = (_HERE / "code.txt").read_text().splitlines()

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def hex(self, length: int) -> str:
        return "".join(self.random.choices("0123456789abcdef", k=length))

    def letters(self, length: int) -> str:
        return "".join(self.random.choices(string.ascii_letters + string.digits, k=length))

    def uuid(self) -> str:
        digits = self.hex(32)
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def time(self) -> str:
        month, day, hour, minute, second = (
            self.number(low, high) for low, high in ((1, 12), (1, 28), (0, 23), (0, 59), (0, 59))
        )
        year = self.number(2024, 2026)
        return f"{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{self.pick('', 'Z', '.000Z', '+00:00')}"

    def prose(self, lines_max: int = 6) -> str:
        lines = self.random.sample(self._prose, self.number(1, lines_max))
        return str(self.pick(" ", "\n", "\n\n")).join(lines)

    def code(self, lines_max: int = 30) -> str:
        """A stretch of neighbouring lines, indented as deep as chance wants, with some other lines mixed in."""
        start = self.number(0, len(self._code) - 2)
        lines = self._code[start : start + self.number(2, lines_max)]
        lines += self.random.sample(self._code, self.number(0, 8))
        indent = self.pick("", "", "    ")
        return "\n".join(indent + line for line in lines)

    def listing(self) -> str:
        """Code with line numbers, as file tools show it."""
        return "\n".join(
            f"{number:6}\t{line}" for number, line in enumerate(self.code().splitlines(), self.number(1, 200))
        )

    def record(self, depth: int = 0) -> dict[str, Any]:
        """An object as web services answer it."""
        return {key: self._field(key, depth) for key in self.random.sample(_KEYS, self.number(2, 9))}

    def _field(self, key: str, depth: int) -> Any:
        if key.endswith(("_at", "date")):
            return self.time()
        if key in ("items", "results", "options", "comments", "data") and depth < 2:
            return [self.record(depth + 1) for _ in range(self.number(0, 3))]
        if key in ("metadata", "source", "address") and depth < 2:
            return self.record(depth + 1)
        if key in ("content", "description", "text", "summary", "message", "answer"):
            return self.prose(2)
        if key.endswith("url"):
            site = self.pick("example", "github", "wikipedia")
            return f"https://www.{site}.{self.pick('com', 'org')}/{self.letters(6).lower()}"
        return self.pick(
            self.number(0, 5000),
            round(self.random.random() * 100, 2),
            self.letters(8),
            None,
            True,
            False,
            self.pick(*_WORDS),
        )

    def json(self) -> str:
        """A tool's result as JSON text, in one of the usual layouts."""
        value = self.pick(self.record(), [self.record() for _ in range(self.number(1, 4))])
        return json.dumps(value, indent=self.pick(None, None, None, 2), ensure_ascii=False)

    def tool_result(self) -> str:
        kind = self.number(0, 9)
        if kind < 4:
            return self.json()
        if kind < 7:
            return self.code()
        return self.listing() if kind == 7 else self.prose()
