"""What a benchmark says when it cannot go on: one line and an exit code."""

from __future__ import annotations


class BenchError(Exception):
    """A benchmark cannot start or go on; the text says what was found, what was expected and what to do."""

    exit_code = 1


class UsageError(BenchError):
    """An option, a target, a workload or a trace file is wrong."""

    exit_code = 2


class TargetError(BenchError):
    """A target or its server failed."""

    exit_code = 3


class NotVerifiedError(BenchError):
    """A target gave back other data than it was given. Its figures are not reported."""

    exit_code = 4


def one_line(error: BaseException) -> str:
    """An exception in one line: the first real one of a group, with its type."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
