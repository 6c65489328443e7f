"""Threads moved into files, one for each, and back: `archive_threads`, `restore_archives`, `open_archive`.

A thread leaves the database only when its file has been read back in full, and only as it is in the file: what came
meanwhile keeps it there. The layout of the file is in `core/archive.py`.
"""

from deltastore.archive.api import (
    archive_by_policy,
    archive_threads,
    check_archives,
    check_target,
    open_archive,
    restore_archives,
)
from deltastore.archive.report import Outcome, Report, Status
from deltastore.archive.restoring import read_header

__all__ = [
    "Outcome",
    "Report",
    "Status",
    "archive_by_policy",
    "archive_threads",
    "check_archives",
    "check_target",
    "open_archive",
    "read_header",
    "restore_archives",
]
