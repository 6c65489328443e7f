"""Threads without damage verify clean, whatever was done to them."""

from __future__ import annotations

import pytest

from deltastore import DeltaSaver
from deltastore.errors import InvalidConfigError
from deltastore.verification import Outcome, verify_threads
from tests.faults.stories import Story


async def grown(saver: DeltaSaver, thread_id: str = "story") -> Story:
    """A thread with anchors, deltas, forks, pending writes and two runs."""
    story = Story(saver, thread_id, seed=3, words_max=1500)
    await story.grow(13, run_id="first")
    await story.grow(7, run_id="second")
    await story.grow(6, story.steps[6], run_id="third")
    head = await story.grow(1, story.steps[19], run_id="second")
    await saver.aput_writes(head.config, [("words", ["pending"]), ("log", "pending")], "late", "~late")
    return story


async def test_a_sound_thread(saver: DeltaSaver) -> None:
    await grown(saver)
    report = await verify_threads(saver)
    assert (report.threads, report.checkpoints) == (1, 27)
    assert report.is_sound
    assert not report.noted
    assert report.exit_code == 0


@pytest.mark.parametrize("call", ["delete_for_runs", "prune", "both", "copy"])
async def test_after_deletions_and_copies(saver: DeltaSaver, call: str) -> None:
    story = await grown(saver)
    if call in ("delete_for_runs", "both"):
        await saver.adelete_for_runs(["first"])
    if call in ("prune", "both"):
        await saver.aprune(["story"])
    if call == "copy":
        await saver.acopy_thread("story", "copy")
    report = await verify_threads(saver)
    assert report.is_sound, report.damaged
    assert not report.noted
    await story.grow(7, story.steps[-1])
    assert (await verify_threads(saver)).is_sound


async def test_chosen_threads_and_samples(saver: DeltaSaver) -> None:
    for number in range(6):
        await Story(saver, f"thread {number}").grow(1)
    seen: list[Outcome] = []
    with pytest.raises(InvalidConfigError, match="there is no thread 'nothing'"):
        await verify_threads(saver, ["thread 4", "nothing", "thread 2"], progress=seen.append)
    assert not seen
    await verify_threads(saver, ["thread 4", "thread 2"], progress=seen.append)
    assert [outcome.found.thread_id for outcome in seen] == ["thread 4", "thread 2"]
    seen.clear()
    await verify_threads(saver, progress=seen.append)
    assert {outcome.found.thread_id for outcome in seen} == {f"thread {number}" for number in range(6)}
    for sample in (1, 4, 6, 9):
        seen.clear()
        await verify_threads(saver, sample=sample, progress=seen.append)
        assert len({outcome.found.thread_id for outcome in seen}) == len(seen) == min(sample, 6)


@pytest.mark.parametrize("sample", [0, -1, True, "2", 1.5])
async def test_a_wrong_sample_is_refused(sample: object) -> None:
    with pytest.raises(InvalidConfigError, match="a sample is a number"):
        await verify_threads(DeltaSaver.in_memory(), sample=sample)  # type: ignore[arg-type]


async def test_a_sample_of_chosen_threads_is_refused() -> None:
    with pytest.raises(InvalidConfigError):
        await verify_threads(DeltaSaver.in_memory(), ["a"], sample=2)


async def test_writes_without_their_checkpoint_are_a_notice(saver: DeltaSaver) -> None:
    story = Story(saver)
    head = await story.grow(3)
    later = {"configurable": {**head.config["configurable"], "checkpoint_id": "not there yet"}}
    await saver.aput_writes(later, [("words", ["early"])], "task")  # type: ignore[arg-type]
    report = await verify_threads(saver)
    assert report.is_sound
    [outcome] = report.noted
    [finding] = outcome.found.findings
    assert (finding.kind, finding.is_notice) == ("orphan", True)
    assert "not there yet" in finding.detail
