from __future__ import annotations

import dataclasses
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.errors import UsageError
from bench.files import check_writable, write_whole
from bench.output import RunOutput
from bench.record import Record, read_record
from bench.report import write_report

GOLDEN = Path(__file__).parent / "golden" / "record.json"


@pytest.fixture
def record() -> Record:
    return read_record(GOLDEN)


@pytest.fixture
def failed(record: Record) -> Record:
    """A run of which every target failed."""
    (workload,) = record.workloads
    cells = [dataclasses.replace(cell, status="failed", figures=[]) for cell in workload.cells]
    return dataclasses.replace(record, workloads=[dataclasses.replace(workload, cells=cells)])


@contextmanager
def full_disk(room_bytes: int) -> Iterator[None]:
    """No file can grow beyond this, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path):
    path, link = tmp_path / "x.json", tmp_path / "link.json"
    path.write_text("old")
    link.symlink_to(path)
    write_whole(link, "new")
    assert path.read_text() == "new"
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, path]


@pytest.mark.parametrize("ending", [".md", ".html"])
def test_nothing_half_is_left_on_a_full_disk(ending: str, record: Record, tmp_path: Path):
    path = tmp_path / f"report{ending}"
    with full_disk(1_000), pytest.raises(UsageError, match="cannot be written"):
        write_report([record], path)
    assert list(tmp_path.iterdir()) == []
    path.write_text("old")
    with full_disk(1_000), pytest.raises(UsageError, match="cannot be written"):
        write_report([record], path)
    assert path.read_text() == "old"


def test_a_device_or_a_folder_is_refused_and_stays(tmp_path: Path):
    for path in (Path("/dev/full"), tmp_path):
        for write in (check_writable, lambda path: write_whole(path, "x")):
            with pytest.raises(UsageError, match="expected a file, found a folder or a device"):
                write(path)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_full_disk_is_said_before_the_run(tmp_path: Path):
    with full_disk(0), pytest.raises(UsageError, match=r"x\.json cannot be written"):
        RunOutput(tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_ends_no_run(record: Record, tmp_path: Path):
    output = RunOutput(tmp_path / "x.json")
    with full_disk(1_000):
        output.keep(record)
        with pytest.raises(UsageError, match="cannot be written"):
            output.finish(record)
    assert list(tmp_path.iterdir()) == []
    assert len(output.finish(record)) == 3


def test_what_was_measured_replaces_an_older_record(record: Record, tmp_path: Path):
    path = tmp_path / "x.json"
    path.write_text("old")
    output = RunOutput(path)
    assert path.read_text() == "old"
    output.keep(record)
    assert read_record(path) == record
    assert output.finish(record) == [f"written: {path.with_suffix(ending)}" for ending in (".json", ".md", ".html")]


@pytest.mark.parametrize("older", ["x.json", "x.html"])
def test_failures_alone_replace_no_older_file(older: str, failed: Record, tmp_path: Path):
    (tmp_path / older).write_text("old")
    output = RunOutput(tmp_path / "x.json")
    output.keep(failed)
    assert output.finish(failed) == [f"nothing was measured: {tmp_path / 'x.json'} stays as it was"]
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_failures_are_recorded_where_nothing_was(failed: Record, tmp_path: Path):
    assert len(RunOutput(tmp_path / "x.json").finish(failed)) == 3
    assert "Nothing was measured" in (tmp_path / "x.md").read_text()
    assert "Nothing was measured" in (tmp_path / "x.html").read_text()


def test_a_run_without_any_workload_is_not_written(record: Record, tmp_path: Path):
    nothing = dataclasses.replace(record, workloads=[], interrupted=True)
    output = RunOutput(tmp_path / "x.json")
    output.keep(nothing)
    assert output.finish(nothing) == [f"nothing was measured: {tmp_path / 'x.json'} is not written"]
    assert list(tmp_path.iterdir()) == []


def test_without_a_name_nothing_is_saved_and_that_is_said(record: Record):
    output = RunOutput(None)
    output.keep(record)
    assert output.finish(record) == ["nothing is saved: --out FILE.json keeps the record and the reports"]
