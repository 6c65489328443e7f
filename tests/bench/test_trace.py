from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench.errors import UsageError
from bench.workloads import make_workload
from bench.workloads.replay import read_trace

SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
TALK: list[dict[str, Any]] = [
    SYSTEM,
    {"role": "user", "content": "Is it blue?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": '{"colour": "blue"}'},
    {"role": "assistant", "content": "It is."},
    {"role": "user", "content": "Thanks."},
    {"role": "assistant", "content": "Bye."},
    {"role": "user", "content": "###STOP###"},
]


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_turns_begin_with_user_messages_and_the_unanswered_one_is_left_out(tmp_path: Path):
    turns = read_trace(write(tmp_path / "trace.jsonl", {"messages": TALK}))
    assert [[message.type for message in turn] for turn in turns] == [
        ["system", "human", "ai", "tool", "ai"],
        ["human", "ai"],
    ]
    assert turns[0][2].tool_calls[0]["args"] == {"at": "sky"}  # type: ignore[attr-defined]


def test_a_repeated_system_message_is_dropped_and_a_new_one_kept(tmp_path: Path):
    other = [{"role": "system", "content": "Be rude."}, *TALK[1:]]
    trace = write(tmp_path / "trace.jsonl", {"messages": TALK}, {"messages": TALK}, "", {"messages": other})
    assert [turn[0].type for turn in read_trace(trace)] == ["system", "human", "human", "human", "system", "human"]


def test_gzip_is_read_whatever_the_name(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(gzip.compress(json.dumps({"messages": TALK}).encode()))
    assert len(read_trace(path)) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{broken", "line 2: not JSON (Expecting property name enclosed in double quotes at column 2); expected {"),
        ("9" * 5_000, "line 2: not JSON (Exceeds the limit"),
        ('{"conversation": [], "id": 1}', "line 2: not a conversation: found the keys conversation, id; expected {"),
        ("{}", "line 2: not a conversation: found the keys none"),
        ("[1, 2]", "line 2: not a conversation: found a list"),
        ('{"messages": []}', "line 2: no messages"),
        ('{"messages": "hello"}', "line 2: no messages"),
        ('{"messages": ["hello"]}', "line 2, message 1: not an OpenAI chat message"),
        ('{"messages": [{"role": "wizard", "content": "x"}]}', "line 2, message 1: not an OpenAI chat message"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, said: str):
    trace = write(tmp_path / "trace.jsonl", {"messages": TALK}, line)
    with pytest.raises(UsageError) as caught:
        read_trace(trace)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_cut_short_or_empty_is_named(tmp_path: Path):
    cut = tmp_path / "cut.gz"
    packed = gzip.compress(json.dumps({"messages": TALK}).encode())
    cut.write_bytes(packed[:-20])
    broken = tmp_path / "broken.gz"
    broken.write_bytes(packed[:20] + bytes(40) + packed[60:])
    for path in (tmp_path / "none.jsonl", cut, broken, tmp_path, write(tmp_path / "empty.jsonl")):
        with pytest.raises(UsageError, match=path.name):
            read_trace(path)


def test_text_that_is_not_utf8_is_named_with_its_place(tmp_path: Path):
    path = write(tmp_path / "latin.jsonl", {"messages": TALK})
    path.write_bytes(path.read_bytes() + b'{"messages": "\xff\xfe"}')
    with pytest.raises(
        UsageError, match=r"latin\.jsonl, line 2: cannot be read: expected UTF-8 text, found 0xff at byte 15"
    ):
        read_trace(path)


def test_a_gz_file_that_is_no_gzip_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match=r"trace\.jsonl\.gz is no gzip file: expected JSONL in gzip"):
        read_trace(write(tmp_path / "trace.jsonl.gz", {"messages": TALK}))


def test_a_replay_says_how_many_turns_are_recorded(tmp_path: Path):
    trace = write(tmp_path / "trace.jsonl", {"messages": TALK})
    assert make_workload("replay", seed=1, trace=trace).summary.startswith("2 turns of recorded conversations")


def test_a_replay_needs_a_trace():
    with pytest.raises(UsageError, match="--trace"):
        make_workload("replay", seed=1, trace=None)
