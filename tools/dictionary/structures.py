"""Payloads as deltastore stores them (`deltastore/core/payload.py`), with random content."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import ormsgpack
from dictionary.messages import human, message, tool
from dictionary.random_text import RandomText
from langchain_core.documents import Document
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Interrupt, Overwrite, Send

_NODES = (
    "agent",
    "tools",
    "model",
    "call_model",
    "chatbot",
    "supervisor",
    "researcher",
    "planner",
    "executor",
    "retrieve",
    "generate",
    "grade",
    "route",
    "human",
    "human_review",
    "summarize",
    "summarize_conversation",
    "assistant",
    "coder",
    "writer",
    "critic",
    "router",
    "SummarizationMiddleware.before_model",
    "TodoListMiddleware.after_model",
    "HumanInTheLoopMiddleware.after_model",
    "PatchToolCallsMiddleware.before_agent",
)
_CHANNELS = (
    "messages",
    "todos",
    "files",
    "documents",
    "question",
    "answer",
    "query",
    "results",
    "summary",
    "context",
    "plan",
    "next",
    "remaining_steps",
    "structured_response",
    "jump_to",
    "thread_model_call_count",
    "run_model_call_count",
    "sender",
    "user_info",
    "past_steps",
    "is_last_step",
    "__start__",
    "__pregel_tasks",
    "__interrupt__",
    "__resume__",
    "__error__",
    "__return__",
    "__no_writes__",
    "__scheduled__",
    "__previous__",
)


def _value(text: RandomText, serializer: JsonPlusSerializer) -> bytes:
    """A value of a channel that is no message."""
    built = text.pick(
        Document(text.prose(4), id=text.uuid(), metadata={"source": "https://www.example.com/docs/", **text.record()}),
        Send(_node(text), {"messages": [human(text)], "query": text.prose(1)}),
        Send(
            "tools",
            {
                "__type": "tool_call_with_context",
                "tool_call": {
                    "name": "search",
                    "args": {"query": text.prose(1)},
                    "id": "call_" + text.letters(24),
                    "type": "tool_call",
                },
                "state": {"messages": []},
            },
        ),
        Interrupt(
            value={
                "question": text.prose(1),
                "action_requests": [
                    {
                        "name": "execute",
                        "args": {"command": "ls"},
                        "description": "Tool execution requires approval\n\nTool: ",
                    }
                ],
                "review_configs": [{"action_name": "execute", "allowed_decisions": ["approve", "edit", "reject"]}],
            },
            id=text.hex(32),
        ),
        Command(update={"messages": [tool(text)]}, goto=text.pick(*_NODES)),
        Overwrite([human(text)]),
        [
            {"content": text.prose(1), "status": text.pick("pending", "in_progress", "completed")}
            for _ in range(text.number(1, 5))
        ],
        {
            "content": text.code().splitlines(),
            "created_at": text.time(),
            "modified_at": text.time(),
            "encoding": "utf-8",
        },
        {
            "at": datetime.fromisoformat(text.time()),
            "by": UUID(text.uuid()),
            "kinds": {text.letters(4)},
            "path": Path("/data"),
        },
        {"amount": Decimal("12.50"), "waits": timedelta(text.number(0, 9)), "seen": (1, 2), "recent": deque([1])},
        text.record(),
        text.record(),
        text.prose(),
        text.code(),
    )
    return _item(serializer, built)


def _node(text: RandomText) -> str:
    return str(text.pick("agent", "tools", "model", text.pick(*_NODES)))


def _version(text: RandomText, step: int) -> int:
    """Versions are growing integers with random low bits."""
    return step << 32 | text.number(0, 2**32 - 1)


def anchor(text: RandomText, serializer: JsonPlusSerializer) -> bytes:
    """A checkpoint in full: the versions of its channels, what nodes have seen, and the input that began it."""
    nodes = [_node(text) for _ in range(text.number(1, 4))]
    others = text.random.sample(_CHANNELS, text.number(0, 4))
    channels = ["__start__", "messages", *others, *(f"branch:to:{node}" for node in nodes)]
    step = text.number(1, 200)
    versions = {channel: _version(text, step) for channel in channels}
    seen: dict[str, Any] = {"__input__": {}, "__start__": {"__start__": _version(text, 1)}}
    seen |= {node: {f"branch:to:{node}": _version(text, step)} for node in nodes}
    whole_header = [text.time(), versions, seen, ["__start__"], {"v": b"\x00\x04"}]
    runs = [
        [1, 1, [[step], [2] * step, [0] * step]],
        [0, 2, [[[None], [_item(serializer, human(text))], ["messages"]]]],
    ]
    return ormsgpack.packb([1, [1, step], True, whole_header, runs, []])


def delta(text: RandomText, serializer: JsonPlusSerializer) -> bytes:
    """The checkpoint of an input: what it changed, with the input itself."""
    step = text.number(1, 900)
    changed = [text.number(100, 9000), [[_version(text, step), [0]]], [0]]
    content = [[None], [_item(serializer, human(text))], ["messages"]]
    return ormsgpack.packb([0, [0, step], [], changed, [], [[0, 2, 0, content]]])


def writes(text: RandomText, serializer: JsonPlusSerializer) -> bytes:
    """The writes of a task: its id, its path, channels, and the items that it wrote."""
    channel = text.pick("messages", "messages", "messages", *_CHANNELS)
    branch = [1, f"branch:to:{_node(text)}", 0, [None], [b"\x01"]]
    if channel == "messages":
        items = [_item(serializer, message(text)) for _ in range(text.pick(1, 1, 1, 1, 2))]
    else:
        items = [_value(text, serializer)]
    written = [[0, channel, int(channel == "messages"), [False] * len(items), list(range(len(items)))]]
    path = text.pick(
        f"~__pregel_pull, {_node(text)}", f"~__pregel_push, {text.number(0, 9):010}, {text.number(0, 9):010}"
    )
    return ormsgpack.packb([text.random.randbytes(16), path, [*written, branch][: text.pick(1, 2)], items])


def metadata(text: RandomText, serializer: JsonPlusSerializer) -> bytes:
    """Metadata of checkpoints."""
    built: dict[str, Any] = {
        "source": text.pick("input", "loop", "update", "fork"),
        "step": text.number(-1, 500),
        "parents": text.pick({}, {"": text.uuid()}),
        "run_id": text.uuid(),
        "thread_id": text.uuid(),
        "user_id": text.letters(8),
        "assistant_id": text.uuid(),
        "graph_id": "agent",
        "langgraph_version": "1.2.0",
        "langgraph_plan": "developer",
        "langgraph_host": "self-hosted",
        "langgraph_api_url": "http://127.0.0.1:2024",
        "langgraph_request_id": text.uuid(),
        "langgraph_auth_user_id": "",
        "created_by": "system",
        "run_attempt": 1,
        "counters_since_delta_snapshot": {"messages": [text.number(0, 50), text.number(0, 50)]},
        "ls_integration": "langchain_create_agent",
        "writes": None,
        "run_name": "LangGraph",
        "tags": [],
        "checkpoint_ns": f"{text.pick(*_NODES)}:{text.uuid()}",
    }
    kept = {key: built[key] for key in text.random.sample(sorted(built), text.number(2, 10))}
    return _item(serializer, kept)


def values(text: RandomText, serializer: JsonPlusSerializer) -> bytes:
    """Items that a super-step brought and no task wrote."""
    items = [_item(serializer, message(text)) for _ in range(text.pick(1, 1, 2, 3))]
    return ormsgpack.packb(text.pick(items, [_value(text, serializer)]))


def _item(serializer: JsonPlusSerializer, encoded: Any) -> bytes:
    return b"\x00" + serializer.dumps_typed(encoded)[1]
