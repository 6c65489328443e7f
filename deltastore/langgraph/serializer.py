"""The default serializer: LangGraph's own, without the power to run what stored bytes name.

`JsonPlusSerializer` writes an object as module, name and arguments, and builds it again by importing the module and
calling the name. Unless LangGraph's strict mode is on, *any* module and *any* callable will do: whoever can write to
the database can run code in every process that loads (CVE-2026-28277). Here a name is called only if

- it is a class of a kind that the serializer writes: pydantic model, dataclass, enum, named tuple, time zone, secret;
- its module is loaded already, so that loading a checkpoint never runs a module's code; or it is part of LangGraph or
  LangChain's core, whose modules may be loaded.

Anything else raises `UnreadableValueError` with the name: neither run nor turned into a plain dict that an agent would
go on with. A class that was removed from its loaded module comes back as its data, with a warning in the log, as from
LangGraph's serializer. In strict mode (`LANGGRAPH_STRICT_MSGPACK`) LangGraph's allow-list decides, as it always does.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import threading
from collections.abc import Iterable
from datetime import tzinfo
from enum import Enum
from typing import Any, cast

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer, _create_msgpack_ext_hook

from deltastore.errors import UnreadableValueError

TRUSTED_PACKAGES = ("langgraph.", "langchain_core.")
WRITTEN_BY = ("model_dump", "get_secret_value", "dict", "_asdict")
"""Methods by which the serializer takes objects apart; a class that has one of them was meant to be stored."""

_refused = threading.local()


class LoadedTypes:
    """The names that may be called, as a set: it is asked for each name that LangGraph does not know to be safe."""

    def __contains__(self, key: object) -> bool:
        module_name, name = cast("tuple[str, str]", key)
        if module_name not in sys.modules and f"{module_name}.".startswith(TRUSTED_PACKAGES):
            importlib.import_module(module_name)
        names = vars(sys.modules[module_name]) if module_name in sys.modules else {"__getattr__": None}
        if _is_data(names[name]) if name in names else "__getattr__" not in names:
            return True
        _refused.__dict__.setdefault("names", []).append(f"{module_name}.{name}")
        return False


def _is_data(found: Any) -> bool:
    return isinstance(found, type) and (
        dataclasses.is_dataclass(found)
        or issubclass(found, Enum | tzinfo)
        or any(callable(getattr(found, method, None)) for method in WRITTEN_BY)
    )


class LoadedTypesSerializer(JsonPlusSerializer):
    """LangGraph's serializer, building only objects of loaded data classes. Takes the same options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._guard()

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> JsonPlusSerializer:
        """A copy that allows more in strict mode; elsewhere the same serializer."""
        extended = super().with_msgpack_allowlist(extra_allowlist)
        if isinstance(extended, LoadedTypesSerializer):
            extended._guard()  # noqa: SLF001 - our own kind
        return extended

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value.

        Raises:
            UnreadableValueError: The bytes name something that may not be called.
        """
        _refused.names = []
        value = super().loads_typed(data)
        if _refused.names:
            names = ", ".join(sorted(set(_refused.names)))
            raise UnreadableValueError(
                f"the stored bytes name {names}, which is not a data class of a loaded module",
                hint="import the module before loading; or, if you trust whoever can write to the database, "
                "give the saver serde=JsonPlusSerializer()",
            )
        return value

    def _guard(self) -> None:
        if self._allowed_msgpack_modules is True and not self._custom_unpack_ext_hook:
            self._unpack_ext_hook = _create_msgpack_ext_hook(LoadedTypes())  # type: ignore[arg-type]
