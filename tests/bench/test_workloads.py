from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from bench.recorder import Recorder, timed
from bench.report.bars import REFERENCE_TURNS
from bench.stage import Stage, ThreadPlayer, thread_config
from bench.targets.base import Place
from bench.targets.local import MemoryTarget
from bench.text import Text, standard_library
from bench.verify import state_difference
from bench.workloads import NAMES, digests, make_workload
from bench.workloads.base import GraphKind, Workload
from bench.workloads.conversations import ANSWER_CHARACTERS, HUMAN_CHARACTERS, TOOL_CHARACTERS, fold_messages
from bench.workloads.wide import (
    EVENT_CHARACTERS,
    FANOUT_TASKS,
    FIELD_CHARACTERS,
    FIELDS_CHANGED_MAX,
    FINDING_CHARACTERS,
    MANUAL_CHARACTERS,
    NODES,
)
from tests.bench.test_trace import TALK

TURNS = {"summarise": 43, "fork": 31, "files": 18}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps({"messages": TALK}) + "\n")
    return path


async def play(workload: Workload, kind: GraphKind, turns: int) -> tuple[InMemorySaver, Stage]:
    saver, recorder = InMemorySaver(), Recorder()
    stage = Stage(workload, MemoryTarget(Place("", Path())), kind, 10, "async")
    player = ThreadPlayer(stage.compile(timed(saver, recorder)), recorder, thread_id="t", durability="async")
    conversation = workload.conversation(0)
    for turn in range(turns):
        conversation.prepare(turn)
        await conversation.play(player, turn)
    return saver, stage


@pytest.mark.parametrize("kind", ["plain", "delta"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_played_workload_ends_in_the_state_it_expects(name: str, kind: GraphKind, trace: Path):
    turns = TURNS.get(name, 7)
    workload = make_workload(name, seed=3, trace=trace)
    saver, stage = await play(workload, kind, turns)
    state = await stage.compile(saver).aget_state(thread_config("t"))
    expected = next(itertools.islice(workload.conversation(0).expected_states(), turns - 1, None))
    assert state_difference(expected, state.values) == ""
    assert state.next == ()


@pytest.mark.parametrize("name", NAMES)
def test_scripts_follow_from_seed_and_number(name: str, trace: Path):
    def first_states(seed: int, number: int) -> list[str]:
        conversation = make_workload(name, seed=seed, trace=trace).conversation(number)
        return [repr(state) for state in itertools.islice(conversation.expected_states(), 3)]

    assert first_states(1, 0) == first_states(1, 0)
    assert first_states(1, 0) != first_states(1, 1)
    assert first_states(1, 0) != first_states(2, 0)


async def test_the_reference_has_five_checkpoints_and_four_messages_a_turn():
    workload = make_workload("agent", seed=1, trace=None)
    saver, _ = await play(workload, "plain", 6)
    assert len(saver.storage["t"][""]) == 30
    messages = next(itertools.islice(workload.conversation(0).expected_states(), 5, None))["messages"]
    assert len(messages) == 24
    assert len({message.id for message in messages}) == 24


def test_the_reference_has_messages_of_the_announced_sizes():
    states = make_workload("agent", seed=1, trace=None).conversation(0).expected_states()
    messages = next(itertools.islice(states, 99, None))["messages"]
    for position, characters in ((0, 300), (2, 5_500), (3, 1_200)):
        mean = sum(len(message.text) for message in messages[position::4]) / 100
        assert mean == pytest.approx(characters, rel=0.1)
    assert all(message.response_metadata and message.usage_metadata for message in messages[1::2])


def numbered_lines(count: int) -> Text:
    """Text of which every part stands at one place only."""
    return Text("\n".join(f"{number:07}" for number in range(count)))


def lines_of(text: Text, start: int, numbers: range, means: tuple[int, ...]) -> Iterator[str]:
    for number in numbers:
        page = text.page(start, number, *means)
        for mean in means:
            piece = page.take(int(mean * 1.4))
            assert mean < len(piece) <= int(mean * 1.4)
            yield from piece.split("\n")[:-1]


@pytest.mark.parametrize("start", [0, 77, 10_000_000])
@pytest.mark.parametrize("means", [(5_500,), (300, 1_200), (500, 500, 160)])
def test_pieces_do_not_overlap_until_the_text_is_used_up(means: tuple[int, ...], start: int):
    text = numbered_lines(100_000)
    lines = Counter(lines_of(text, start, range(text.pages(*means)), means))
    assert set(lines.values()) == {1}


def test_every_page_is_visited_whatever_their_number():
    text = Text("x" * 7_919 * 1_499)
    assert text.pages(985) == 7_919
    lines = numbered_lines(7_919 * 1_499 // 8 + 1)
    assert len({lines.page(0, number, 985).take(800) for number in range(7_919)}) == 7_919


def test_a_second_pass_through_the_text_begins_at_other_places():
    text = numbered_lines(100_000)
    numbers = range(2 * text.pages(5_500))
    assert len({text.page(3, number, 5_500).take(5_500) for number in numbers}) == len(numbers)


@pytest.mark.parametrize("start", [0, 1, 10_000_000])
def test_a_short_text_has_a_page_too(start: int):
    assert 0 < len(Text("too short\nfor one page\n").page(start, 5, 5_500).take(5_500)) <= 23
    assert len(Text("x" * 100_000).page(start, 5, 5_500).take(5_500)) == 5_500


def test_no_conversation_of_the_length_of_the_reference_repeats_its_text():
    corpus = standard_library()
    assert corpus.code.pages(TOOL_CHARACTERS) > 1_000
    assert corpus.prose.pages(HUMAN_CHARACTERS, ANSWER_CHARACTERS) > 1_000
    assert corpus.prose.pages(*[FIELD_CHARACTERS] * FIELDS_CHANGED_MAX, EVENT_CHARACTERS) > len(NODES) * REFERENCE_TURNS
    assert corpus.code.pages(*[FINDING_CHARACTERS] * FANOUT_TASKS) > REFERENCE_TURNS
    assert len(corpus.code_aside.characters) > corpus.code_aside.page_characters(MANUAL_CHARACTERS)


def test_digests_say_what_is_played(trace: Path):
    text = digests(["agent", "wide"], None)
    assert text == {"text": standard_library().digest()}
    assert digests(["replay"], trace) == {"trace": hashlib.sha256(trace.read_bytes()).hexdigest()}
    assert digests(["agent", "replay"], trace).keys() == {"text", "trace"}
    assert dataclasses.replace(standard_library(), prose=Text("other")).digest() != standard_library().digest()


def test_the_folds_agree_with_langgraph():
    from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
    from langgraph.graph import add_messages

    first = [HumanMessage("one", id="1"), AIMessage("two", id="2"), HumanMessage("three", id="3")]
    update = [RemoveMessage(id="1"), AIMessage("new two", id="2"), HumanMessage("four", id="4")]
    assert fold_messages(list(first), update) == add_messages(list(first), list(update))  # type: ignore[arg-type]
