"""Runs the command line in this process, as the console script does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from deltastore.cli import main


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    code: object
    output: str
    error: str


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls `deltastore` with these arguments."""

    def call(*arguments: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["deltastore", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return Ended(end.value.code, captured.out, captured.err)

    return call
