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
from bench.interrupt import SAME_INTERRUPT_SECONDS
from bench.record import read_record
from tests.support.servers import DurableServer

QUICK = ("--turns", "6", "--concurrency", "none", "--history", "0", "--loads", "1")
ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).parent / "golden" / "record.json"


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
        (
            ("run", "--target", "mine=tests.bench.broken:saver"),
            "tests.bench.broken:saver cannot be imported: RuntimeError",
        ),
        (("run", "--target", "mine=tests.bench.ends:saver"), "tests.bench.ends:saver cannot be imported: SystemExit"),
        (
            ("run", "--target", "=tests.bench.doubles:drops_writes"),
            "no target name: expected name=package.module:factory",
        ),
        (("run", "--workload", "agent,wide,agent"), "workload 'agent' is given twice"),
        (("run", "--graphs", "plain,plain"), "graph 'plain' is given twice"),
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
        (("run", "--dsn", "postgresql://me:se%cret@host/x"), "--dsn cannot be read: invalid percent-encoded token; "),
        (("run", "--dsn", "embedded:"), "no folder in 'embedded:': expected embedded:<folder>"),
        (("run", "--dsn", "postgresql://me:secret@[::1/x"), "--dsn cannot be read: Invalid IPv6 URL"),
        (("run", "--targets", "memory", "--out", "/proc/nowhere/x.json"), "/proc/nowhere/x.json cannot be written"),
        (("run", "--targets", "memory", "--out", "x.md"), "expected a name that ends in .json"),
        (("report", str(RECORD), "--out", "/dev/full"), "expected a name that ends in .md or .html"),
        (("report", str(RECORD), "--out", "r.pdf"), "expected a name that ends in .md or .html"),
        (("report", str(RECORD), "--out", "/proc/nowhere/r.md"), "/proc/nowhere/r.md cannot be written"),
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


def test_a_run_that_cannot_start_leaves_an_older_record_alone(tmp_path: Path):
    out = tmp_path / "record.json"
    out.write_bytes(RECORD.read_bytes())
    assert bench("run", "--dsn", "postgresql://me@127.0.0.1:1/x", *QUICK, "--out", str(out)) == 3
    assert out.read_bytes() == RECORD.read_bytes()
    assert list(tmp_path.iterdir()) == [out]


def test_a_run_that_cannot_start_leaves_nothing(tmp_path: Path):
    assert bench("run", "--dsn", "postgresql://me@127.0.0.1:1/x", *QUICK, "--out", str(tmp_path / "record.json")) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("-h",), ("run", "-h"), ("report", "--help")])
def test_help_is_given_by_both_options(arguments: tuple[str, ...], capsys: pytest.CaptureFixture):
    assert bench(*arguments) == 0
    assert "Usage: " in capsys.readouterr().out


def test_a_missing_package_is_one_line_that_names_the_extra():
    without_click = "import runpy, sys; sys.modules['click'] = None; runpy.run_module('bench', run_name='__main__')"
    ran = subprocess.run([sys.executable, "-c", without_click], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr == "error: the benchmarks need click: pip install '.[bench]'\n"


@pytest.mark.parametrize("arguments", [("report", str(RECORD)), ("compare", str(RECORD), str(RECORD))])
def test_an_output_that_cannot_be_written_is_one_line(arguments: tuple[str, ...]):
    command = [sys.executable, "-m", "bench", *arguments]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.stderr == "error: the output cannot be written: No space left on device\n"
    assert ran.returncode == 2


def test_a_run_writes_a_record_and_reports_and_can_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "record.json"
    what = ("--targets", "memory,sqlite", "--graphs", "delta", "--turns", "6", "--repeats", "2")
    measures = ("--concurrency", "2", "--sweep-turns", "2", "--loads", "2", "--history", "10")
    assert bench("run", *what, *measures, "--out", str(out)) == 0
    captured = capsys.readouterr()
    shown = captured.out
    assert "| sqlite delta |" in shown
    for ending in ("json", "md", "html"):
        assert f"written: {tmp_path}/record.{ending}\n" in captured.err
    record = read_record(out)
    (workload,) = record.workloads
    assert [cell.status for cell in workload.cells] == ["verified"] * 2
    assert [len(cell.figures) for cell in workload.cells] == [2] * 2
    assert workload.checkpoints == 30
    assert list(record.digests) == ["text"]
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
    assert "nothing is saved: --out FILE.json keeps the record" in shown.err
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
    """A long run in a process of its own; what it says goes to `stderr.txt` beside its record."""
    command = [sys.executable, "-m", "bench", "run", "--targets", "memory", "--turns", "4000", "--out", str(out)]
    with out.with_name("stderr.txt").open("w") as said:
        return subprocess.Popen(
            [*command, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )


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
    said = (tmp_path / "stderr.txt").read_text()
    assert said.index("Stopping; Ctrl-C again to drop") < said.index(f"written: {out}")
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


@pytest.mark.slow
def test_ctrl_c_twice_drops_the_run_and_leaves_an_older_record_alone(tmp_path: Path):
    out = tmp_path / "record.json"
    out.write_bytes(RECORD.read_bytes())
    process = start(out, "--graphs", "plain")
    wait_for_cells(process, 1)
    process.send_signal(signal.SIGINT)
    time.sleep(SAME_INTERRUPT_SECONDS + 0.1)  # what comes sooner counts as the same Ctrl-C
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    said = (tmp_path / "stderr.txt").read_text()
    assert "Dropping what is running." in said
    assert f"nothing was measured: {out} stays as it was" in said
    assert "written:" not in said
    assert out.read_bytes() == RECORD.read_bytes()


@pytest.mark.slow
def test_databases_on_a_server_that_died_are_named(durable_server: DurableServer, tmp_path: Path):
    what = ("--targets", "deltastore", "--graphs", "plain", "--dsn", durable_server.dsn)
    process = start(tmp_path / "record.json", *what)
    wait_for_cells(process, 1)
    durable_server.kill()
    assert process.wait(120) == 3
    names = ", ".join(f"deltastore_bench_{process.pid}_{number}" for number in (1, 2))
    said = (tmp_path / "stderr.txt").read_text()
    assert f"These databases are left; drop them when the server is up: {names}\n" in said
    assert "Traceback" not in said
