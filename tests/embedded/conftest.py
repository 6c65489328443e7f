"""All folders of these tests are homes of servers."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(server_home: Path) -> Path:
    """In place of pytest's own."""
    return server_home
