from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg
import pytest

from bench.cli import main
from bench.record import read_record

QUICK = ("--turns", "6", "--concurrency", "none", "--history", "0", "--loads", "1")
ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> int:
    """Runs the command line in this process; returns its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["bench", *arguments])
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("run", "--targets", "mongodb"),
            "unknown target 'mongodb': expected one of deltastore, postgres, sqlite, memory",
        ),
        (("run", "--targets", "memory,memory"), "expected at least one, and each name once"),
        (("run", "--targets", ""), "expected at least one"),
        (("run", "--target", "mine=no.such.module:saver"), "no.such.module:saver cannot be imported"),
        (("run", "--target", "mine=tests.bench.doubles"), "expected package.module:factory"),
        (("run", "--target", "mine=tests.bench.doubles:not_callable"), "expected a function that takes a DSN"),
        (("run", "--workload", "novel"), "unknown workload 'novel': expected one of agent, files"),
        (("run", "--graphs", "both"), "unknown graph 'both': expected one of plain, delta"),
        (("run", "--concurrency", "0,8"), "expected numbers from 1"),
        (("run", "--concurrency", "many"), "expected numbers from 1"),
        (("run", "--workload", "replay"), "workload replay needs --trace FILE"),
        (
            ("run", "--workload", "replay", "--trace", "/proc/nowhere/trace.jsonl"),
            "/proc/nowhere/trace.jsonl cannot be read",
        ),
        (("run", "--dsn", "mysql://x"), "is no DSN: expected embedded"),
        (("run", "--targets", "memory", "--out", "/proc/nowhere/x.json"), "cannot be written to /proc/nowhere/x.json"),
        (("run", "--turns", "1"), "1 is not in the range"),
        (("report", "/proc/nowhere/x.json"), "record /proc/nowhere/x.json cannot be read"),
        (("dance",), "No such command"),
    ],
)
def test_a_wrong_call_is_one_clear_line_and_code_2(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture
):
    assert bench(*arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_server_that_is_down_is_one_line_without_the_password(capsys: pytest.CaptureFixture):
    assert bench("run", "--dsn", "postgresql://me:geheim@127.0.0.1:1/x", *QUICK) == 3
    error = capsys.readouterr().err
    assert "no PostgreSQL server at 127.0.0.1:1/x" in error
    assert "geheim" not in error


def test_a_full_disk_is_said_before_the_run(capsys: pytest.CaptureFixture):
    assert bench("run", "--targets", "memory", "--out", "/dev/full", *QUICK) == 2
    assert "cannot be written to /dev/full: No space left on device" in capsys.readouterr().err


def test_a_run_writes_a_record_and_reports_and_can_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "record.json"
    what = ("--targets", "memory,sqlite", "--graphs", "delta", "--turns", "6", "--repeats", "2")
    measures = ("--concurrency", "2", "--sweep-turns", "2", "--loads", "2", "--history", "10")
    assert bench("run", *what, *measures, "--out", str(out)) == 0
    shown = capsys.readouterr().out
    assert "| sqlite delta |" in shown
    record = read_record(out)
    (workload,) = record.workloads
    assert [cell.status for cell in workload.cells] == ["verified"] * 2
    assert [len(cell.figures) for cell in workload.cells] == [2] * 2
    assert workload.checkpoints == 30
    assert workload.limits.zstd3_bytes < workload.limits.state_bytes
    assert (tmp_path / "record.md").read_text() == shown.removesuffix("\n")
    assert "<svg" in (tmp_path / "record.html").read_text()
    assert bench("compare", str(out), str(out)) == 0
    assert "| memory delta | the run: stored |" in capsys.readouterr().out


def test_a_saver_that_loses_writes_has_no_figures(server_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "record.json"
    lossy = ("--targets", "memory", "--target", "lossy=tests.bench.doubles:drops_writes", "--graphs", "delta")
    assert bench("run", *lossy, *QUICK, "--dsn", server_dsn, "--out", str(out)) == 4
    shown = capsys.readouterr()
    assert "lossy delta: not verified" in shown.err
    assert "**lossy delta: not verified**" in shown.out
    assert "| lossy delta" not in shown.out
    cells = {cell.target: cell for cell in read_record(out).workloads[0].cells}
    assert (cells["memory"].status, len(cells["memory"].figures)) == ("verified", 1)
    assert (cells["lossy"].status, len(cells["lossy"].figures)) == ("not verified", 0)


def test_a_saver_that_fails_does_not_stop_the_others(server_dsn: str, capsys: pytest.CaptureFixture):
    doubles = ("--target", "full=tests.bench.doubles:refuses", "--target", "none=tests.bench.doubles:no_saver")
    what = ("--targets", "memory", *doubles, "--graphs", "plain")
    assert bench("run", *what, *QUICK, "--dsn", server_dsn) == 3
    shown = capsys.readouterr()
    assert "full plain: failed: play: OSError: [Errno 28] No space left on device" in shown.err
    assert "none plain: failed" in shown.err
    assert "expected a BaseCheckpointSaver" in shown.err
    assert "| memory plain |" in shown.out


def test_no_database_is_left_behind(server_dsn: str):
    with psycopg.connect(server_dsn) as connection:
        left = connection.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE %s", (f"deltastore_bench_{os.getpid()}_%",)
        )
        assert left.fetchall() == []


def start(out: Path, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "bench", "run", "--targets", "memory", "--turns", "4000", "--out", str(out)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen([*command, *arguments], cwd=ROOT, stdout=quiet, stderr=quiet, start_new_session=True)


def wait_for_cells(process: subprocess.Popen, cells: int) -> None:
    """Until the cells of a run have used some CPU, so that they are certainly playing."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = psutil.Process(process.pid).children()
        busy = [child for child in children if "spawn_main" in " ".join(child.cmdline()) and child.cpu_times().user > 3]
        if len(busy) >= cells:
            return
        time.sleep(0.2)
    raise TimeoutError("the cells did not start")


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_played(tmp_path: Path):
    out = tmp_path / "record.json"
    process = start(out, "--graphs", "delta", "--history", "0")
    wait_for_cells(process, 1)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(120) == 130
    record = read_record(out)
    assert record.interrupted
    (workload,) = record.workloads
    assert 0 < workload.turns < 4_000
    assert workload.cells[0].status == "verified"
    assert workload.cells[0].figures[0].growth[-1].turns == workload.turns


@pytest.mark.slow
def test_a_worker_that_is_killed_is_a_failed_target(tmp_path: Path):
    out = tmp_path / "record.json"
    process = start(out, "--graphs", "plain", "--turns", "400")
    wait_for_cells(process, 1)
    (child,) = [child for child in psutil.Process(process.pid).children() if "spawn_main" in " ".join(child.cmdline())]
    child.kill()
    assert process.wait(120) == 3
    cell = json.loads(out.read_text())["workloads"][0]["cells"][0]
    assert cell["status"] == "failed"
    assert "its process ended with code -9 during play" in cell["problem"]
