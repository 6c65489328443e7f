"""`deltastore demo`, on small conversations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from deltastore.demo.conversation import load
from deltastore.errors import InvalidConfigError
from tests.cli.conftest import Run

RECORDED: list[dict[str, Any]] = [
    {"role": "system", "content": "You help."},
    {"role": "user", "content": "Where is my parcel?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"parcel": 1}'}},
            {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": '{"parcel": 2}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": '{"place": "Graz"}'},
    {"role": "tool", "tool_call_id": "call_2", "name": "look", "content": '{"place": "Linz"}'},
    {"role": "assistant", "content": "In Graz and Linz."},
    {"role": "user", "content": "Thanks"},
    {"role": "user", "content": "and bye."},
    {"role": "assistant", "content": "Bye."},
    {"role": "user", "content": "(no answer)"},
]


def trace_in(folder: Path, *lines: object) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


@pytest.mark.parametrize("with_trace", [pytest.param(False, marks=pytest.mark.slow), True])
def test_demo(run: Run, tmp_path: Path, empty_database_dsn: str, with_trace: bool) -> None:
    options = ["--trace", trace_in(tmp_path, {"messages": RECORDED})] if with_trace else []
    ended = run("demo", "--turns", 6, "--json", "--dsn", empty_database_dsn, *options)
    assert ended.code == 0, ended.error
    rows = json.loads(ended.output)
    assert [(row["graph"], row["saver"]) for row in rows] == [
        ("ordinary", "stock saver"),
        ("ordinary", "deltastore"),
        ("DeltaChannel", "stock saver"),
        ("DeltaChannel", "deltastore"),
    ]
    assert {row["checkpoints"] for row in rows} == {6 * (5 if not with_trace else 4)}
    assert all(row["stored_bytes"] > 0 and row["load_ms"] > 0 for row in rows)
    assert ended.error.count("kill -9 of process") == 2
    source = "2 turns recorded in trace.jsonl, repeated" if with_trace else "text from the Python standard library"
    assert source in ended.error
    assert "\x1b" not in ended.error
    assert max(map(len, ended.error.splitlines())) <= 80


def test_recorded_messages_come_in_answered_turns(tmp_path: Path) -> None:
    path = trace_in(tmp_path, {"messages": RECORDED}, "", {"messages": RECORDED[1:6]})
    conversation = load(path, 3)
    kinds = [message.type for message in conversation.messages]
    answered = ["human", "ai", "tool", "tool", "ai"]
    assert kinds == ["system", *answered, "human", "human", "ai", *answered]
    assert conversation.starts == (0, 6, 9)
    assert [message.text for message in conversation.inputs(6)] == ["Thanks", "and bye."]
    assert len({message.id for message in conversation.messages}) == len(kinds)
    assert conversation == load(path, 3)


def test_gzip_trace(tmp_path: Path) -> None:
    plain = trace_in(tmp_path, {"messages": RECORDED})
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert load(packed, 2).messages == load(plain, 2).messages


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["{"], "line 1 is no conversation"),
        (['{"messages": [{"role": "user", "content": "x"}, {"role": "nobody", "content": "x"}]}'], "line 1"),
        (['{"messages": 1}'], "line 1"),
        (["[]"], "line 1"),
        (['{"messages": []}', '{"conversation": []}'], "line 2"),
        ([], "holds no answered turn"),
        (['{"messages": [{"role": "user", "content": "x"}]}'], "holds no answered turn"),
    ],
)
def test_bad_traces(run: Run, tmp_path: Path, lines: list[str], text: str) -> None:
    ended = run("demo", "--trace", trace_in(tmp_path, *lines))
    assert ended.code == 2
    assert text in ended.error
    assert ended.error.count("\n") == 1


def test_missing_trace(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="cannot be read"):
        load(tmp_path / "missing", 1)


def test_library_text_does_not_repeat() -> None:
    messages = load(None, 200).messages
    assert len(messages) == 800
    texts = [message.text for message in messages if message.text]
    assert len(texts) == len(set(texts)) == 600
