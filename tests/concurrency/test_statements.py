"""One statement per save; at most two per load and per history, whatever the chain is like."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph

from tests.concurrency.statements import Counter, counting
from tests.faults.stories import Step, Story, assert_reads_as, config_of


@pytest.fixture
async def counter(database_dsn: str) -> AsyncIterator[Counter]:
    async with counting(database_dsn, max_size=1) as counter:
        yield counter


async def test_every_save_is_one_statement_also_the_first_of_a_thread(counter: Counter) -> None:
    """Across anchors (every 50 steps), pages, and a fork; writes of the same task again."""
    saver = await counter.new_saver()
    story = Story(saver)
    step = await story.step(None)
    assert await counter.count() == 1
    for _ in range(120):
        step = await story.step(step)
        assert await counter.count() == 2, "one for the writes, one for the checkpoint"
    await story.step(story.steps[117])
    assert await counter.count() == 2
    await saver.aput_writes(step.config, [("words", ["again"])], "task")
    await saver.aput_writes(step.config, [("words", ["again"])], "task")
    assert await counter.count() == 2


async def test_writes_to_a_new_thread_are_one_statement(counter: Counter) -> None:
    saver = await counter.new_saver()
    await saver.aput_writes(config_of("new", "1"), [("words", ["a"])], "task")
    assert await counter.count() == 1


async def test_saves_after_a_load_are_one_statement(counter: Counter) -> None:
    """Another process loads the head, as a resumed run does, and goes on."""
    story = Story(await counter.new_saver())
    await story.grow(70)
    story.saver = await counter.new_saver()
    await story.saver.aget_tuple(config_of("story"))
    assert await counter.count() <= 2
    await story.grow(1)
    assert await counter.count() == 2
    await story.grow(1)
    assert await counter.count() == 2


@pytest.mark.parametrize("length", [1, 2, 10, 49, 50, 51, 52, 500, pytest.param(3000, marks=pytest.mark.slow)])
async def test_loads_take_two_statements_whatever_the_chain(counter: Counter, length: int) -> None:
    story = Story(await counter.new_saver())
    await story.grow(length)
    middle = story.steps[length // 2]
    fork = await story.grow(3, middle)
    for step in (story.steps[0], middle, story.steps[length - 1], fork):
        await assert_loads_in_two(counter, step)
        await assert_reads_as(await counter.new_saver(), step)
    head = await counter.new_saver()
    assert fork.is_read_as(await head.aget_tuple(config_of("story")))
    assert await counter.count() <= 2


async def assert_loads_in_two(counter: Counter, step: Step) -> None:
    saver = await counter.new_saver()
    assert step.is_read_as(await saver.aget_tuple(step.config))
    assert await counter.count() <= 2
    saver = await counter.new_saver()
    await saver.aget_delta_channel_history(config=step.config, channels=["log", "never"])
    assert await counter.count() <= 2


async def test_a_history_of_writes_that_repeat_stored_items(counter: Counter) -> None:
    """The repeated texts are kept where they were written first, before the last anchor and by another channel."""
    saver = await counter.new_saver()
    texts = [f"a text that is long enough to be referred to, number {number}" * 3 for number in range(10)]
    config: Any = config_of("repeats")
    versions: dict[str, Any] = {}
    for number in range(120):
        channel = "first" if number < 20 else "second"
        if number:
            await saver.aput_writes(config, [(channel, texts[number % 10])], f"task {number}")
        new = {channel: saver.get_next_version(versions.get(channel), None)}
        versions = {**versions, **new}
        checkpoint: Any = {"v": 4, "id": f"{number:08}", "ts": "", "channel_values": {}, "channel_versions": versions}
        config = await saver.aput(config, checkpoint, {"step": number}, new)
    saver = await counter.new_saver()
    history = await saver.aget_delta_channel_history(config=config, channels=["second"])
    assert await counter.count() <= 2
    assert [value for _, _, value in history["second"]["writes"]] == [texts[number % 10] for number in range(20, 120)]


class Plain(TypedDict):
    count: int
    words: Annotated[list[str], operator.add]


class Delta(TypedDict):
    count: int
    words: Annotated[list[str], DeltaChannel(lambda words, writes: [*words, *(w for each in writes for w in each)])]


def looping(schema: Any, saver: Any, rounds: int) -> Any:
    builder = StateGraph(schema)
    builder.add_node("work", lambda state: {"count": state["count"] + 1, "words": [f"word {state['count']}"]})
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: "work" if state["count"] % rounds else END, ["work", END])
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize(("schema", "most"), [(Plain, 2), (Delta, 4)], ids=["plain", "DeltaChannel"])
@pytest.mark.parametrize("rounds", [1, 50, 130])
async def test_get_state_and_a_whole_run(counter: Counter, schema: Any, most: int, rounds: int) -> None:
    """A state is a load and, with DeltaChannels, a history; a run is a load and at most one statement per save.

    Saves that pile up, which those of a synchronous run do not, share statements (`test_grouping.py`).
    """
    run: Any = {"recursion_limit": rounds + 10, **config_of("t")}
    saver = await counter.new_saver()
    await looping(schema, saver, rounds).ainvoke({"count": 0, "words": []}, run, durability="sync")
    saves = sum("INSERT INTO" in each for each in counter.statements)
    assert saves == 3 + 2 * rounds  # the input with its writes, the start; then for each round writes and checkpoint
    assert await counter.count() == saves + 1

    graph = looping(schema, await counter.new_saver(), rounds)
    state = await graph.aget_state(config_of("t"))
    assert await counter.count() <= most
    assert state.values == {"count": rounds, "words": [f"word {number}" for number in range(rounds)]}


@pytest.mark.parametrize("length", [120, pytest.param(3000, marks=pytest.mark.slow)])
async def test_a_quiet_channel_costs_no_rows(counter: Counter, length: int) -> None:
    """F28: two writes to a DeltaChannel, then nothing for a long time. Rows are bounded by the anchor's distance."""
    saver = await counter.new_saver()
    step = await quiet_thread(saver, length)
    saver = await counter.new_saver()
    before = await counter.rows_read()
    history = await saver.aget_delta_channel_history(config=step, channels=["quiet"])
    assert await counter.count() <= 2
    assert await counter.rows_read() - before < 4 * 50
    assert [value for _, _, value in history["quiet"]["writes"]] == ["first", "second"]


async def quiet_thread(saver: Any, length: int) -> Any:
    config: Any = config_of("quiet")
    versions: dict[str, Any] = {}
    for number in range(length):
        changed = ["quiet", "count"] if number in (1, 2) else ["count"]
        new = {channel: saver.get_next_version(versions.get(channel), None) for channel in changed}
        if number in (1, 2):
            await saver.aput_writes(config, [("quiet", ("first", "second")[number - 1])], f"task {number}")
        versions = {**versions, **new}
        checkpoint = {"v": 4, "id": f"{number:08}", "ts": "", "channel_values": {"count": number}}
        checkpoint |= {"channel_versions": versions, "versions_seen": {}, "updated_channels": changed}
        config = await saver.aput(config, checkpoint, {"step": number}, new)
    return config
