"""Where a record was made: the machine, the versions and the commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import psutil

_PACKAGES = (
    "langgraph-checkpoint-deltastore",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-sqlite",
    "langchain-core",
    "pydantic",
    "asyncpg",
    "psycopg",
    "psycopg-binary",
    "psycopg-c",
    "psycopg-pool",
    "ormsgpack",
    "zstandard",
)


def machine() -> dict[str, str]:
    """Processor, memory and system."""
    memory_gib = psutil.virtual_memory().total / 2**30
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_gib:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load at the start": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        for line in cpu_info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Python and the packages that matter; those that are not installed are left out."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit of the checkout, with a mark if the package's or the benchmark's files differ from it."""
    folder = Path(__file__).parent.parent
    try:
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", "deltastore", "bench", "schema")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} with changes" if changed else head


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()
