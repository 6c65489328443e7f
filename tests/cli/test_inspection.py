"""`deltastore threads`, `history`, `show`, `diff`, `copy`, `delete` and `prune`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from rich.cells import cell_len

from deltastore import DeltaSaver
from deltastore.cli.graph import Graph
from tests.cli.conftest import Ended, Run
from tests.support.puts import Puts, uuid_of

LONG = "A long text with 漢字 and an escape \x1b[31m sequence. " * 40
ANSWER = {"name": "look", "args": {"parcel": 1, "why": "x" * 200}, "id": "c1", "type": "tool_call"}
THREAD = "customer 42 " + "ü" * 90


@pytest.fixture
def dsn(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with some threads, one of them with forks."""
    monkeypatch.setenv("DELTASTORE_DSN", database_dsn)
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        for number in range(3):
            Puts(saver, f"small {number}").put(None, {"n": number}, metadata={"batch": number % 2, "user": "u"})
        puts = Puts(saver, THREAD)
        question = HumanMessage("Where is it?", id="1")
        call = AIMessage("", id="2", tool_calls=[ANSWER])
        first = puts.put(None, {"messages": [question], "branch:to:agent": None}, metadata={"source": "input"})
        second = puts.put(first, {"messages": [question, call], "branch:to:tools": None})
        tool = ToolMessage(LONG, id="3", tool_call_id="c1", name="look")
        third = puts.put(second, {"messages": [question, call, tool], "files": {"long": LONG, "more": list(range(99))}})
        puts.put(second, {"messages": [question, call, AIMessage("No.", id="4")], "notes": []})
        puts.write(third, [("__interrupt__", [{"ask": "refund?"}])], task="task 1", path="~__pregel_pull, refund")
    return database_dsn


def ran(ended: Ended) -> str:
    assert ended.code == 0, ended.error
    assert "\x1b" not in ended.output
    return ended.output


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("command", ["threads", "history", "show", "diff", "show --full"])
def test_no_line_is_wider_than_the_screen(
    run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch, width: int, command: str
) -> None:
    del dsn
    monkeypatch.setenv("COLUMNS", str(width))
    more = {"threads": [], "diff": [THREAD, uuid_of(2), uuid_of(3)]}.get(command, [THREAD])
    lines = ran(run(*command.split(), *more)).splitlines()
    assert len(lines) > 3
    wide = [line for line in lines if cell_len(line) > width and THREAD not in line and "--after" not in line]
    assert not wide


def test_threads(run: Run, dsn: str) -> None:
    del dsn
    lines = ran(run("threads")).splitlines()
    assert lines[0].split() == ["step", "source", "saved", "(UTC)", "pinned", "thread"]
    at = lines[0].index("thread")
    assert {line[at:] for line in lines[1:]} == {THREAD, "small 0", "small 1", "small 2"}
    assert lines[1][at:] == THREAD, "ids are whole"
    found = [json.loads(line) for line in ran(run("threads", "--json", "--filter", "batch=0")).splitlines()]
    assert sorted(each["thread_id"] for each in found) == ["small 0", "small 2"]
    assert found[0]["metadata"] == {"batch": 0, "user": "u", "parents": {}}
    page = ran(run("threads", "--limit", 2, "--filter", "user=u")).splitlines()
    assert len(page) == 4
    rest = ran(run("threads", "--filter", "user=u", "--after", page[-1].split()[-1])).splitlines()
    assert len(rest) == 2
    assert ran(run("threads", "--filter", "user=nobody")) == "no threads\n"
    assert ran(run("pin", "small 1")) == "'small 1' is pinned: retention leaves it alone\n"
    [_, pinned] = ran(run("threads", "--pinned")).splitlines()
    assert pinned[at - 7 :] == "pinned small 1"
    assert json.loads(ran(run("pin", "small 1", "--off", "--json"))) == {"thread": "small 1", "pinned": False}
    assert ran(run("threads", "--pinned")) == "no threads\n"


