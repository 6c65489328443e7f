"""Damaged databases: `verify_threads` names every damage that leaves a trace, and repairs what it names.

No trace is left by the loss of a row that nothing else tells of: a checkpoint on which nothing is built, whose values
and metadata are not its own, and writes that no checkpoint consumed. Then the database is what it would be if that save
had never been made, and nobody can tell the two apart; the test proves that this is all.
"""

from __future__ import annotations

import random
from collections import Counter

import asyncpg
import pytest

from deltastore import DeltaSaver, StoredDataError
from deltastore.conversion.validate import checkpoint_key, thread
from deltastore.postgres.queries import AnyConnection
from deltastore.verification import Outcome, Report, verify_threads
from tests.faults.damage import NOTHING, Damage, damage_once
from tests.faults.stories import Step
from tests.faults.threads import FREQUENCY, Loads, Thread, restore

PROOFS = [pytest.param(1, 30, id="30"), pytest.param(2, 300, marks=pytest.mark.slow, id="300")]
ROWS = "SELECT " + " + ".join(
    f"(SELECT count(*) FROM deltastore.delta_{table})"
    for table in ("checkpoints", "segments", "metadata", "quarantine")
)


def names(outcome: Outcome, damage: Damage) -> bool:
    """Whether a finding is about the damaged row, or about what misses it."""
    row, texts = damage.row, [f"{finding.row}: {finding.detail}" for finding in outcome.found.findings]
    if damage.table == "delta_threads":
        return any(text.startswith("the thread's row") for text in texts)
    if damage.table == "delta_segments":
        number, checkpoint = str(row["segment_id"]), unpacked(row["checkpoint_id"])
        return any(number in text or (damage.kind == "delete" and checkpoint in text) for text in texts)
    if damage.table == "delta_metadata":
        return any(str(row["metadata_id"]) in text for text in texts)
    return any(unpacked(row["checkpoint_id"]) in text for text in texts)


def unpacked(key: bytes) -> str:
    from deltastore.core.identifiers import unpack_checkpoint_id

    return unpack_checkpoint_id(key)


async def is_traceless(connection: AnyConnection, damage: Damage) -> bool:
    """Whether nothing that is left tells of the deleted row."""
    row = damage.row
    if damage.kind != "delete":
        return False
    if damage.table == "delta_segments" and row["kind"] == 3:
        children = "SELECT count(*) FROM backup.delta_checkpoints WHERE parent_id = $1"
        return not await connection.fetchval(children, row["checkpoint_id"])
    if damage.table == "delta_checkpoints":
        traces = (
            "SELECT (SELECT count(*) FROM deltastore.delta_checkpoints WHERE parent_id = $1)"
            " + (SELECT count(*) FROM deltastore.delta_segments WHERE checkpoint_id = $1)"
            " + (SELECT 1 - sign(count(*))::integer FROM deltastore.delta_checkpoints WHERE metadata_id = $2)"
        )
        return not await connection.fetchval(traces, row["checkpoint_id"], row["metadata_id"])
    return False


async def loaded(saver: DeltaSaver, stored: Thread, step: Step) -> str:
    """What comes of loading a checkpoint and its history."""
    saver._bridge.engine.cache.forget(thread("story").key)
    try:
        found = await saver.aget_tuple(step.config)
        history = await saver.aget_delta_channel_history(config=step.config, channels=["log"])
    except StoredDataError:
        return "error"
    if found is None:
        return "gone"
    right = stored.tuples[step.id]
    is_right = found.checkpoint == right.checkpoint and history == stored.histories[step.id]
    return "right" if is_right and found.metadata == right.metadata else "wrong"


async def check_hurt(saver: DeltaSaver, stored: Thread, report: Report) -> dict[str, str]:
    """What is called hurt cannot be loaded; all else is right or gone."""
    hurt = {place.checkpoint_id for outcome in report.damaged for place in outcome.found.hurt}
    states = {step.id: await loaded(saver, stored, step) for step in stored.steps}
    for checkpoint_id, state in states.items():
        assert state == "error" if checkpoint_id in hurt else state in ("right", "gone"), checkpoint_id
    return states


@pytest.mark.parametrize(("seed", "count"), PROOFS)
async def test_every_damage_is_named_and_repaired(stored: Thread, seed: int, count: int) -> None:
    chance = random.Random(seed)
    total: Counter[str] = Counter()
    async with asyncpg.create_pool(stored.dsn, min_size=1, max_size=2) as pool, pool.acquire() as connection:
        saver = DeltaSaver(pool, snapshot_frequency=FREQUENCY)
        assert not (await verify_threads(saver, ["story"])).damaged
        while total["named"] < count:
            damage = await damage_once(connection, chance)
            before = await connection.fetchval(ROWS)
            report = await verify_threads(saver, ["story"])
            loads = Loads(stored, saver, damage)
            await loads.check()
            if await is_traceless(connection, damage):
                assert not report.damaged, damage
                assert len(loads.outcomes) <= 2, damage
                total["without a trace"] += 1
                await restore(connection)
                continue
            [outcome] = report.damaged or report.noted
            assert names(outcome, damage), f"{damage}: {outcome.found.findings}"
            total["named"] += 1
            total[f"{damage.kind} in {damage.table}"] += 1
            total["of them as a notice"] += not report.damaged
            await check_repair(saver, stored, damage, total)
            if damage.kind != "double":
                assert await connection.fetchval(ROWS) >= before, damage
            await restore(connection)
        await Loads(stored, saver, NOTHING).check()
    print(f"seed {seed}", *(f"{number:5} {name}" for name, number in sorted(total.items())), sep="\n")


async def check_repair(saver: DeltaSaver, stored: Thread, damage: Damage, total: Counter[str]) -> None:
    report = await verify_threads(saver, ["story"])
    keyless = damage.kind == "double" or damage.table == "delta_threads"
    before = {} if keyless else await check_hurt(saver, stored, report)
    lost = {place.checkpoint_id for outcome in report.damaged for place in outcome.found.lost}
    repaired = await verify_threads(saver, ["story"], repair=True)
    assert repaired.is_sound, f"{damage}: {[outcome.left for outcome in repaired.damaged]}"
    assert (await verify_threads(saver, ["story"])).is_sound, damage
    for step in stored.steps:
        state = await loaded(saver, stored, step)
        is_gone = step.id in lost or damage.removed(checkpoint_key(step.id))
        assert state == ("gone" if is_gone else "right"), f"{damage}: step {step.number} is {state}"
        total["checkpoints saved"] += before.get(step.id) == "error" and state == "right"
        total["checkpoints quarantined"] += before.get(step.id) == "error" and state == "gone"
    heads = [step async for step in saver.alist(stored.steps[0].config | {"configurable": {"thread_id": "story"}})]
    assert len(heads) == len(stored.steps) - len(lost) - any(damage.removed(checkpoint_key(s.id)) for s in stored.steps)
