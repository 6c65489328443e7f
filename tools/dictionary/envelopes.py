"""Messages of models as the LangChain integrations of the common providers return them, with random content."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dictionary.calls import tool_calls
from dictionary.random_text import RandomText
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
)


def _usage(text: RandomText, **details: Any) -> Any:
    given, made = text.number(20, 20_000), text.number(5, 1200)
    return {"input_tokens": given, "output_tokens": made, "total_tokens": given + made, **details}


def _openai_calls(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "id": call["id"],
            "function": {"arguments": json.dumps(call["args"]), "name": call["name"]},
            "type": "function",
        }
        for call in calls
    ]


def openai(text: RandomText) -> AIMessage:
    """Chat completions, as `langchain-openai` returns them."""
    calls = tool_calls(text, "call_", 24)
    usage: Any = _usage(
        text,
        input_token_details={"audio": 0, "cache_read": text.pick(0, 1024)},
        output_token_details={"audio": 0, "reasoning": text.pick(0, 192)},
    )
    metadata: dict[str, Any] = {
        "token_usage": {
            "completion_tokens": usage["output_tokens"],
            "prompt_tokens": usage["input_tokens"],
            "total_tokens": usage["total_tokens"],
            "completion_tokens_details": {
                "accepted_prediction_tokens": 0,
                "audio_tokens": 0,
                "reasoning_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
            "prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": usage["input_token_details"]["cache_read"]},
        },
        "model_provider": "openai",
        "model_name": text.pick(
            "gpt-4o-2024-08-06",
            "gpt-4o-mini-2024-07-18",
            "gpt-4.1-2025-04-14",
            "gpt-5-2025-08-07",
            "gpt-4.1-mini-2025-04-14",
        ),
        "system_fingerprint": text.pick(None, "fp_" + text.hex(10)),
        "id": "chatcmpl-" + text.letters(29),
        "service_tier": "default",
        "finish_reason": "tool_calls" if calls else text.pick("stop", "stop", "length"),
        "logprobs": None,
    }
    if text.pick(True, False):
        del metadata["model_provider"]
    extra: dict[str, Any] = {"refusal": None}
    if calls and text.pick(True, False):
        extra = {"tool_calls": _openai_calls(calls), "refusal": None}
    content = "" if calls else text.prose()
    run_id = text.pick("run-" + text.uuid() + "-0", "lc_run--" + text.uuid() + "-0")
    return AIMessage(
        content, additional_kwargs=extra, response_metadata=metadata, tool_calls=calls, usage_metadata=usage, id=run_id
    )


def openai_stream(text: RandomText) -> AIMessage:
    """Streamed chat completions: fewer metadata; sometimes the chunk class itself."""
    calls = tool_calls(text, "call_", 24)
    metadata = {
        "finish_reason": "tool_calls" if calls else "stop",
        "model_name": text.pick("gpt-4o-2024-08-06", "gpt-4o-mini-2024-07-18", "gpt-4.1-2025-04-14"),
        "system_fingerprint": "fp_" + text.hex(10),
        "service_tier": "default",
        "model_provider": "openai",
    }
    content = "" if calls else text.prose()
    cls: Callable[..., AIMessage] = text.pick(AIMessage, AIMessage, AIMessageChunk)
    return cls(
        content=content,
        response_metadata=metadata,
        tool_calls=calls,
        usage_metadata=_usage(text),
        id="lc_run--" + text.uuid(),
    )


def openai_responses(text: RandomText) -> AIMessage:
    """The responses API: content blocks with annotations, reasoning items, built-in tools."""
    calls = tool_calls(text, "call_", 24)
    blocks: list[Any] = []
    if text.pick(True, False):
        blocks.append(
            {
                "id": "rs_" + text.hex(50),
                "summary": [{"text": text.prose(2), "type": "summary_text"}],
                "type": "reasoning",
                "index": 0,
            }
        )
    blocks += [
        {
            "arguments": json.dumps(call["args"]),
            "call_id": call["id"],
            "name": call["name"],
            "type": "function_call",
            "id": "fc_" + text.hex(50),
            "status": "completed",
        }
        for call in calls
    ]
    if not calls:
        blocks.append({"type": "text", "text": text.prose(), "annotations": [], "id": "msg_" + text.hex(50)})
    metadata = {
        "id": "resp_" + text.hex(50),
        "created_at": float(text.number(1_700_000_000, 1_780_000_000)),
        "metadata": {},
        "model": "gpt-5-2025-08-07",
        "object": "response",
        "service_tier": "default",
        "status": "completed",
        "model_name": "gpt-5-2025-08-07",
        "model_provider": "openai",
        "incomplete_details": None,
        "error": None,
        "user": None,
    }
    usage: Any = _usage(text, input_token_details={"cache_read": 0}, output_token_details={"reasoning": 64})
    return AIMessage(
        blocks,
        additional_kwargs={},
        response_metadata=metadata,
        tool_calls=calls,
        usage_metadata=usage,
        id="resp_" + text.hex(50),
    )


def anthropic(text: RandomText) -> AIMessage:
    """Anthropic, whole or streamed, with thinking, tool use and citations."""
    calls = tool_calls(text, "toolu_01", 22)
    blocks: list[Any] = []
    if text.number(0, 4) == 0:
        blocks.append({"signature": text.letters(180), "thinking": text.prose(3), "type": "thinking", "index": 0})
    if blocks or calls:
        blocks.append({"text": text.prose(2), "type": "text"})
    blocks += [{"id": call["id"], "input": call["args"], "name": call["name"], "type": "tool_use"} for call in calls]
    model = text.pick(
        "claude-3-5-sonnet-20241022",
        "claude-3-7-sonnet-20250219",
        "claude-sonnet-4-20250514",
        "claude-sonnet-4-5-20250929",
        "claude-opus-4-1-20250805",
        "claude-haiku-4-5-20251001",
    )
    usage: Any = _usage(
        text, input_token_details={"cache_creation": text.pick(0, 2048), "cache_read": text.pick(0, 0, 4096)}
    )
    metadata = {
        "id": "msg_01" + text.letters(22),
        "model": model,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
            "cache_creation_input_tokens": usage["input_token_details"]["cache_creation"],
            "cache_read_input_tokens": usage["input_token_details"]["cache_read"],
            "input_tokens": usage["input_tokens"],
            "output_tokens": usage["output_tokens"],
            "server_tool_use": None,
            "service_tier": "standard",
        },
        "model_name": model,
        "model_provider": "anthropic",
    }
    if text.number(0, 2) == 0:
        metadata = {key: metadata[key] for key in ("stop_reason", "stop_sequence", "model_name", "model_provider")}
    return AIMessage(
        blocks or text.prose(),
        response_metadata=metadata,
        tool_calls=calls,
        usage_metadata=usage,
        id=text.pick("run-", "lc_run--") + text.uuid() + "-0",
    )


def gemini(text: RandomText) -> AIMessage:
    """Google, through the Generative Language API or Vertex AI."""
    calls = tool_calls(text, "uuid", 0)
    model = text.pick("gemini-2.0-flash", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-1.5-pro-002")
    extra = {}
    if calls:
        extra = {"function_call": {"name": calls[0]["name"], "arguments": json.dumps(calls[0]["args"])}}
    ratings = [
        {"category": f"HARM_CATEGORY_{name}", "probability": "NEGLIGIBLE", "blocked": False}
        for name in ("DANGEROUS_CONTENT", "HARASSMENT", "HATE_SPEECH", "SEXUALLY_EXPLICIT")
    ]
    metadata = {
        "prompt_feedback": {"block_reason": 0, "safety_ratings": []},
        "finish_reason": "STOP",
        "model_name": model,
        "safety_ratings": text.pick([], ratings),
        "grounding_metadata": text.pick(
            {}, {"grounding_chunks": [], "grounding_supports": [], "web_search_queries": []}
        ),
        "model_provider": text.pick("google_genai", "google_vertexai"),
    }
    if text.pick(True, False):
        metadata |= {
            "is_blocked": False,
            "usage_metadata": {
                "prompt_token_count": 10,
                "candidates_token_count": 20,
                "total_token_count": 30,
                "thoughts_token_count": 0,
                "cached_content_token_count": 0,
            },
            "avg_logprobs": -0.12,
        }
    usage: Any = _usage(
        text, input_token_details={"cache_read": 0}, output_token_details={"reasoning": text.number(0, 500)}
    )
    return AIMessage(
        "" if calls else text.prose(),
        additional_kwargs=extra,
        response_metadata=metadata,
        tool_calls=calls,
        usage_metadata=usage,
        id="lc_run--" + text.uuid() + "-0",
    )


def compatible(text: RandomText) -> AIMessage:
    """Providers with an interface like OpenAI's: Mistral, Groq, xAI, DeepSeek, Together, Fireworks, OpenRouter."""
    provider, model = text.pick(
        ("mistralai", "mistral-large-latest"),
        ("mistralai", "mistral-small-latest"),
        ("groq", "llama-3.3-70b-versatile"),
        ("xai", "grok-3"),
        ("xai", "grok-4"),
        ("deepseek", "deepseek-chat"),
        ("deepseek", "deepseek-reasoner"),
        ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
        ("fireworks", "accounts/fireworks/models/qwen3-235b-a22b"),
        ("openrouter", "moonshotai/kimi-k2"),
    )
    calls = tool_calls(text, "" if provider == "mistralai" else "call_", 9 if provider == "mistralai" else 24)
    extra: dict[str, Any] = {"tool_calls": _openai_calls(calls)} if calls else {}
    if provider == "deepseek" or model == "grok-4":
        extra["reasoning_content"] = text.prose(4)
    usage: Any = _usage(text)
    metadata = {
        "token_usage": {
            "prompt_tokens": usage["input_tokens"],
            "total_tokens": usage["total_tokens"],
            "completion_tokens": usage["output_tokens"],
            "completion_time": 0.25,
            "prompt_time": 0.01,
            "queue_time": 0.05,
            "total_time": 0.26,
            "prompt_cache_hit_tokens": 0,
            "prompt_cache_miss_tokens": usage["input_tokens"],
        },
        "model_name": model,
        "system_fingerprint": "fp_" + text.hex(10),
        "finish_reason": "tool_calls" if calls else "stop",
        "logprobs": None,
        "model_provider": provider,
    }
    if provider == "mistralai":
        metadata["model"] = model
    return AIMessage(
        "" if calls else text.prose(),
        additional_kwargs=extra,
        response_metadata=metadata,
        tool_calls=calls,
        usage_metadata=usage,
        id=text.pick("run-", "lc_run--") + text.uuid() + "-0",
    )


