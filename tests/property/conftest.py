from __future__ import annotations

from tests.support import profiles

profiles.load()
