"""Where micro benchmarks keep their baselines: beside the code, so that they can be committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: Any) -> None:
    """Sets pytest-benchmark's storage before it reads it."""
    config.option.benchmark_storage = f"file://{Path(__file__).parent / 'baselines'}"
