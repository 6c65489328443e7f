"""`files`: a coding agent whose state holds the files it works on, as deep agents keep them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from langgraph.graph import StateGraph

from bench.messages import Envelopes, characters_about
from bench.text import Page, standard_library
from bench.workloads.base import ChannelSpec, Conversation, Cue, Cues, Fold, GraphKind, State, TurnScript, Workload
from bench.workloads.conversations import ANSWER_CHARACTERS, HUMAN_CHARACTERS, fold_messages, message_graph

FIRST_FILES = 24
LARGE_FILE_CHARACTERS = 60_000
SMALL_FILE_CHARACTERS = 6_000
NEW_FILE_EVERY_TURNS = 5
DELETED_FILE_EVERY_TURNS = 17
_CODE_CHARACTERS = (350, 300, 350)  # what is inserted, and what the call says is replaced and by what
_PROSE_CHARACTERS = (200, ANSWER_CHARACTERS // 2)  # plan and answer

Files = dict[str, Any]


def merge_files(left: Files | None, right: Mapping[str, Any]) -> Files:
    """Reducer of the files: those named are written, those that are None are deleted."""
    merged = {**(left or {}), **right}
    return {path: file for path, file in merged.items() if file is not None}


def merge_files_batch(state: Files, writes: Sequence[Mapping[str, Any]]) -> Files:
    """The same for a DeltaChannel."""
    return functools.reduce(merge_files, writes, dict(state))


class FilesConversation(Conversation):
    """Each turn edits one file; now and then one is added or deleted.

    An edit depends on the file as it is, so the scripts are written in order and the files are kept along the way.
    """

    folds: ClassVar[Mapping[str, Fold]] = {"messages": fold_messages, "files": merge_files}

    def __init__(self, cues: Cues, seed: int, number: int) -> None:
        super().__init__(cues, seed, number)
        self._files: Files = {}
        self._next_turn = 0

    def script(self, turn: int) -> TurnScript:
        if turn != self._next_turn:
            raise ValueError(f"turn {turn} asked for, but the files are those before turn {self._next_turn}")
        self._next_turn += 1
        values: dict[str, Any] = {}
        if turn == 0:
            values["files"] = self._first_files()
            self._files = merge_files(self._files, values["files"])
        code = standard_library().code.page(self.text_start, turn, *_CODE_CHARACTERS, SMALL_FILE_CHARACTERS)
        edits, path = self._edits(turn, code)
        self._files = merge_files(self._files, edits)
        return self._messages(turn, values, code, path=path, edits=edits)

    def expected_states(self) -> Iterator[State]:
        fresh = FilesConversation(Cues(), self._seed, self.number)
        state: State = {}
        for turn in itertools.count():
            self.fold(state, fresh.script(turn))
            yield state

    def _messages(self, turn: int, values: dict[str, Any], code: Page, *, path: str, edits: Files) -> TurnScript:
        rng = self.rng(turn)
        prose = standard_library().prose.page(self.text_start, turn, HUMAN_CHARACTERS, *_PROSE_CHARACTERS)
        envelopes = Envelopes(rng, "anthropic")
        human = envelopes.human(prose.take(characters_about(rng, HUMAN_CHARACTERS)))
        old, new = (code.take(characters) for characters in _CODE_CHARACTERS[1:])
        plan_text, answer_text = (prose.take(characters) for characters in _PROSE_CHARACTERS)
        call = envelopes.tool_call("edit_file", {"file_path": path, "old_string": old, "new_string": new})
        plan = envelopes.ai(plan_text, prompt_characters=20_000, tool_calls=[call])
        result = envelopes.tool_result(call, f"Successfully replaced 1 instance(s) of the string in '{path}'")
        answer = envelopes.ai(answer_text, prompt_characters=21_000)
        cues = {
            str(human.id): Cue("agent", {"messages": [plan]}),
            str(plan.id): Cue("tools", {"messages": [result], "files": edits}),
            str(result.id): Cue("agent", {"messages": [answer]}),
        }
        return TurnScript({"messages": [human], **values}, cues)

    def _first_files(self) -> Files:
        corpus, rng = standard_library(), self.rng(-1)
        files: Files = {}
        means = [LARGE_FILE_CHARACTERS if number % 6 == 0 else SMALL_FILE_CHARACTERS for number in range(FIRST_FILES)]
        page = corpus.code_aside.page(self.text_start, 0, *means)
        for number, mean in enumerate(means):
            path = f"/project/src/part_{number:02}/{corpus.module(self.text_index(number)).replace('/', '_')}"
            content = page.take(characters_about(rng, mean))
            files[path] = _file(content, created_turn=0, modified_turn=0)
        return files

    def _edits(self, turn: int, code: Page) -> tuple[Files, str]:
        """The update of the files channel in this turn, and the path that it is about."""
        rng = self.rng(~turn)
        path = rng.choice(sorted(self._files))
        lines = self._files[path]["content"].split("\n")
        place = rng.randrange(len(lines))
        inserted = code.take(_CODE_CHARACTERS[0]).split("\n")
        content = "\n".join([*lines[:place], *inserted, *lines[place + len(inserted) - 1 :]])
        edits: Files = {path: {**self._files[path], "content": content, "modified_at": _moment(turn)}}
        if turn % NEW_FILE_EVERY_TURNS == NEW_FILE_EVERY_TURNS - 1:
            content = code.take(characters_about(rng, SMALL_FILE_CHARACTERS))
            edits[f"/project/src/new_{turn:04}.py"] = _file(content, created_turn=turn, modified_turn=turn)
        if turn % DELETED_FILE_EVERY_TURNS == DELETED_FILE_EVERY_TURNS - 1:
            edits[rng.choice([name for name in sorted(self._files) if name != path])] = None
        return edits, path


def _file(content: str, *, created_turn: int, modified_turn: int) -> Files:
    return {
        "content": content,
        "encoding": "utf-8",
        "created_at": _moment(created_turn),
        "modified_at": _moment(modified_turn),
    }


def _moment(turn: int) -> str:
    return (datetime(2026, 3, 2, 9, 0, tzinfo=UTC) + timedelta(seconds=47.3 * turn)).isoformat()


class FilesWorkload(Workload):
    """A dict of files, some of them large, of which each turn changes one."""

    name = "files"
    summary = f"coding agent: dict of {FIRST_FILES} files (1 in 6 of about 60,000 characters), one edited each turn"

    def graph(self, kind: GraphKind, snapshot_frequency: int) -> StateGraph[Any, Any, Any, Any]:
        files = ChannelSpec(dict[str, Any], merge_files, merge_files_batch)
        return message_graph(self.cues, kind, snapshot_frequency, channels={"files": files})

    def conversation(self, number: int) -> Conversation:
        return FilesConversation(self.cues, self.seed, number)
