"""`replay`: recorded conversations in OpenAI message form, joined to one of the length asked for.

A trace file is JSONL (or JSONL in gzip), one conversation a line: `{"messages": [{"role": ..., "content": ...}, ...]}`.
A turn is a user message and everything up to the next one. Recordings carry no ids, usage or response metadata; these
are added as the provider's integration would have, from the seed. A system message that repeats the last is dropped.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, convert_to_messages
from langgraph.graph import StateGraph

from bench.errors import UsageError
from bench.messages import Envelopes
from bench.workloads.base import Conversation, Cues, Fold, GraphKind, TurnScript, Workload
from bench.workloads.conversations import fold_messages, message_cues, message_graph

Turn = tuple[BaseMessage, ...]
_GZIP_MAGIC = b"\x1f\x8b"
_KEYS_SHOWN = 5


def read_trace(path: Path) -> list[Turn]:
    """Reads a trace file into turns.

    Raises:
        UsageError: The file cannot be read, or a line is not a conversation; the text names file and line.
    """
    turns: list[Turn] = []
    system = ""
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        messages = _conversation(_text(line, where), where)
        if isinstance(messages[0], SystemMessage):
            if messages[0].text == system:
                messages = messages[1:]
            else:
                system = messages[0].text
        turns += _turns(messages)
    if not turns:
        raise UsageError(f"trace {path} has no turn: expected one conversation with a user message a line")
    return turns


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            is_gzip = file.read(2) == _GZIP_MAGIC
        if path.suffix == ".gz" and not is_gzip:
            raise UsageError(f"trace {path} is no gzip file: expected JSONL in gzip, or plain JSONL under another name")
        with gzip.open(path) if is_gzip else path.open("rb") as lines:
            yield from lines
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"trace {path} cannot be read: {error}") from error


def _text(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"0x{line[error.start]:02x} at byte {error.start + 1}"
        raise UsageError(f"{where}: cannot be read: expected UTF-8 text, found {found}") from error


def _conversation(line: str, where: str) -> list[BaseMessage]:
    expected = 'expected {"messages": [OpenAI chat messages]}'
    try:
        raw = json.loads(line)
    except ValueError as error:
        problem = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise UsageError(f"{where}: not JSON ({problem}); {expected}") from error
    if not isinstance(raw, dict) or "messages" not in raw:
        found = (
            f"the keys {', '.join(list(raw)[:_KEYS_SHOWN]) or 'none'}"
            if isinstance(raw, dict)
            else f"a {type(raw).__name__}"
        )
        raise UsageError(f"{where}: not a conversation: found {found}; {expected}")
    if not isinstance(raw["messages"], list) or not raw["messages"]:
        raise UsageError(f"{where}: no messages; {expected}")
    return [_message(message, f"{where}, message {number}") for number, message in enumerate(raw["messages"], start=1)]


def _message(raw: Any, where: str) -> BaseMessage:
    try:
        return convert_to_messages([{**raw, "content": raw.get("content") or ""}])[0]
    except Exception as error:
        text = str(error).split("\n")[0]
        expected = 'expected {"role": ..., "content": ...}'
        raise UsageError(f"{where}: not an OpenAI chat message ({text}); {expected}") from error


def _turns(messages: list[BaseMessage]) -> Iterator[Turn]:
    """Cuts a conversation before each user message; what got no answer is left out."""
    turn: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, HumanMessage) and turn and not isinstance(turn[-1], SystemMessage):
            if not isinstance(turn[-1], HumanMessage):
                yield tuple(turn)
            turn = []
        turn.append(message)
    if any(isinstance(message, HumanMessage) for message in turn) and not isinstance(turn[-1], HumanMessage):
        yield tuple(turn)


class ReplayConversation(Conversation):
    """The recorded turns, from an own starting point per thread, again from the first when they are used up."""

    folds: ClassVar[Mapping[str, Fold]] = {"messages": fold_messages}

    def __init__(self, cues: Cues, seed: int, number: int, *, turns: list[Turn]) -> None:
        super().__init__(cues, seed, number)
        self._turns = turns

    def script(self, turn: int) -> TurnScript:
        envelopes = Envelopes(self.rng(turn))
        recorded = self._turns[(turn + self.number * 7) % len(self._turns)]
        messages: list[BaseMessage] = []
        characters = 0
        for message in recorded:
            characters += len(message.text)
            messages.append(_with_envelope(message, envelopes, prompt_characters=characters))
        start = next(position for position, message in enumerate(messages) if isinstance(message, HumanMessage))
        return TurnScript({"messages": messages[: start + 1]}, message_cues(messages[start:]))


def _with_envelope(message: BaseMessage, envelopes: Envelopes, *, prompt_characters: int) -> BaseMessage:
    if isinstance(message, AIMessage):
        return envelopes.ai(message.text, prompt_characters=prompt_characters, tool_calls=message.tool_calls)
    return message.model_copy(update={"id": envelopes.new_uuid()})


class ReplayWorkload(Workload):
    """Conversations that happened."""

    name = "replay"
    summary = "recorded conversations, joined to the length asked for"

    def __init__(self, seed: int, trace: Path) -> None:
        super().__init__(seed)
        self._turns = read_trace(trace)
        self.summary = (
            f"{len(self._turns):,} turns of recorded conversations, joined; from the first again if more are asked for"
        )

    def graph(self, kind: GraphKind, snapshot_frequency: int) -> StateGraph[Any, Any, Any, Any]:
        return message_graph(self.cues, kind, snapshot_frequency)

    def conversation(self, number: int) -> Conversation:
        return ReplayConversation(self.cues, self.seed, number, turns=self._turns)
