"""The default serializer builds data of loaded classes and runs nothing else that stored bytes name."""

from __future__ import annotations

import dataclasses
import enum
import sys
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel

from deltastore import DeltaSaver, UnreadableValueError
from deltastore.langgraph.serializer import LoadedTypesSerializer


class Model(BaseModel):
    """Stands for a user's model."""

    number: int = 1


@dataclasses.dataclass
class Data:
    """Stands for a user's dataclass."""

    text: str = "x"


class Named(NamedTuple):
    """Stands for a user's named tuple."""

    left: int = 1


class Colour(enum.StrEnum):
    """Stands for a user's enum."""

    RED = "red"


class Holder:
    """A class that no serializer writes."""


def crafted(code: int, module: str, name: str, argument: Any) -> tuple[str, bytes]:
    payload = ormsgpack.Ext(code, ormsgpack.packb((module, name, argument)))
    return "msgpack", ormsgpack.packb([1, {"deep": payload}])


@pytest.mark.parametrize(
    "value",
    [Model(), Data(), Named(), Colour.RED, AIMessage("hi"), Send("n", 1), Interrupt(1, id="i"), Command(goto="x"),
     Overwrite([1])],
)  # fmt: skip
def test_data_comes_back_as_from_langgraphs_serializer(value: Any) -> None:
    ours, theirs = LoadedTypesSerializer(), JsonPlusSerializer()
    data = ours.dumps_typed([value])
    assert data == theirs.dumps_typed([value])
    assert ours.loads_typed(data) == theirs.loads_typed(data)
    assert type(ours.loads_typed(data)[0]) is type(theirs.loads_typed(data)[0])


@pytest.mark.parametrize("code", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "subprocess.Popen", f"{__name__}.Holder"])
def test_what_is_not_data_is_neither_called_nor_turned_into_data(code: int, name: str, tmp_path: Path) -> None:
    module, _, attribute = name.rpartition(".")
    argument: Any = f"touch {tmp_path}/ran"
    argument = {1: (argument,), 2: {"command": argument}, 4: {"a": argument}, 5: {"a": argument}}.get(code, argument)
    with pytest.raises(UnreadableValueError, match=name.replace(".", r"\.")):
        LoadedTypesSerializer().loads_typed(crafted(code, module, attribute, argument))
    assert not list(tmp_path.iterdir())


def test_no_module_is_loaded_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('loaded')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnreadableValueError, match=r"trap\.Model"):
        LoadedTypesSerializer().loads_typed(crafted(5, "trap", "Model", {}))
    assert "trap" not in sys.modules


def test_a_class_that_is_gone_from_its_module_comes_back_as_its_data() -> None:
    assert LoadedTypesSerializer().loads_typed(crafted(5, __name__, "Gone", {"a": 1})) == [1, {"deep": {"a": 1}}]


def test_a_refusal_is_forgotten_by_the_next_load() -> None:
    serializer = LoadedTypesSerializer()
    with pytest.raises(UnreadableValueError):
        serializer.loads_typed(crafted(0, "os", "system", "true"))
    assert serializer.loads_typed(serializer.dumps_typed([1])) == [1]


def test_it_is_the_default_and_strict_mode_is_langgraphs() -> None:
    assert type(DeltaSaver.in_memory().serde) is LoadedTypesSerializer
    strict = LoadedTypesSerializer(allowed_msgpack_modules=None)
    assert strict.loads_typed(strict.dumps_typed([Data()])) == [{"text": "x"}]
    extended = strict.with_msgpack_allowlist([Data])
    assert extended.loads_typed(strict.dumps_typed([Data()])) == [Data()]
