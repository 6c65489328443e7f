"""Reports from records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.errors import UsageError
from bench.files import write_whole
from bench.record import Record
from bench.report.markdown import markdown
from bench.report.page import page

_WRITERS = {".md": markdown, ".html": page}
ENDINGS = tuple(_WRITERS)


def write_report(records: Sequence[Record], path: Path) -> None:
    """Writes Markdown or HTML, as the ending says.

    Raises:
        UsageError: The ending is another one, or the file cannot be written.
    """
    writer = _WRITERS.get(path.suffix)
    if writer is None:
        raise UsageError(f"--out {path}: expected a name that ends in {' or '.join(ENDINGS)}")
    write_whole(path, writer(records))