def test_history(run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    del dsn
    monkeypatch.delenv("COLUMNS", raising=False)
    piped = ran(run("history", THREAD)).splitlines()
    assert [each.split()[0] for each in piped] == ["*", "|", "|/", "*", "*"]
    assert uuid_of(3) in piped[1]
    assert piped[1].endswith("→ agent, tools  messages +1, files +2  1 pending write"), "a pipe gets whole lines"
    monkeypatch.setenv("COLUMNS", "80")
    lines = ran(run("history", THREAD)).splitlines()
    assert lines == [
        "* 00000004-0000-4000    4 loop   → agent, tools  messages +1, notes new",
        "| * 00000003-0000-4000    3 loop   interrupted → agent, tools  messages +1, fil…",
        "|/",
        "* 00000002-0000-4000    2 loop   → agent, tools  messages +1",
        "* 00000001-0000-4000    1 input  → agent  messages +1",
    ]
    found = [json.loads(line) for line in ran(run("history", THREAD, "--json", "--limit", 2)).splitlines()]
    assert [(each["checkpoint_id"], each["parent_id"]) for each in found] == [
        (uuid_of(4), uuid_of(2)),
        (uuid_of(3), uuid_of(2)),
    ]
    head, only = ran(run("history", THREAD, "--namespaces")).splitlines()
    assert head.split() == ["checkpoint", "saved", "(UTC)", "namespace"]
    assert only.endswith("(root)")
    assert ran(run("history", THREAD, "--namespace", "x")) == "no checkpoints\n"


def test_show(run: Run, dsn: str) -> None:
    del dsn
    text = ran(run("show", THREAD, "--at", "00000003"))
    for part in (
        f"thread      {THREAD}",
        f"checkpoint  {uuid_of(3)}",
        "messages  3 messages ──",
        "  human  Where is it?",
        '  ai     → look({"parcel": 1, "why": "xxx',
        "  tool   [look] A long text with 漢字 and an escape \\x1b[31m",
        "more lines",
        "files  2 keys ──",
        "pending writes  1 ──",
        "refund is interrupted: {'ask': 'refund?'}",
    ):
        assert part in text
    full = ran(run("show", THREAD, "--at", "00000003", "--full"))
    assert "more lines" not in full
    assert "x" * 60 in full
    assert full.count("x") > 200
    assert "98" in full
    only = ran(run("show", THREAD, "--at", "00000003", "--channel", "files"))
    assert "human" not in only
    found = json.loads(ran(run("show", THREAD, "--at", "00000003", "--json")))
    assert [each["channel"] for each in found["channels"]] == ["messages", "files"]
    assert found["channels"][1]["value"]["long"] == LONG
    assert found["status"] == "interrupted"


def test_diff(run: Run, dsn: str) -> None:
    del dsn
    text = ran(run("diff", THREAD, "00000003", "00000004"))
    for part in (
        f"{uuid_of(3)} → {uuid_of(4)}",
        "messages  1 added, 1 removed ──",
        "  + [2] ai: No.",
        "  - [2] tool: A long text",
        "files  removed ──",
        "notes  added ──",
    ):
        assert part in text
    assert "no channel differs" in ran(run("diff", THREAD, uuid_of(3), uuid_of(3)))
    found = json.loads(ran(run("diff", THREAD, uuid_of(1), uuid_of(2), "--json")))
    assert [item["how"] for item in found["channels"][0]["items"]] == ["added"]


def test_copy_prune_and_delete(run: Run, dsn: str) -> None:
    assert json.loads(ran(run("copy", THREAD, "copy", "--json"))) == {"source": THREAD, "target": "copy"}
    assert len(ran(run("history", "copy", "--json")).splitlines()) == 4
    assert run("copy", THREAD, "copy").code == 2
    assert ran(run("prune", "copy")).startswith("pruned 'copy'")
    assert len(ran(run("history", "copy", "--json")).splitlines()) == 1
    assert ran(run("delete", "copy", "--yes")) == "deleted 'copy'\n"
    with DeltaSaver.from_conn_string(dsn) as saver:
        assert saver.get_tuple({"configurable": {"thread_id": "copy"}}) is None


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, False), ("n\n", 1, True), ("", 1, True)])
def test_delete_asks(run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: bool) -> None:
    del dsn
    with pytest.MonkeyPatch.context() as patch:
        from io import StringIO

        patch.setattr(sys, "stdin", StringIO(answer))
        ended = run("delete", "small 1")
    assert (ended.code, "Delete thread 'small 1' for ever? [y/N]" in ended.error + ended.output) == (code, True)
    assert ("small 1" in ran(run("threads", "--json"))) is left


