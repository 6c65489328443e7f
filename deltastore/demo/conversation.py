"""What is said: messages in order, cut into turns of a user's input and the answers to it."""

from __future__ import annotations

import gzip
import itertools
import json
import sysconfig
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pydoc_data import topics
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)

from deltastore.errors import InvalidConfigError

_ID_SPACE = uuid.UUID("0f2c1a52-6b0e-4c7e-9d0e-0f6f9b1f5a11")
_QUESTION_CHARACTERS = 240
_RESULT_CHARACTERS = 5_500
_ANSWER_CHARACTERS = 1_200
_SKIPPED = frozenset({"site-packages", "dist-packages", "test", "tests", "pydoc_data", "__pycache__"})
_EXPECTED = 'expected one {"messages": [OpenAI chat messages]} a line'


@dataclass(frozen=True)
class Conversation:
    """Messages, and where they come from."""

    source: str
    messages: tuple[BaseMessage, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Positions where turns begin: at what a user or system says after an answer."""
        return tuple(_starts(self.messages))

    def inputs(self, start: int) -> list[BaseMessage]:
        """What opens the turn at this position."""
        return list(itertools.takewhile(_is_input, self.messages[start:]))


def load(trace: Path | None, turns: int) -> Conversation:
    """A conversation of so many turns; the same each time it is asked for.

    Raises:
        InvalidConfigError: The trace cannot be read or holds no conversation; the text names file and line.
    """
    if trace is None:
        library = _Library()
        said: Iterable[BaseMessage] = itertools.chain.from_iterable(map(library.turn, range(turns)))
        source = "text from the Python standard library"
    else:
        recorded = list(_read(trace))
        if not recorded:
            raise InvalidConfigError(f"{trace} holds no answered turn", detail=_EXPECTED)
        said = itertools.chain.from_iterable(itertools.islice(itertools.cycle(recorded), turns))
        source = f"{turns} of {len(recorded)} turns recorded in {trace.name}"
        if turns > len(recorded):
            source = f"the {len(recorded)} turns recorded in {trace.name}, repeated"
    return Conversation(source, tuple(_finished(message, position) for position, message in enumerate(said)))


def _is_input(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage | SystemMessage)


def _starts(messages: Sequence[BaseMessage]) -> Iterator[int]:
    for position, message in enumerate(messages):
        if _is_input(message) and (position == 0 or not _is_input(messages[position - 1])):
            yield position


def _finished(message: BaseMessage, position: int) -> BaseMessage:
    """The message with the id and the metadata that a model's integration adds."""
    name = str(uuid.uuid5(_ID_SPACE, str(position)))
    if not isinstance(message, AIMessage):
        return message.model_copy(update={"id": name})
    tokens = {"input_tokens": 350 + 90 * (position % 40), "output_tokens": 12 + len(message.text) // 4}
    tokens["total_tokens"] = tokens["input_tokens"] + tokens["output_tokens"]
    metadata = {
        "model_name": "gpt-4o-2024-08-06",
        "model_provider": "openai",
        "system_fingerprint": f"fp_{name[:8]}",
        "finish_reason": "tool_calls" if message.tool_calls else "stop",
        "token_usage": tokens,
    }
    return message.model_copy(
        update={"id": f"run-{name}-0", "response_metadata": metadata, "usage_metadata": tokens},
    )


class _Library:
    """Text that every Python brings: the code of its modules, and its manual, which `help()` shows."""

    def __init__(self) -> None:
        root = Path(sysconfig.get_paths()["stdlib"])
        found = (path for path in root.rglob("*.py") if not _SKIPPED.intersection(path.parts))
        self._modules = sorted(path for path in found if path.stat().st_size > _RESULT_CHARACTERS)
        self._manual = "".join(topics.topics.values())

    def turn(self, turn: int) -> Iterator[BaseMessage]:
        """A question, a look into a file, and an answer."""
        module = self._modules[turn * 7_919 % len(self._modules)]
        code = module.read_text(encoding="utf-8", errors="replace")
        first = turn // len(self._modules) * _RESULT_CHARACTERS % max(1, len(code) - _RESULT_CHARACTERS)
        call = {"name": "read_file", "args": {"path": module.name, "offset": first}, "id": f"call_{turn:024}"}
        yield HumanMessage(f"How does {module.stem} relate to this? {self._prose(2 * turn + 1, _QUESTION_CHARACTERS)}")
        yield AIMessage("", tool_calls=[{**call, "type": "tool_call"}])
        yield ToolMessage(code[first : first + _RESULT_CHARACTERS], tool_call_id=call["id"], name="read_file")
        yield AIMessage(self._prose(2 * turn, _ANSWER_CHARACTERS))

    def _prose(self, index: int, characters: int) -> str:
        first = index * _ANSWER_CHARACTERS * 17 % (len(self._manual) - _ANSWER_CHARACTERS)
        return self._manual[first : first + characters]


def _read(trace: Path) -> Iterator[list[BaseMessage]]:
    """The answered turns of all conversations in a file."""
    for number, line in enumerate(_lines(trace), start=1):
        if line.strip():
            messages = _parse(line, f"{trace}, line {number}")
            bounds = [*_starts(messages), len(messages)]
            for start, end in itertools.pairwise(bounds):
                if not _is_input(messages[end - 1]):
                    yield messages[start:end]


def _lines(trace: Path) -> Iterator[str]:
    try:
        with trace.open("rb") as file:
            is_gzip = file.read(2) == b"\x1f\x8b"
        with gzip.open(trace, "rt", encoding="utf-8") if is_gzip else trace.open(encoding="utf-8") as lines:
            yield from lines
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidConfigError(f"{trace} cannot be read", detail=str(error)) from error


def _parse(line: str, where: str) -> list[BaseMessage]:
    try:
        raw: list[dict[str, Any]] = json.loads(line)["messages"]
        return convert_to_messages([{**message, "content": message.get("content") or ""} for message in raw])
    except Exception as error:  # whatever a line of foreign data makes of the parsers
        found = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise InvalidConfigError(f"{where} is no conversation", detail=f"{found}; {_EXPECTED}") from error
