"""The documentation cannot rot: its code runs, its links lead somewhere, and it names all that there is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs import pages
from tests.support.servers import database

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
WITH_PYTHON = [page for page in pages.PAGES if any(block.language == "python" for block in pages.blocks_of(page))]
LANGUAGES = {"python", "text", "console", "sql", "ini", "json", "toml", "yaml"}
ELSEWHERE = {"docs/benchmarks.md", "docs/howto/migrate.md", "CONTRIBUTING.md", "SECURITY.md"}


@pytest.fixture
def new_dsn(server_dsn: str, _template: str) -> Iterator[Callable[[], str]]:
    """Makes fresh databases, which are dropped at the end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(database(server_dsn))


@pytest.mark.parametrize("page", WITH_PYTHON, ids=pages.name_of)
def test_python_runs(page: Path, new_dsn: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages.run(page, new_dsn)


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if "://" in link or pages.name_of(target := (page.parent / path).resolve() if path else page) in ELSEWHERE:
            continue
        assert target.exists(), f"{pages.name_of(page)} links to {link}"
        if anchor:
            headings = HEADING.findall(target.read_text(encoding="utf-8"))
            assert anchor in {_anchor(heading) for heading in headings}, f"{pages.name_of(page)} links to {link}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_page_is_reached_from_the_index() -> None:
    index = (pages.ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = {(pages.ROOT / "docs" / link.partition("#")[0]).resolve() for link in LINK.findall(index)}
    assert set(pages.PAGES) - {pages.ROOT / "README.md", pages.ROOT / "docs" / "index.md"} <= linked


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name_of)
def test_blocks_have_a_known_language(page: Path) -> None:
    assert {block.language for block in pages.blocks_of(page)} <= LANGUAGES


def test_make_targets_and_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (pages.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in pages.PAGES:
        for used in re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text(encoding="utf-8")):
            assert used in targets, f"{pages.name_of(page)}: make {used}"


def test_name_and_version_are_those_of_the_package() -> None:
    project = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"## [{project['version']}]" in (pages.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for page in pages.PAGES:
        for name, extras in re.findall(r"pip install '?([\w-]+)(?:\[([\w,]+)\])?", page.read_text(encoding="utf-8")):
            assert name == project["name"]
            assert set(filter(None, extras.split(","))) <= project["optional-dependencies"].keys()
