"""Options, commands and public names are documented, and documented ones exist."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import deltastore
from deltastore import DeltaSaver
from deltastore.cli.commands import deltastore as command_line
from deltastore.errors import DeltastoreError
from tests.docs.pages import ROOT

CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
MODULES = sorted((ROOT / "deltastore").rglob("*.py"))


def test_options_and_their_defaults() -> None:
    documented: dict[str, set[tuple[str, str]]] = {"from_conn_string": set(), "pool": set(), "in_memory": set()}
    for name, default, *ways in re.findall(
        r"^\| `(\w+)` \| `(.*?)` \| (.*?) \| (.*?) \| (.*?) \|", CONFIGURATION, re.MULTILINE
    ):
        for way, marked in zip(documented, ways, strict=True):
            if marked.strip() == "yes":
                documented[way].add((name, default))
    makers: dict[str, Callable[..., object]] = {
        "from_conn_string": DeltaSaver.from_conn_string,
        "pool": DeltaSaver,
        "in_memory": DeltaSaver.in_memory,
    }
    for way, maker in makers.items():
        parameters = inspect.signature(maker).parameters.values()
        options = {
            (each.name, repr(each.default)) for each in parameters if each.default is not inspect.Parameter.empty
        }
        assert documented[way] == options, way


def commands(command: click.Command, path: str = "deltastore") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, f"{path} {name}")
    else:
        yield path, command


@pytest.mark.parametrize(("path", "command"), [*commands(command_line)], ids=str)
def test_commands_and_their_options(path: str, command: click.Command) -> None:
    general, *sections = re.split(r"^## ", COMMANDS, flags=re.MULTILINE)
    [section] = [section for section in sections if section.startswith(path + "\n")]
    for parameter in command.params:
        for option in parameter.opts if isinstance(parameter, click.Option) else []:
            assert f"`{option}" in section + general, f"{option} of {path} is not documented"
    for option in re.findall(r"`(--[a-z-]+)", section):
        assert option in [each for parameter in command.params for each in parameter.opts], f"{path} has no {option}"


def test_documented_commands_exist() -> None:
    known = [path for path, _ in commands(command_line)]
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for used in re.findall(
            r"(?:`|\$ |^## )(deltastore [a-z]+(?: [a-z]+)?)", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            assert any(path.startswith(used) or used.startswith(path) for path in known), f"{page.name}: {used}"


def error_classes(root: type[DeltastoreError] = DeltastoreError) -> Iterator[type[DeltastoreError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == "deltastore.errors":
            yield from error_classes(child)


NOT_ERRORS = {"DeltaSaver", "RetentionPolicy", "RetentionReport", "RetentionRule"}


def test_exit_codes_and_errors() -> None:
    for code, name in re.findall(r"^\| (\d) \| .*?\(`(\w+)`\)", COMMANDS, re.MULTILINE):
        assert getattr(deltastore, name).exit_code == int(code)
    assert {each.__name__ for each in error_classes()} | NOT_ERRORS == set(deltastore.__all__)


def public(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The module, its public classes and functions, and the public methods of the former."""
    yield "the module", tree
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.name, node
            for child in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith("_"):
                    yield f"{node.name}.{child.name}", child


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_public_names_have_docstrings(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    for name, node in public(ast.parse(text) if text else ast.parse('"""Empty."""')):
        assert ast.get_docstring(node), f"{name} has no docstring"  # type: ignore[arg-type]