def bedrock(text: RandomText) -> AIMessage:
    """The converse API of Amazon Bedrock."""
    calls = tool_calls(text, "tooluse_", 22)
    blocks: list[Any] = [{"type": "text", "text": text.prose(2)}] if calls else []
    blocks += [{"type": "tool_use", "name": call["name"], "input": call["args"], "id": call["id"]} for call in calls]
    metadata = {
        "ResponseMetadata": {
            "RequestId": text.uuid(),
            "HTTPStatusCode": 200,
            "HTTPHeaders": {
                "date": "Mon, 13 Jan 2025 10:11:12 GMT",
                "content-type": "application/json",
                "content-length": str(text.number(200, 2000)),
                "connection": "keep-alive",
                "x-amzn-requestid": text.uuid(),
            },
            "RetryAttempts": 0,
        },
        "stopReason": "tool_use" if calls else "end_turn",
        "metrics": {"latencyMs": [text.number(300, 9000)]},
        "model_provider": "bedrock_converse",
        "model_name": "us.anthropic.claude-sonnet-4-20250514-v1:0",
    }
    return AIMessage(
        blocks or text.prose(),
        response_metadata=metadata,
        tool_calls=calls,
        usage_metadata=_usage(text, input_token_details={"cache_creation": 0, "cache_read": 0}),
        id="lc_run--" + text.uuid() + "-0",
    )


