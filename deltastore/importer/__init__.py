"""Threads of other savers, moved into deltastore with proof.

    report = await migrate("postgresql://…/app", "postgresql://…/app")

`migration.py` says what is promised.
"""

from deltastore.importer.api import migrate
from deltastore.importer.landing import PartLimits
from deltastore.importer.migration import Options
from deltastore.importer.report import Outcome, Report, Status

__all__ = ["Options", "Outcome", "PartLimits", "Report", "Status", "migrate"]
