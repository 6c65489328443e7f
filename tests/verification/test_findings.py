"""Each kind of finding, made by hand in the storage in memory: what is named, what is hurt, what a repair does."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore import DeltaSaver
from deltastore.conversion.validate import checkpoint_key, thread
from deltastore.core.frame import seal, unseal
from deltastore.core.model import CheckpointRow, SegmentKind
from deltastore.core.payload import checkpoint_binding, metadata_binding, pack, segment_binding, unpack
from deltastore.importer.unopened import UnopenedSerializer
from deltastore.verification import Kind, Outcome, Status, verify_threads
from tests.faults.stories import Story, config_of
from tests.verification.conftest import FREQUENCY

KEY = thread("story").key


@dataclass
class Stored:
    """A saver in memory with a thread, and the thread's rows."""

    saver: DeltaSaver
    story: Story

    @property
    def rows(self) -> Any:
        return self.saver._bridge.engine.storage._threads[KEY]  # type: ignore[attr-defined]

    def row(self, number: int) -> CheckpointRow:
        return self.rows.checkpoints["", checkpoint_key(self.story.steps[number].id)]  # type: ignore[no-any-return]

    def put(self, row: CheckpointRow) -> None:
        self.rows.checkpoints[row.key] = row

    def reseal(self, row: CheckpointRow, **columns: Any) -> None:
        """Changes columns, and the checksum with them."""
        changed = replace(row, **columns)
        plain = unseal(row.payload, associated=checkpoint_binding(row))
        self.put(replace(changed, payload=seal(plain, associated=checkpoint_binding(changed))))

    def damage(self, row: CheckpointRow) -> None:
        self.put(replace(row, payload=row.payload[:-1] + bytes([row.payload[-1] ^ 1])))

    async def verify(self, **options: Any) -> Outcome:
        self.saver._bridge.engine.cache.forget(KEY)
        report = await verify_threads(self.saver, ["story"], **options)
        [outcome] = report.damaged or report.noted
        return outcome

    async def repaired(self) -> Outcome:
        outcome = await self.verify(repair=True)
        assert outcome.status is Status.REPAIRED
        assert outcome.is_sound, outcome.left
        return outcome

    async def readable(self) -> list[int]:
        """The steps that are still there; all of them are right."""
        found = {
            each.config["configurable"]["checkpoint_id"]: each async for each in self.saver.alist(config_of("story"))
        }
        for step in self.story.steps:
            if step.id in found:
                assert found[step.id].checkpoint == step.checkpoint
        return [number for number, step in enumerate(self.story.steps) if step.id in found]


@pytest.fixture
async def stored() -> Stored:
    saver = DeltaSaver.in_memory(snapshot_frequency=FREQUENCY)
    story = Story(saver, seed=5, words_max=1500)
    await story.grow(12)
    return Stored(saver, story)


def kinds(outcome: Outcome) -> list[str]:
    return [str(finding.kind) for finding in outcome.found.findings]


def verbs(outcome: Outcome) -> set[str]:
    return {action.verb for action in outcome.actions}


async def test_a_damaged_delta_hurts_what_is_built_on_it(stored: Stored) -> None:
    stored.damage(stored.row(7))
    outcome = await stored.verify()
    [finding] = outcome.found.findings
    assert finding.kind is Kind.PAYLOAD
    assert finding.at is not None
    assert finding.at.checkpoint_id == stored.story.steps[7].id
    assert [each.checkpoint_id for each in finding.hurt] == [step.id for step in stored.story.steps[7:10]]
    assert finding.lost == finding.hurt
    assert not outcome.found.readable, "the newest checkpoint can be loaded"
    assert verbs(await stored.repaired()) == {"quarantine", "cut off"}
    assert await stored.readable() == [0, 1, 2, 3, 4, 5, 6, 10, 11]
    assert (await verify_threads(stored.saver)).is_sound
    await stored.story.grow(3, stored.story.steps[11])
    assert (await verify_threads(stored.saver)).is_sound


async def test_a_lost_value_that_the_next_checkpoint_replaced_is_lost_alone(stored: Stored) -> None:
    saver, head = stored.saver, stored.story.steps[-1]
    configs = [head.config]
    for number in range(3):
        checkpoint: Any = {
            **head.checkpoint,
            "id": f"ffffffff-{number}",
            "channel_values": {"blob": f"{number}" * 5000},
        }
        versions: Any = {"blob": number + 1}
        checkpoint["channel_versions"] = versions
        configs.append(await saver.aput(configs[-1], checkpoint, {"step": number}, versions))
    middle = stored.rows.checkpoints["", checkpoint_key("ffffffff-1")]
    segment = stored.rows.segments[middle.segments[0]]
    assert segment.kind is SegmentKind.VALUES
    stored.rows.segments[segment.segment_id] = replace(segment, payload=segment.payload[:-1])
    outcome = await stored.verify()
    [finding] = outcome.found.findings
    assert [each.checkpoint_id for each in finding.hurt] == ["ffffffff-1", "ffffffff-2"]
    assert [each.checkpoint_id for each in finding.lost] == ["ffffffff-1"]
    assert [each.checkpoint_id for each in outcome.found.readable] == ["ffffffff-0"]
    repaired = await stored.repaired()
    assert verbs(repaired) == {"re-anchor", "cut off", "quarantine"}
    found = await saver.aget_tuple(configs[-1])
    assert found is not None
    assert found.checkpoint["channel_values"] == {"blob": "2" * 5000}
    assert found.parent_config is None
    assert len(stored.rows.quarantine) == 2, "the checkpoint and its segment"