def test_a_reducer_and_a_module_of_the_current_folder(
    run: Run, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_graph_of_a_test.py").write_text(
        "from dataclasses import dataclass\n"
        "def extend(value, writes):\n    return [*value, *(each for write in writes for each in write)]\n"
        "@dataclass\nclass Ticket:\n    number: int\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    module: Any = importlib.import_module("my_graph_of_a_test")
    with DeltaSaver.from_conn_string(dsn) as saver:
        puts = Puts(saver, "d")
        counters = {"counters_since_delta_snapshot": {"log": [1, 1]}}
        puts.step(puts.put(None, {"ticket": module.Ticket(7)}), "log", ["a"], metadata=counters)
    del sys.modules["my_graph_of_a_test"]
    closed = ran(run("show", "d"))
    assert "not opened: my_graph_of_a_test.Ticket" in closed
    assert "my_graph_of_a_test.Ticket(number=7)" in closed
    assert "give --reducer log=package.module:function" in closed
    opened = ran(run("show", "d", "--import", "my_graph_of_a_test", "--reducer", "log=my_graph_of_a_test:extend"))
    assert "Ticket(number=7)" in opened
    assert "not opened" not in opened
    assert "log  1 item, DeltaChannel, folded" in opened


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["show", "small 1", "--at", "x"], "namespace (root) has no checkpoint 'x'"),
        (["show", "nobody"], "there is no thread 'nobody'"),
        (["history", "nobody"], "there is no thread 'nobody'"),
        (["diff", "small 1", "x", "y"], "has no checkpoint 'x'"),
        (["copy", "nobody", "x"], "there is no thread 'nobody'"),
        (["delete", "nobody", "--yes"], "there is no thread 'nobody'"),
        (["prune", "nobody"], "there is no thread 'nobody'"),
        (["threads", "--filter", "x"], "say --filter KEY=VALUE"),
        (["threads", "--filter", "step=1"], "cannot be found by step"),
        (["threads", "--after", "x"], "is no place"),
        (["show", "small 1", "--reducer", "x"], "say --reducer CHANNEL="),
        (["show", "small 1", "--reducer", "x=no_such_module:y"], "cannot be imported"),
        (["show", "small 1", "--import", "no_such_module"], "cannot be imported"),
        (["show", "small 1", "--serde", "os:nothing"], "cannot be imported"),
    ],
)
def test_errors_are_one_line(run: Run, dsn: str, arguments: list[str], text: str) -> None:
    del dsn
    ended = run(*arguments)
    assert ended.code == 2
    assert text in ended.error
    assert ended.error.count("\n") == 1
    assert ended.output == ""


def drawn(*nodes: tuple[str, str | None]) -> list[str]:
    graph, lines = Graph(), []
    for name, parent in nodes:
        before, below = graph.node(name, parent)
        lines += [f"{before} {name}", *below]
    return lines


