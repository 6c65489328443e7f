"""Reports from records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.record import Record
from bench.report.markdown import markdown


def write_reports(records: Sequence[Record], path: Path) -> list[Path]:
    out = path.with_suffix(".md")
    out.write_text(markdown(records))
    return [out]


def compare_markdown(old: Record, new: Record) -> str:
    return ""
