"""Savers on each storage, as for histories."""

from __future__ import annotations

from tests.history.conftest import forget, module_dsn, saver

__all__ = ["forget", "module_dsn", "saver"]
