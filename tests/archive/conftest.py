from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.both import saver

__all__ = ["saver"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cold" / "threads"
