"""What is stored beside messages: other values of channels, writes, headers of checkpoints, metadata."""

from __future__ import annotations

import json
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


def value(text: RandomText, serializer: JsonPlusSerializer) -> bytes:
    """A value of a channel that is no message."""
    built = text.pick(
        Document(text.prose(4), id=text.uuid(), metadata={"source": "https://www.example.com/docs/", **text.record()}),
        Send(text.pick(*_NODES), {"messages": [human(text)], "query": text.prose(1)}),
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
    return serializer.dumps_typed(built)[1]


def header(text: RandomText) -> bytes:
    """The versions of a checkpoint's channels and what nodes have seen."""
    nodes = text.random.sample(_NODES, text.number(1, 5))
    channels = [
        "__start__",
        "messages",
        *text.random.sample(_CHANNELS, text.number(0, 5)),
        *(f"branch:to:{node}" for node in nodes),
    ]
    version = text.number(1, 200)
    versions = {
        channel: text.pick(version, version + 1, f"{version:032}.0.{text.random.random():.16f}") for channel in channels
    }
    seen = {"__input__": {}, "__start__": {"__start__": 1}, **{node: {f"branch:to:{node}": version} for node in nodes}}
    return ormsgpack.packb([text.time(), versions, seen, text.random.sample(channels, 2), {"v": b"\x00\x04"}])


def writes(text: RandomText) -> bytes:
    """The writes of a task: its id, its path, channels and items."""
    node = text.pick(*_NODES)
    channel = text.pick(*_CHANNELS, f"branch:to:{text.pick(*_NODES)}")
    path = text.pick(f"~__pregel_pull, {node}", f"~__pregel_push, {text.number(0, 9):010}, {text.number(0, 9):010}", "")
    return ormsgpack.packb(
        [text.random.randbytes(16), path, [[0, channel, 1], [1, f"branch:to:{node}", 2]], [b"\x00\xc0"]]
    )


def metadata(text: RandomText) -> bytes:
    """Metadata of a checkpoint, as MessagePack or JSON."""
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
    packed: bytes = text.pick(ormsgpack.packb(kept), json.dumps(kept).encode())
    return packed


def segment(text: RandomText, serializer: JsonPlusSerializer, count: int) -> bytes:
    """Items that a super-step brought, together."""
    items = [b"\x00" + serializer.dumps_typed(message(text))[1] for _ in range(count)]
    return ormsgpack.packb(items)
