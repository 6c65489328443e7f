"""Random trees, values and bytes: what is shown agrees with what the saver gives."""

from __future__ import annotations

import asyncio
from typing import Any

import ormsgpack
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from deltastore import DeltaSaver
from deltastore.conversion.convert import codec_of
from deltastore.core.codec import MSGPACK_TAG
from deltastore.inspection import ChannelChange, HistoryEntry, Unopened, history
from deltastore.inspection.differences import compare
from deltastore.inspection.values import plain, read_item
from deltastore.langgraph.serializer import LoadedTypesSerializer
from tests.support.puts import Puts

CODEC, _ = codec_of(LoadedTypesSerializer())

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
messages = st.builds(lambda number, text: HumanMessage(text, id=str(number)), st.integers(0, 6), st.sampled_from("ab"))
lists = st.lists(values | messages, max_size=8) | st.lists(messages, max_size=8)


@given(lists, lists)
def test_differences_turn_one_list_into_the_other(old: list[Any], new: list[Any]) -> None:
    first, second = CODEC.encode(old, "old"), CODEC.encode(new, "new")
    found = list(compare(CODEC, first, second, "channel"))
    assert (found == []) is (first.items == second.items)
    counts = {how: sum(each.how == how for each in found) for how in ("added", "removed", "changed")}
    assert len(old) - counts["removed"] + counts["added"] == len(new)
    kept = list(second.items)
    for each in sorted((each for each in found if each.how != "removed"), key=lambda each: -int(each.place or 0)):
        position = int(each.place or 0)
        assert CODEC.encode([each.after], "after").items[0] == kept.pop(position)
    gone = [int(each.place or 0) for each in found if each.how == "removed"]
    assert all(CODEC.encode([each.before], "before").items[0] in first.items for each in found if each.how != "added")
    assert len(gone) == len(set(gone))


@given(
    st.dictionaries(st.text(max_size=2), values, max_size=5), st.dictionaries(st.text(max_size=2), values, max_size=5)
)
def test_differences_turn_one_dict_into_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    first, second = CODEC.encode(old, "old"), CODEC.encode(new, "new")
    result = dict(old)
    for each in compare(CODEC, first, second, "channel"):
        if each.how == "removed":
            del result[str(each.place)]
        else:
            result[str(each.place)] = each.after
    assert {key: CODEC.encode(value, "x") for key, value in result.items()} == {
        key: CODEC.encode(value, "x") for key, value in new.items()
    }


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 3), max_size=4)), min_size=1, max_size=25))
def test_histories_of_random_trees(steps: list[tuple[int, list[int]]]) -> None:
    saver = DeltaSaver.in_memory(snapshot_frequency=4)
    puts, ids = Puts(saver), list[str]()
    logs: dict[str | None, list[int] | None] = {None: None}
    parents: dict[str, str | None] = {}
    for step, log in steps:
        parent = ids[-step] if 0 < step <= len(ids) else None
        ids.append(puts.put(parent, {"log": log}))
        logs[ids[-1]], parents[ids[-1]] = log, parent

    async def collect() -> list[HistoryEntry]:
        return [each async for each in history(saver, "t")]

    found = asyncio.run(collect())
    assert [(each.checkpoint_id, each.parent_id) for each in found] == [(each, parents[each]) for each in ids[::-1]]
    for each in found:
        before, after = logs[parents[each.checkpoint_id]], logs[each.checkpoint_id]
        assert after is not None
        how, size = ("new", None) if before is None else ("changed", len(before))
        assert each.changes == (ChannelChange("log", how, size, len(after)),)
        assert each.problem == ""


@given(st.binary(max_size=60), st.integers(0, 9), values)
def test_hostile_bytes_are_shown_and_never_called(garbage: bytes, code: int, value: Any) -> None:
    for item in (
        MSGPACK_TAG + garbage,
        MSGPACK_TAG + ormsgpack.packb(ormsgpack.Ext(code, garbage)),
        MSGPACK_TAG + ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(["os", "system", value]))),
        MSGPACK_TAG + ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(value))),
    ):
        plain(read_item(CODEC, item, "x"))


def test_what_a_hostile_item_names_is_not_called() -> None:
    inner: Any = "id"
    for _ in range(3000):
        inner = ormsgpack.Ext(0, ormsgpack.packb(["os", "system", inner]))
    found = read_item(CODEC, MSGPACK_TAG + ormsgpack.packb(inner), "x")
    assert isinstance(found, Unopened)
    shallow = read_item(
        CODEC, MSGPACK_TAG + ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(["os", "system", "id"]))), "x"
    )
    assert (shallow.type_name, shallow.value) == ("os.system", "id")