def ollama(text: RandomText) -> AIMessage:
    """A local model."""
    calls = tool_calls(text, "uuid", 0)
    metadata = {
        "model": text.pick("llama3.1", "llama3.2", "qwen3:8b", "mistral", "gpt-oss:20b"),
        "created_at": text.time(),
        "done": True,
        "done_reason": "stop",
        "total_duration": text.number(10**8, 10**10),
        "load_duration": text.number(10**6, 10**8),
        "prompt_eval_count": 120,
        "prompt_eval_duration": text.number(10**6, 10**9),
        "eval_count": 64,
        "eval_duration": text.number(10**7, 10**9),
        "model_name": "llama3.1",
        "model_provider": "ollama",
        "logprobs": None,
    }
    return AIMessage(
        "" if calls else text.prose(),
        response_metadata=metadata,
        tool_calls=calls,
        usage_metadata=_usage(text),
        id="lc_run--" + text.uuid() + "-0",
    )


def plain_ai(text: RandomText) -> AIMessage:
    """Messages that a program wrote itself, or that a provider unknown to us returned."""
    calls = tool_calls(text, "call_", text.pick(8, 24))
    return AIMessage(
        text.prose() if not calls else "",
        tool_calls=calls,
        id=text.pick(text.uuid(), "run--" + text.uuid()),
        name=text.pick(None, None, "agent", "supervisor", "researcher"),
    )


MODELS = (
    openai,
    openai,
    openai,
    openai_stream,
    openai_responses,
    anthropic,
    anthropic,
    anthropic,
    gemini,
    compatible,
    bedrock,
    ollama,
    plain_ai,
    plain_ai,
)
"""Each as often as its provider is used."""
