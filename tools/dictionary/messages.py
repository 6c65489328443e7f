"""Messages of every kind, mixed as in conversations with tools."""

from __future__ import annotations

from typing import Any

from dictionary.calls import tool_call
from dictionary.envelopes import MODELS
from dictionary.random_text import RandomText
from langchain_core.documents import Document
from langchain_core.messages import AnyMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage


def human(text: RandomText) -> HumanMessage:
    """What users write: text, sometimes blocks with images or files."""
    if text.number(0, 7) == 0:
        blocks: list[Any] = [
            {"type": "text", "text": text.prose(2)},
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA" + text.letters(40)},
            },
        ]
        return HumanMessage(blocks, id=text.uuid())
    return HumanMessage(text.prose(3), id=text.uuid(), name=text.pick(None, None, None, "user"))


def system(text: RandomText) -> SystemMessage:
    """What a program tells its model."""
    return SystemMessage("You are a helpful assistant. " + text.prose(12), id=text.uuid())


def tool(text: RandomText) -> ToolMessage:
    """The result of a tool, as text, as an error, or with an artifact."""
    call = tool_call(text, text.pick("call_", "toolu_01"), text.pick(22, 24))
    content: Any = text.tool_result()
    status, artifact = "success", None
    if text.number(0, 9) == 0:
        error = text.pick("ValueError", "KeyError", "TimeoutError")
        status, content = "error", f"Error: {error}('{text.prose(1)}')\n Please fix your mistakes."
    elif text.number(0, 9) == 0:
        artifact = [Document(text.prose(3), id=text.uuid(), metadata=text.record()) for _ in range(text.number(1, 2))]
    elif text.number(0, 9) == 0:
        content = [{"type": "text", "text": content, "id": "lc_" + text.uuid()}]
    return ToolMessage(
        content, tool_call_id=call["id"], name=call["name"], id=text.uuid(), status=status, artifact=artifact
    )


def removal(text: RandomText) -> RemoveMessage:
    """The mark that removes one message or all."""
    return RemoveMessage(id=text.pick(text.uuid(), "__remove_all__"))


def message(text: RandomText) -> AnyMessage | RemoveMessage:
    """One message of a random kind, as often as kinds occur in conversations with tools."""
    kind = text.number(0, 99)
    if kind < 45:
        built: AnyMessage | RemoveMessage = text.pick(*MODELS)(text)
    elif kind < 75:
        built = tool(text)
    elif kind < 95:
        built = human(text)
    else:
        built = text.pick(system, removal)(text)
    return built
