"""Threads moved into files, one for each, and back: `archive_threads`, `restore_archives`, `read_archive`.

A thread leaves the database only when its file has been read back in full, and only as it is in the file: what came
meanwhile keeps it there. The layout of the file is in `core/archive.py`.
"""

from deltastore.archive.archiver import Archiver
from deltastore.archive.places import Place
from deltastore.archive.report import Outcome, Report, Status
from deltastore.archive.restoring import Restorer, read_archive, read_header

__all__ = ["Archiver", "Outcome", "Place", "Report", "Restorer", "Status", "read_archive", "read_header"]
