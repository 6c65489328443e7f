"""What a run leaves behind: its record as JSON with the reports beside it, or nothing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from bench.errors import UsageError
from bench.files import check_writable
from bench.record import Record, write_record
from bench.report import ENDINGS, write_report


class RunOutput:
    """Writes the record of a run as it grows. What is there already is replaced only by something that was measured.

    Args:
        path: Of the record; None to keep nothing.

    Raises:
        UsageError: The record or a report could not be written, so that no run is made for nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is None:
            return
        if path.suffix != ".json":
            reports = " and ".join(ENDINGS)
            raise UsageError(f"--out {path}: expected a name that ends in .json; {reports} are written beside it")
        self._reports = [path.with_suffix(ending) for ending in ENDINGS]
        for each in (path, *self._reports):
            check_writable(each)
        self._replaces = any(each.exists() for each in (path, *self._reports))

    def keep(self, record: Record) -> None:
        """Writes the record so far. If that fails the run goes on, for `finish` tries again."""
        if self._path and self._is_worth_keeping(record):
            with suppress(UsageError):
                write_record(record, self._path)

    def finish(self, record: Record) -> list[str]:
        """Writes the record and its reports; returns what to say about it, line by line.

        Raises:
            UsageError: One of them cannot be written.
        """
        if self._path is None:
            return ["nothing is saved: --out FILE.json keeps the record and the reports"]
        if not self._is_worth_keeping(record):
            return [f"nothing was measured: {self._path} {'stays as it was' if self._replaces else 'is not written'}"]
        write_record(record, self._path)
        for each in self._reports:
            write_report([record], each)
        return [f"written: {each}" for each in (self._path, *self._reports)]

    def _is_worth_keeping(self, record: Record) -> bool:
        return record.has_figures or (bool(record.workloads) and not self._replaces)