async def test_changed_columns_are_found_again(stored: Stored) -> None:
    for changes in ({"parent_id": stored.row(9).checkpoint_id}, {"depth": 4}, {"metadata_id": 12}, {"parent_id": None}):
        row = stored.row(7)
        stored.put(replace(row, **changes))
        outcome = await stored.verify()
        [finding] = outcome.found.findings
        assert finding.kind is (Kind.CYCLE if changes == {"parent_id": stored.row(9).checkpoint_id} else Kind.LINK)
        assert "its payload was made for" in finding.detail
        assert len(finding.hurt) == 3
        assert not finding.lost
        assert verbs(await stored.repaired()) == {"mend"}
        assert stored.row(7) == row
        assert await stored.readable() == list(range(12))


async def test_a_circle_of_anchors_is_cut(stored: Stored) -> None:
    assert stored.row(5).depth == stored.row(10).depth == 0
    stored.reseal(stored.row(5), parent_id=stored.row(9).checkpoint_id)
    outcome = await stored.verify()
    assert "cycle" in kinds(outcome)
    assert not outcome.found.hurt, "every anchor of it can be loaded"
    assert verbs(await stored.repaired()) == {"cut off"}
    assert await stored.readable() == list(range(12))


async def test_a_circle_of_deltas_is_lost(stored: Stored) -> None:
    stored.reseal(stored.row(6), parent_id=stored.row(9).checkpoint_id)
    outcome = await stored.verify()
    assert {"cycle", "link"} <= set(kinds(outcome))
    assert len(outcome.found.lost) == 4
    await stored.repaired()
    assert await stored.readable() == [0, 1, 2, 3, 4, 5, 10, 11]


async def test_a_wrong_depth_with_a_right_checksum(stored: Stored) -> None:
    stored.reseal(stored.row(8), depth=1)
    outcome = await stored.verify()
    assert kinds(outcome) == ["link", "link"], "the row itself, and the one behind it"
    await stored.repaired()
    assert await stored.readable() == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11]


async def test_an_anchor_that_differs_from_its_chain(stored: Stored) -> None:
    row = stored.row(10)
    document = unpack(unseal(row.payload, associated=checkpoint_binding(row)))
    channels = list(document[3][1])
    facts = next(value for value in document[4] if channels[value[0]] == "facts")
    steps, indexes, keys = facts[2][0]
    facts[2][0] = [steps[1:], indexes[1:], keys[1:]] if steps[0] is None else [[None], [b"\x00\x01"], keys[:1]]
    stored.put(replace(row, payload=seal(pack(document), associated=checkpoint_binding(row))))
    outcome = await stored.verify(repair=True)
    assert kinds(outcome) == ["anchor"]
    assert "'facts'" in outcome.found.findings[0].detail
    assert outcome.status is Status.LEFT, "which of the two is right, nobody can tell"


async def test_the_searchable_form_of_metadata(stored: Stored) -> None:
    [(number, document)] = stored.rows.metadata.items()
    stored.rows.metadata[number] = replace(document, document='{"parents": {"a": 1}}')
    outcome = await stored.verify()
    assert kinds(outcome) == ["metadata"]
    assert verbs(await stored.repaired()) == {"rewrite"}
    assert stored.rows.metadata[number] == document


async def test_missing_metadata(stored: Stored) -> None:
    stored.rows.metadata.clear()
    outcome = await stored.verify()
    assert set(kinds(outcome)) == {"missing"}
    assert len(outcome.found.lost) == 12
    await stored.repaired()
    assert await stored.readable() == []


async def test_metadata_under_a_wrong_number(stored: Stored) -> None:
    [(number, document)] = stored.rows.metadata.items()
    plain = unseal(document.payload, associated=metadata_binding(number))
    payload = seal(plain, associated=metadata_binding(77))
    stored.rows.metadata[77] = replace(document, metadata_id=77, payload=payload)
    outcome = await stored.verify()
    assert kinds(outcome) == ["payload"]
    assert not outcome.found.hurt
    assert verbs(await stored.repaired()) == {"quarantine"}


async def test_orphans(stored: Stored) -> None:
    [(number, document)] = stored.rows.metadata.items()
    gone = b"\x00" * 17
    binding = segment_binding(SegmentKind.VALUES, "", gone)
    segment = replace(
        next(iter(stored.rows.segments.values())),
        segment_id=999_999,
        kind=SegmentKind.VALUES,
        checkpoint_id=gone,
        payload=seal(pack([[b"\x00\x01"]]), associated=binding),
    )
    stored.rows.segments[999_999] = segment
    outcome = await stored.verify()
    assert kinds(outcome) == ["orphan"]
    assert "segment 999999" in outcome.found.findings[0].row
    assert verbs(await stored.repaired()) == {"quarantine"}
    assert stored.rows.quarantine == [segment]
    assert stored.rows.metadata == {number: document}


