"""Message envelopes as the LangChain integrations of two providers return them: ids, tool calls, usage, metadata."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

Provider = Literal["openai", "anthropic"]
_CHARACTERS_PER_TOKEN = 4
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def characters_about(rng: random.Random, mean: int) -> int:
    """A length between 60 % and 140 % of the mean, so that no two messages are alike in size."""
    return int(mean * rng.uniform(0.6, 1.4))


class Envelopes:
    """Wraps text into messages of one provider; every id comes from the generator given, so runs can be repeated."""

    def __init__(self, rng: random.Random, provider: Provider = "openai") -> None:
        self._rng = rng
        self._provider: Provider = provider

    def human(self, text: str) -> HumanMessage:
        """A message of the user."""
        return HumanMessage(content=text, id=self.new_uuid())

    def tool_call(self, name: str, args: dict[str, Any]) -> ToolCall:
        """A call of a tool with a fresh id in the provider's form."""
        prefix = "call_" if self._provider == "openai" else "toolu_01"
        return ToolCall(name=name, args=args, id=prefix + self._letters(24), type="tool_call")

    def tool_result(self, call: ToolCall, text: str) -> ToolMessage:
        """The answer of a tool to a call."""
        return ToolMessage(content=text, name=call["name"], tool_call_id=call["id"] or "", id=self.new_uuid())

    def ai(self, text: str, *, prompt_characters: int, tool_calls: Sequence[ToolCall] = ()) -> AIMessage:
        """An answer of the model, with metadata as its integration fills them in."""
        output_tokens = 12 + (len(text) + 60 * len(tool_calls)) // _CHARACTERS_PER_TOKEN
        input_tokens = 350 + prompt_characters // _CHARACTERS_PER_TOKEN
        build = self._openai if self._provider == "openai" else self._anthropic
        return build(text, list(tool_calls), input_tokens, output_tokens)

    def new_uuid(self) -> str:
        """A random UUID, version 4, from the generator."""
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _letters(self, count: int) -> str:
        return "".join(self._rng.choices(_LETTERS, k=count))

    def _openai(self, text: str, calls: list[ToolCall], input_tokens: int, output_tokens: int) -> AIMessage:
        cached_tokens = input_tokens // 128 * 128
        total_tokens = input_tokens + output_tokens
        usage = {
            "completion_tokens": output_tokens,
            "prompt_tokens": input_tokens,
            "total_tokens": total_tokens,
            "completion_tokens_details": {
                "accepted_prediction_tokens": 0,
                "audio_tokens": 0,
                "reasoning_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
            "prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": cached_tokens},
        }
        metadata = {
            "token_usage": usage,
            "model_provider": "openai",
            "model_name": "gpt-4o-2024-08-06",
            "system_fingerprint": f"fp_{self._rng.getrandbits(40):010x}",
            "id": f"chatcmpl-{self._letters(29)}",
            "service_tier": "default",
            "finish_reason": "tool_calls" if calls else "stop",
            "logprobs": None,
        }
        return AIMessage(
            content=text,
            id=f"lc_run--{self.new_uuid()}-0",
            additional_kwargs={"refusal": None},
            response_metadata=metadata,
            tool_calls=calls,
            usage_metadata={
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "total_tokens": total_tokens,
                "input_token_details": {"audio": 0, "cache_read": cached_tokens},
                "output_token_details": {"audio": 0, "reasoning": 0},
            },
        )

    def _anthropic(self, text: str, calls: list[ToolCall], input_tokens: int, output_tokens: int) -> AIMessage:
        blocks: list[str | dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        blocks += [
            {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]} for call in calls
        ]
        cached_tokens = input_tokens * 9 // 10
        usage = {
            "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached_tokens,
            "input_tokens": input_tokens - cached_tokens,
            "output_tokens": output_tokens,
            "server_tool_use": None,
            "service_tier": "standard",
        }
        metadata = {
            "id": f"msg_01{self._letters(22)}",
            "model": "claude-sonnet-4-5-20250929",
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": usage,
            "model_name": "claude-sonnet-4-5-20250929",
            "model_provider": "anthropic",
        }
        return AIMessage(
            content=blocks if calls else text,
            id=f"lc_run--{self.new_uuid()}",
            response_metadata=metadata,
            tool_calls=calls,
            usage_metadata={
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "total_tokens": input_tokens + output_tokens,
                "input_token_details": {"cache_read": cached_tokens, "cache_creation": 0},
            },
        )
