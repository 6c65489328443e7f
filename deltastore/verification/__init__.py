"""Stored threads verified and repaired: `verify_threads`.

Every row is opened, every chain walked. What is found says which checkpoints of which threads are hurt by which row,
and what can be saved. The rules are in `core/opening.py`, `core/walking.py` and `core/repair.py`.
"""

from deltastore.core.findings import Finding, Kind, Place, ThreadFindings
from deltastore.core.repair import Action, Plan
from deltastore.verification.api import verify_threads
from deltastore.verification.report import Outcome, Report, Status

__all__ = [
    "Action",
    "Finding",
    "Kind",
    "Outcome",
    "Place",
    "Plan",
    "Report",
    "Status",
    "ThreadFindings",
    "verify_threads",
]
