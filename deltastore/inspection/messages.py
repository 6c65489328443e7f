"""Messages of a conversation in one form, whatever they are stored as.

A message may be an object of LangChain, such an object that was not opened, or a dict in the form of OpenAI (`role`) or
of LangChain (`type`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage

from deltastore.inspection.values import Unopened, plain

ROLES = {
    "human": "human", "user": "human", "ai": "ai", "assistant": "ai", "system": "system", "developer": "system",
    "tool": "tool", "function": "tool", "remove": "remove", "chat": "chat",
}  # fmt: skip
"""Roles and types to the word that is shown."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: the tool, its arguments as text, and its id."""

    name: str
    arguments: str
    call_id: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: `human`, `ai`, `system`, `tool`, or another word.
        name: Who or which tool; empty for none.
        text: The text of its content; other parts of it as a note in brackets.
        calls: Its tool calls.
        message_id: Its id; empty for none.
        answers: The call that a tool's message answers; empty for none.
        status: `error` for a tool that failed; else empty.
    """

    role: str
    name: str
    text: str
    calls: tuple[Call, ...]
    message_id: str
    answers: str
    status: str


def is_message(value: Any) -> bool:
    """Whether a value is a message of one of the known forms."""
    return message_of(value) is not None


def message_of(value: Any) -> Message | None:
    """A value as a message, or None."""
    if isinstance(value, BaseMessage):
        return _message(vars(value), value.type)
    if isinstance(value, Unopened):
        is_langchain = value.type_name.startswith("langchain_core.messages.")
        return _message(value.value, value.value.get("type")) if is_langchain and _is_dict(value.value) else None
    if _is_dict(value) and "content" in value:
        role = value.get("role", value.get("type"))
        return _message(value, role) if isinstance(role, str) and role in ROLES else None
    return None


def text_of(content: Any) -> str:
    """The text of a message's content: a text, or blocks of which some are texts."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list | tuple):
        return json.dumps(plain(content), ensure_ascii=False)
    return "\n".join(filter(None, map(_block, content)))


def _is_dict(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _message(fields: Mapping[str, Any], role: Any) -> Message:
    return Message(
        ROLES.get(role, str(role)),
        _text(fields.get("name")) or (_text(fields.get("role")) if role == "chat" else ""),
        text_of(fields.get("content")),
        tuple(_calls(fields)),
        _text(fields.get("id")),
        _text(fields.get("tool_call_id")),
        "error" if fields.get("status") == "error" else "",
    )


def _block(block: Any) -> str:
    if isinstance(block, str):
        return block
    if not _is_dict(block):
        return json.dumps(plain(block), ensure_ascii=False)
    kind = str(block.get("type"))
    if isinstance(block.get("text"), str):
        return str(block["text"])
    if kind in ("tool_use", "tool_call"):
        return ""  # among the tool calls
    return f"[{kind}]"


def _calls(fields: Mapping[str, Any]) -> Iterator[Call]:
    given = fields.get("tool_calls") or ()
    for call in given if isinstance(given, list | tuple) else ():
        parts = call.value if isinstance(call, Unopened) else call
        if not _is_dict(parts):
            continue
        function = parts.get("function")
        inner = function if _is_dict(function) else parts
        arguments = inner.get("args", inner.get("arguments"))
        text = arguments if isinstance(arguments, str) else json.dumps(plain(arguments), ensure_ascii=False)
        yield Call(_text(inner.get("name")), text, _text(parts.get("id")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