async def test_a_parent_that_is_missing_behind_an_anchor(stored: Stored) -> None:
    del stored.rows.checkpoints[stored.row(9).key]
    outcome = await stored.verify()
    assert kinds(outcome)[0] == "link"
    assert not outcome.found.hurt
    assert verbs(await stored.repaired()) == {"cut off"}
    assert await stored.readable() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]


async def test_hidden_rows_that_others_need(stored: Stored) -> None:
    for number in (5, 6, 7):
        stored.put(replace(stored.row(number), hidden=True))
    stored.put(replace(stored.row(8), orphaned=True))
    assert (await verify_threads(stored.saver)).is_sound
    stored.damage(stored.row(7))
    outcome = await stored.verify()
    assert [each.checkpoint_id for each in outcome.found.hurt] == [step.id for step in stored.story.steps[8:10]]
    await stored.repaired()
    assert await stored.readable() == [0, 1, 2, 3, 4, 10, 11]


async def test_a_wrong_thread_id(stored: Stored) -> None:
    stored.rows.ref = replace(stored.rows.ref, thread_id="another")
    unnamed = await verify_threads(stored.saver, repair=True)
    [outcome] = unnamed.damaged
    assert outcome.status is Status.LEFT
    assert "name the thread by its id" in outcome.plan.refusal
    assert kinds(await stored.verify()) == ["thread"]


async def test_types_that_cannot_be_built(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("application_state")
    monkeypatch.setitem(sys.modules, "application_state", module)
    from pydantic import create_model

    ticket = create_model("Ticket", __module__="application_state", number=(int, ...))
    module.Ticket = ticket  # type: ignore[attr-defined]
    head = stored.story.steps[-1]
    checkpoint: Any = {**head.checkpoint, "id": "ffffffff", "channel_values": {"ticket": ticket(number=3)}}
    checkpoint["channel_versions"] = {"ticket": 1}
    await stored.saver.aput(head.config, checkpoint, {"step": 1}, {"ticket": 1})
    assert (await verify_threads(stored.saver)).is_sound
    monkeypatch.delitem(sys.modules, "application_state")
    outcome = await stored.verify(repair=True)
    [finding] = outcome.found.findings
    assert finding.kind is Kind.TYPE
    assert "application_state.Ticket" in finding.detail
    assert [each.checkpoint_id for each in finding.hurt] == ["ffffffff"]
    assert not finding.lost
    assert outcome.status is Status.LEFT, "a module is missing, not a row"
    stored.saver.serde = UnopenedSerializer()
    assert (await verify_threads(stored.saver)).is_sound


async def test_values_that_no_serializer_reads(stored: Stored) -> None:
    segment = next(each for each in stored.rows.segments.values() if each.kind is SegmentKind.WRITES)
    binding = segment_binding(segment.kind, "", segment.checkpoint_id)
    document = unpack(unseal(segment.payload, associated=binding))
    document[3][0] = b"\x00\xc1"
    payload = seal(pack(document), associated=binding)
    stored.rows.segments[segment.segment_id] = replace(segment, payload=payload)
    outcome = await stored.verify(repair=True)
    assert kinds(outcome) == ["value"]
    assert outcome.found.hurt
    assert not outcome.found.lost
    assert outcome.status is Status.LEFT


async def test_without_the_key_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "0123456789abcdef")
    serde = EncryptedSerializer.from_pycryptodome_aes()
    saver = DeltaSaver.in_memory(snapshot_frequency=FREQUENCY, serde=serde)
    stored = Stored(saver, Story(saver, seed=5, words_max=300))
    await stored.story.grow(6)
    assert (await verify_threads(saver)).is_sound
    stored.damage(stored.row(3))
    saver.serde = DeltaSaver.in_memory().serde
    outcome = await stored.verify(repair=True)
    assert sorted(kinds(outcome)) == ["cipher", "payload"], "one for all rows with one reason"
    assert " and 1" in next(each.row for each in outcome.found.findings if each.kind is Kind.CIPHER)
    assert outcome.status is Status.LEFT
    assert "give the key" in outcome.plan.refusal
    saver.serde = serde
    assert kinds(await stored.verify()) == ["payload"]
    await stored.repaired()
    assert await stored.readable() == [0, 1, 2, 5]


async def test_a_thread_that_changes_before_its_repair(stored: Stored) -> None:
    stored.damage(stored.row(7))

    def change(outcome: Outcome) -> None:
        assert outcome.status is Status.DAMAGED
        stored.damage(stored.row(2))

    outcome = await stored.verify(repair=True, planned=change)
    assert outcome.status is Status.CHANGED
    assert not outcome.is_sound
    assert len(stored.rows.checkpoints) == 12
    await stored.repaired()
