"""Savers on each storage, and packs so small that a short thread has several."""

from __future__ import annotations

import pytest

from deltastore.core import packing
from tests.support.both import saver

__all__ = ["saver"]


@pytest.fixture
def _small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PACK_BYTES", 3000)
    monkeypatch.setattr(packing, "PACK_BYTES_MAX", 4500)