def test_graph() -> None:
    assert drawn(("c", "b"), ("b", "a"), ("a", None)) == ["* c", "* b", "* a"]
    assert drawn(("d", "a"), ("c", "b"), ("b", "a"), ("a", None)) == ["* d", "| * c", "| * b", "|/", "* a"]
    forks = [(name, "a") for name in "edcb"]
    assert drawn(*forks, ("a", None)) == ["* e", "| * d", "|/", "| * c", "|/", "| * b", "|/", "* a"]
    assert drawn(("f", "a"), ("e", "b"), ("d", "a"), ("c", "d0"), ("b", None), ("d0", "a"), ("a", None)) == [
        "* f",
        "| * e",
        "| | * d",
        "|_|/",
        "| | * c",
        "| * | b",
        "|  /",
        "| * d0",
        "|/",
        "* a",
    ]
    assert drawn(("f", "b"), ("e", "a"), ("d", "c"), ("c", "b"), ("b", None), ("a", None)) == [
        "* f",
        "| * e",
        "| | * d",
        "| | * c",
        "|_|/",
        "* | b",
        " /",
        "* a",
    ]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_every_branch_of_a_drawn_tree_ends_at_its_parent(steps: list[int]) -> None:
    """Node `n` has the parent `n - step`; below zero it is a root. Lanes are followed from line to line."""
    parents = {number: number - step if 0 < step <= number else None for number, step in enumerate(steps)}
    graph, following = Graph(), dict[int, int]()
    for number in reversed(range(len(steps))):
        parent = parents[number]
        before, below = graph.node(str(number), None if parent is None else str(parent))
        column = before.index("*")
        assert before.count("*") == 1
        assert following.pop(column, number) == number
        assert number not in following.values()
        if parent is not None:
            following[column] = parent
        assert {at for at, sign in enumerate(before) if sign == "|"} == following.keys() - {column}
        for text in below:
            following = moved(text, following)
        assert len(following) == len(set(following.values()))
    assert following == {}


def moved(text: str, following: dict[int, int]) -> dict[int, int]:
    """Where lanes are after a line of slanted strokes: each goes one lane to the left, or along `_` to the next `|`."""
    after: dict[int, int] = {}
    for at, awaited in following.items():
        if at < len(text) and text[at] == "|":
            target = at
        else:
            assert text[at - 1] == "/"
            target = at - 2
            while target > 0 and text[target - 1] == "_":
                target -= 2
        assert after.get(target, awaited) == awaited
        after[target] = awaited
    return after


def test_an_archive_is_looked_at_without_a_database(
    run: Run, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("archive", THREAD, "--to", tmp_path, "--keep").code == 0
    before = [ran(run("history", THREAD)), ran(run("show", THREAD)), ran(run("diff", THREAD, uuid_of(1), uuid_of(3)))]
    monkeypatch.delenv("DELTASTORE_DSN")
    del dsn
    [file] = tmp_path.iterdir()
    on_file = ["--archive", str(file)]
    after = [
        ran(run("history", *on_file)),
        ran(run("show", *on_file)),
        ran(run("diff", THREAD, uuid_of(1), uuid_of(3), *on_file)),
    ]
    assert after == before
    assert run("show").code == run("show", "--archive", tmp_path / "nothing").code == 2


def test_an_encrypted_thread_needs_its_serializer(
    run: Run, database_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_keys_of_a_test.py").write_text(
        "from langgraph.checkpoint.serde.encrypted import EncryptedSerializer\n"
        "def serializer():\n    return EncryptedSerializer.from_pycryptodome_aes(key=b'0123456789abcdef')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    monkeypatch.setenv("DELTASTORE_DSN", database_dsn)
    keys: Any = importlib.import_module("my_keys_of_a_test")
    with DeltaSaver.from_conn_string(database_dsn, serde=keys.serializer()) as saver:
        puts = Puts(saver, "secret")
        puts.put(puts.put(None, {"n": ["hidden"]}), {"n": ["hidden", "more"]})
    more = {"threads": [], "history": ["secret"], "show": ["secret"], "diff": ["secret", uuid_of(1), uuid_of(2)]}
    for command, arguments in more.items():
        ended = run(command, *arguments)
        assert (ended.code, ended.error.count("\n")) == (4, 1), command
        ran(run(command, *arguments, "--serde", "my_keys_of_a_test:serializer"))
    assert "'hidden', 'more'" in ran(run("show", "secret", "--serde", "my_keys_of_a_test:serializer"))
    assert ran(run("prune", "secret", "--serde", "my_keys_of_a_test:serializer"))


def test_a_page_that_is_the_whole_list_says_nothing_of_more(run: Run, dsn: str) -> None:
    del dsn
    assert "--after" not in ran(run("threads", "--limit", 4))
    assert ran(run("threads", "--limit", 3)).splitlines()[-1].startswith("3 threads; for more --after ")
    assert len(ran(run("threads", "--limit", 3, "--json")).splitlines()) == 3
    assert len(ran(run("threads", "--limit", 0)).splitlines()) == 5
