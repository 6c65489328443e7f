"""All targets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.errors import UsageError
from bench.targets.base import Place, Target
from bench.targets.local import MemoryTarget, SqliteTarget
from bench.targets.postgres import DeltastoreTarget, ImportedTarget, StockPostgresTarget, import_factory

BUILT_IN: dict[str, type[Target]] = {
    "deltastore": DeltastoreTarget,
    "postgres": StockPostgresTarget,
    "sqlite": SqliteTarget,
    "memory": MemoryTarget,
}


@dataclass(frozen=True)
class TargetSpec:
    """A target by name; what a worker process is told.

    Args:
        factory: Import path of the factory, for targets that are not built in.
    """

    name: str
    factory: str = ""

    @property
    def needs_server(self) -> bool:
        """Whether the target gets a database."""
        return self.factory != "" or BUILT_IN[self.name].needs_server

    def maker(self) -> Callable[[Place], Target]:
        """What makes the target on a place.

        Raises:
            UsageError: The factory cannot be imported.
        """
        if not self.factory:
            return BUILT_IN[self.name]
        factory = import_factory(self.factory)
        return lambda place: ImportedTarget(place, factory)


def target_spec(text: str) -> TargetSpec:
    """Reads `deltastore`, `postgres`, … or `name=package.module:factory`.

    Raises:
        UsageError: No such target, or a factory that cannot be imported.
    """
    name, equals, factory = text.partition("=")
    if equals:
        if not name.strip():
            raise UsageError(f"{text!r}: no target name: expected name=package.module:factory")
        spec = TargetSpec(name, factory)
        spec.maker()
        return spec
    if name not in BUILT_IN:
        known = ", ".join(BUILT_IN)
        raise UsageError(f"unknown target {name!r}: expected one of {known}, or --target name=package.module:factory")
    return TargetSpec(name)
