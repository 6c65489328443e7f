"""F17: what stored bytes may build, compared with LangGraph's serializer in its strict and its permissive form."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import ormsgpack
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore import DeltaSaver, UnreadableValueError
from deltastore.core.frame import seal
from deltastore.core.model import SegmentKind
from deltastore.core.payload import pack_values, segment_binding
from tests.bridge.savers import config

ID = "1f000000-0000-6000-8000-000000000001"


@dataclass
class Order:
    """Data of the application."""

    number: int


def call(module: str, name: str, argument: Any, code: int = 0) -> bytes:
    """What `JsonPlusSerializer` reads as a call of `module.name`."""
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb((module, name, argument))))


async def stored(dsn: str, encoded: bytes) -> None:
    """Puts encoded bytes in the place of a stored value, with everything around it in order."""
    async with DeltaSaver.from_conn_string(dsn) as saver:
        checkpoint: Any = {"v": 4, "id": ID, "channel_values": {"value": "x" * 5000}, "channel_versions": {"value": 1}}
        await saver.aput(config(), checkpoint, {}, {"value": 1})
    connection = await asyncpg.connect(dsn)
    row = await connection.fetchrow("SELECT * FROM deltastore.delta_segments")
    assert row is not None
    binding = segment_binding(SegmentKind(row["kind"]), row["namespace"], row["checkpoint_id"])
    sealed = seal(pack_values([b"\x00" + encoded]), associated=binding)
    await connection.execute("UPDATE deltastore.delta_segments SET payload = $1", sealed)
    await connection.close()


async def value(dsn: str, serde: JsonPlusSerializer | None) -> Any:
    async with DeltaSaver.from_conn_string(dsn, serde=serde) as saver:
        found = await saver.aget_tuple(config())
        assert found is not None
        return found.checkpoint["channel_values"]["value"]


@pytest.fixture
def module_with_side_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that can be imported and tells if it was."""
    mark = tmp_path / "imported"
    (tmp_path / "planted_module.py").write_text(f"open({str(mark)!r}, 'w')\nclass Order: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return mark


async def test_a_module_is_not_imported_by_a_load(database_dsn: str, module_with_side_effect: Path) -> None:
    await stored(database_dsn, call("planted_module", "Order", 1))
    with pytest.raises(UnreadableValueError, match=r"planted_module\.Order"):
        await value(database_dsn, None)
    assert not module_with_side_effect.exists()  # noqa: ASYNC240 - a look at a local folder
    assert "planted_module" not in sys.modules


@pytest.mark.parametrize(
    ("module", "name", "argument"),
    [
        ("builtins", "eval", "__import__('sys').modules.__setitem__('planted_by_eval', 1)"),
        ("builtins", "exec", "import sys; sys.modules['planted_by_eval'] = sys"),
        ("os", "system", "exit 3"),
        ("subprocess", "Popen", ["false"]),
        ("pickle", "loads", b"cos\nsystem\n(S'exit 1'\ntR."),
        ("importlib", "import_module", "planted_module"),
        ("builtins", "open", "/etc/passwd"),
    ],
)
async def test_no_callable_is_called(database_dsn: str, module: str, name: str, argument: Any) -> None:
    await stored(database_dsn, call(module, name, argument))
    with pytest.raises(UnreadableValueError, match=module) as caught:
        await value(database_dsn, None)
    assert "channel 'value'" in str(caught.value)
    assert caught.value.hint
    assert "planted_by_eval" not in sys.modules


@pytest.mark.parametrize("encoded", [call("os", "getpid", 1), call(__name__, "Order", {"number": 3}, 2)])
async def test_strict_is_what_langgraph_calls_strict(
    database_dsn: str, encoded: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """With an allow-list of LangGraph's own, its rule decides: the data in place of the object, and a warning."""
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    await stored(database_dsn, encoded)
    assert await value(database_dsn, strict) == strict.loads_typed(("msgpack", encoded))
    assert caplog.records


async def test_an_allow_list_allows_what_it_names(database_dsn: str) -> None:
    await stored(database_dsn, call(__name__, "Order", {"number": 3}, 2))
    assert await value(database_dsn, JsonPlusSerializer(allowed_msgpack_modules=[(__name__, "Order")])) == Order(3)
    assert await value(database_dsn, None) == Order(3), "data classes of loaded modules are built by default"
