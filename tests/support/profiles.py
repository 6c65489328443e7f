"""How many examples hypothesis tries: `DELTASTORE_TEST_EXAMPLES=slow` for a long search, by default a quick one."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

COMMON: dict[str, Any] = {
    "deadline": None,  # other work on the machine is no failure
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
}
settings.register_profile("ci", max_examples=60, stateful_step_count=25, database=None, **COMMON)
settings.register_profile("slow", max_examples=4000, stateful_step_count=50, **COMMON)


def load() -> None:
    """Makes the profile that the environment asks for the default."""
    settings.load_profile(os.environ.get("DELTASTORE_TEST_EXAMPLES", "ci"))
