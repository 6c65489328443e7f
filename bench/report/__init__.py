"""Reports from records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.errors import UsageError
from bench.record import Record
from bench.report.markdown import markdown
from bench.report.page import page

_WRITERS = {".md": markdown, ".html": page}


def write_reports(records: Sequence[Record], out: Path) -> list[Path]:
    """Writes Markdown, HTML, or with any other ending both beside it; returns what was written.

    Raises:
        UsageError: A file cannot be written.
    """
    endings = [out.suffix] if out.suffix in _WRITERS else list(_WRITERS)
    paths = [out.with_suffix(ending) for ending in endings]
    try:
        for path in paths:
            path.write_text(_WRITERS[path.suffix](records), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the report cannot be written beside {out}: {error.strerror}") from error
    return paths
