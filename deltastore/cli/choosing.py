"""Which threads a command is about, where a retention policy may choose them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from deltastore.cli.retain import policy_in
from deltastore.core.retention import RetentionPolicy, RetentionRule, age_seconds
from deltastore.errors import InvalidConfigError


def policy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--policy` (parameter `path`) and `--idle-older-than` (parameter `idle`)."""
    idle = click.option(
        "--idle-older-than", "idle", metavar="AGE", help="Threads whose newest checkpoint is older than this."
    )
    policy = click.option(
        "--policy",
        "path",
        type=click.Path(path_type=Path),
        metavar="FILE.toml",
        help="Threads that this would delete whole.",
    )
    return policy(idle(command))


def chosen_policy(path: Path | None, idle: str | None, *others: bool, hint: str) -> RetentionPolicy | None:
    """The policy that chooses threads; None if they are chosen in another way.

    Args:
        path: The file of `--policy`.
        idle: The age of `--idle-older-than`.
        others: Whether each of the command's other ways was used.
        hint: What to say if not exactly one way was used.

    Raises:
        InvalidConfigError: Not exactly one way was used, or the policy cannot be read.
    """
    if [*others, path is not None, idle is not None].count(True) != 1:
        raise InvalidConfigError("which threads?", hint=hint)
    if path is not None:
        return policy_in(path)
    if idle is None:
        return None
    return RetentionPolicy((RetentionRule("idle", idle_seconds=age_seconds("--idle-older-than", idle)),))
