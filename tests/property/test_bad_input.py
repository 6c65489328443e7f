"""Ids, names, versions and arguments of wrong form: the documented meaning, or one clear error before any SQL."""

from __future__ import annotations

import random
import string
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore import DeltaSaver
from deltastore.errors import CallerError, InvalidConfigError
from tests.property.kinds import Colour, OldColour
from tests.support.exact import exact
from tests.support.puts import Puts, uuid_of


class Untouchable:
    """Stands in for the engine: no call may get so far."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the engine was asked for {name}")


def random_text(length: int) -> str:
    return "".join(random.Random(length).choices(string.ascii_letters + "é \U0001f600%_'\"\\", k=length))


def configured(**settings: Any) -> Any:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", **settings}}


CHECKPOINT: Any = {
    "v": 2,
    "id": uuid_of(7),
    "ts": "2024-05-04T06:32:42.235444+00:00",
    "channel_values": {"a": 1},
    "channel_versions": {"a": 1},
    "versions_seen": {},
    "updated_channels": None,
}
CALLS: dict[str, Callable[[DeltaSaver, Any], Any]] = {
    "put": lambda saver, config: saver.put(config, CHECKPOINT, {"source": "loop", "step": 0}, {"a": 1}),
    "put_writes": lambda saver, config: saver.put_writes(config, [("a", 1)], "task"),
    "get_tuple": lambda saver, config: saver.get_tuple(config),
    "list": lambda saver, config: list(saver.list(config)),
    "history": lambda saver, config: saver.get_delta_channel_history(config=config, channels=["a"]),
}
BAD_TEXT: dict[str, Any] = {
    "bytes": b"t",
    "list": ["t"],
    "dict": {"t": 1},
    "float": 1.5,
    "bool": True,
    "NUL": "a\x00b",
    "surrogate": "a\ud800",
}


@pytest.fixture
def closed() -> Any:
    """A saver whose engine must not be reached."""
    saver = DeltaSaver.in_memory()
    saver._bridge._engine = Untouchable()  # type: ignore[assignment]
    return saver


@pytest.mark.parametrize("kind", [*BAD_TEXT, "None", "empty"])
@pytest.mark.parametrize("call", CALLS)
def test_a_thread_id_of_wrong_form_is_refused(closed: Any, call: str, kind: str):
    value = {**BAD_TEXT, "None": None, "empty": ""}[kind]
    with pytest.raises(InvalidConfigError, match="thread_id"):
        CALLS[call](closed, configured(thread_id=value, checkpoint_id=uuid_of(1)))


@pytest.mark.parametrize("kind", BAD_TEXT)
@pytest.mark.parametrize("call", CALLS)
def test_a_namespace_of_wrong_form_is_refused(closed: Any, call: str, kind: str):
    with pytest.raises(InvalidConfigError, match="checkpoint_ns"):
        CALLS[call](closed, configured(checkpoint_ns=BAD_TEXT[kind], checkpoint_id=uuid_of(1)))


@pytest.mark.parametrize("kind", BAD_TEXT)
@pytest.mark.parametrize("call", CALLS)
def test_a_checkpoint_id_of_wrong_form_is_refused(closed: Any, call: str, kind: str):
    with pytest.raises(InvalidConfigError, match="checkpoint id"):
        CALLS[call](closed, configured(checkpoint_id=BAD_TEXT[kind]))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("config", [None, {}, {"configurable": None}, {"configurable": {}}, "t", 5], ids=repr)
def test_a_config_without_a_thread_is_refused(closed: Any, call: str, config: Any):
    if call == "list" and config is None:
        return  # lists all threads
    with pytest.raises(InvalidConfigError, match=r"thread_id|configurable"):
        CALLS[call](closed, config)


@pytest.mark.parametrize("checkpoint_id", ["", None])
def test_writes_need_a_checkpoint(closed: Any, checkpoint_id: Any):
    with pytest.raises(InvalidConfigError, match="checkpoint_id"):
        closed.put_writes(configured(checkpoint_id=checkpoint_id), [("a", 1)], "task")
    with pytest.raises(InvalidConfigError, match="checkpoint_id"):
        closed.put_writes(configured(), [("a", 1)], "task")


def put_with(saver: DeltaSaver, **changes: Any) -> None:
    checkpoint: Any = {**CHECKPOINT, **changes}
    saver.put(configured(), checkpoint, {"source": "loop", "step": 0}, {"a": 1})


@pytest.mark.parametrize("value", [*BAD_TEXT.values(), "", None], ids=repr)
def test_the_id_of_a_put_checkpoint_must_be_a_text(closed: Any, value: Any):
    with pytest.raises(InvalidConfigError, match="checkpoint id"):
        put_with(closed, id=value)


def test_a_checkpoint_is_not_its_own_parent(closed: Any):
    with pytest.raises(InvalidConfigError, match="its own parent"):
        CALLS["put"](closed, configured(checkpoint_id=CHECKPOINT["id"]))


@pytest.mark.parametrize(
    "version", [None, 2**64, -(2**63) - 1, float("nan"), float("inf"), True, b"1", "\ud800", (1,)], ids=repr
)
def test_versions_are_integers_floats_or_texts(closed: Any, version: Any):
    with pytest.raises(InvalidConfigError, match="version"):
        put_with(closed, channel_versions={"a": version})
    with pytest.raises(InvalidConfigError, match="version"):
        put_with(closed, versions_seen={"n": {"a": version}})


@pytest.mark.parametrize(
    "version", [0, -1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0.5, -0.0, 1e300, "", "1", "x" * 5000, "é\x00"], ids=repr
)
def test_unusual_versions_come_back_exactly(version: Any):
    puts = Puts(DeltaSaver.in_memory(snapshot_frequency=2))
    root = puts.put(None, {"b": 1}, versions={"a": version})
    head = puts.put(root, {"b": 2})
    head = puts.put(head, {"b": 3}, versions={**puts.versions[head], "a": 1})
    head = puts.put(head, {"b": 3}, versions={**puts.versions[head], "a": version})
    for checkpoint_id in (root, head):
        found = puts.found(checkpoint_id).checkpoint["channel_versions"]["a"]
        assert (type(found), found, repr(found)) == (type(version), version, repr(version))


@pytest.mark.parametrize("name", [b"t", 1.5, True, "a\x00b", "a\ud800", None, 5], ids=repr)
def test_names_of_wrong_form_are_refused(closed: Any, name: Any):
    for attempt in (
        lambda: put_with(closed, channel_versions={name: 1}),
        lambda: put_with(closed, versions_seen={name: {}}),
        lambda: put_with(closed, versions_seen={"n": {name: 1}}),
        lambda: put_with(closed, updated_channels=[name]),
        lambda: closed.put(configured(), {**CHECKPOINT, "channel_values": {name: 1}}, {}, {name: 1}),
        lambda: closed.put(configured(), CHECKPOINT, {}, {name: 1, "a": 1}),
        lambda: closed.put_writes(configured(checkpoint_id=uuid_of(1)), [(name, 1)], "task"),
        lambda: closed.put_writes(configured(checkpoint_id=uuid_of(1)), [("a", 1)], name),
        lambda: closed.put_writes(configured(checkpoint_id=uuid_of(1)), [("a", 1)], "task", name),
    ):
        with pytest.raises(CallerError):
            attempt()


@pytest.mark.parametrize("checkpoint", [None, {}, [], "x", {"id": uuid_of(1)}, {"channel_versions": {}}], ids=repr)
def test_what_is_no_checkpoint_is_refused(closed: Any, checkpoint: Any):
    with pytest.raises(InvalidConfigError):
        closed.put(configured(), checkpoint, {}, {})


@pytest.mark.parametrize(
    ("changes", "metadata", "new_versions"),
    [
        ({"channel_versions": None}, {}, {}),
        ({"channel_versions": [1]}, {}, {}),
        ({"versions_seen": None}, {}, {}),
        ({"versions_seen": {"n": None}}, {}, {}),
        ({"channel_values": [1]}, {}, {"a": 1}),
        ({"updated_channels": "abc"}, {}, {}),
        ({"updated_channels": 5}, {}, {}),
        ({"ts": 5}, {}, {}),
        ({}, None, {}),
        ({}, [], {}),
        ({}, {}, None),
        ({}, {}, ["a"]),
    ],
    ids=repr,
)
def test_parts_of_wrong_form_are_refused(closed: Any, changes: Any, metadata: Any, new_versions: Any):
    with pytest.raises(CallerError):
        closed.put(configured(), {**CHECKPOINT, **changes}, metadata, new_versions)


@pytest.mark.parametrize("limit", [-1, 1.5, "5", True, b""], ids=repr)
def test_a_limit_of_wrong_form_is_refused(closed: Any, limit: Any):
    with pytest.raises(InvalidConfigError, match="limit"):
        list(closed.list(configured(), limit=limit))


@pytest.mark.parametrize("before", [configured(), configured(checkpoint_id=""), {}, "x", {"configurable": 1}], ids=repr)
def test_before_must_name_a_checkpoint(closed: Any, before: Any):
    with pytest.raises(InvalidConfigError):
        list(closed.list(configured(), before=before))


@pytest.mark.parametrize("given_filter", ["x", [1], {1: "a"}, 5], ids=repr)
def test_a_filter_of_wrong_form_is_refused(closed: Any, given_filter: Any):
    with pytest.raises(InvalidConfigError, match="filter"):
        list(closed.list(configured(), filter=given_filter))


def test_threads_to_prune_and_runs_to_delete_are_sequences_of_texts(closed: Any):
    for call in (closed.prune, closed.delete_for_runs):
        with pytest.raises(TypeError):
            call("t")
        with pytest.raises(TypeError):
            call(None)
        with pytest.raises(ValueError, match=r"thread_ids|run_ids"):
            call([b"t"])
    with pytest.raises(ValueError, match="strategy"):
        closed.prune(["t"], strategy="keep_some")
    with pytest.raises(ValueError, match="itself"):
        closed.copy_thread("t", "t")
    for bad in (None, "", 1.5, b"t"):
        with pytest.raises(ValueError, match="thread_id"):
            closed.delete_thread(bad)
        with pytest.raises(ValueError, match="thread_id"):
            closed.copy_thread("t", bad)


def test_names_that_are_enums_are_their_text():
    puts = Puts(DeltaSaver.in_memory())
    root = puts.put(None, {OldColour.BLUE: [1]}, versions={Colour.RED: Colour.RED})
    puts.write(root, [(OldColour.BLUE, 1)], OldColour.BLUE, Colour.RED)
    found = puts.found(root)
    assert exact(found.checkpoint["channel_values"]) == exact({"blue": [1]})
    assert exact(found.checkpoint["channel_versions"]) == exact({"red": "red", "blue": 1})
    assert exact(found.pending_writes) == exact([("blue", "blue", 1)])


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("given_id", "text"),
    [
        (5, "5"),
        (-5, "-5"),
        (uuid.UUID(int=9), str(uuid.UUID(int=9))),
        (Name("sub"), "sub"),
        (OldColour.BLUE, "blue"),
        (Colour.RED, "red"),
    ],
    ids=repr,
)
def test_an_integer_a_uuid_and_a_str_subclass_mean_their_text(given_id: Any, text: str):
    """F33: in every method."""
    saver = DeltaSaver.in_memory()
    CALLS["put"](saver, configured(thread_id=given_id))
    for thread_id in (given_id, text):
        found = saver.get_tuple(configured(thread_id=thread_id))
        assert found is not None
        assert type(found.config["configurable"]["thread_id"]) is str
        assert len(list(saver.list(configured(thread_id=thread_id)))) == 1
    saver.copy_thread(given_id, "copy")
    saver.prune([given_id])
    assert saver.get_tuple(configured(thread_id="copy")) is not None
    saver.delete_thread(given_id)
    assert saver.get_tuple(configured(thread_id=text)) is None


def test_a_missing_namespace_is_the_root_in_every_method():
    """F33; and in `list` a missing one means all, an empty one the root."""
    saver = DeltaSaver.in_memory()
    CALLS["put"](saver, {"configurable": {"thread_id": "t"}})
    CALLS["put"](saver, configured(checkpoint_ns="inner"))
    bare: Any = {"configurable": {"thread_id": "t"}}
    named: Any = {"configurable": {"thread_id": "t", "checkpoint_id": CHECKPOINT["id"]}}
    saver.put_writes(named, [("a", 2)], "task")
    for config in (bare, configured(), configured(checkpoint_ns=None), named):
        found = saver.get_tuple(config)
        assert found is not None
        assert found.config["configurable"]["checkpoint_ns"] == ""
        assert len(found.pending_writes or []) == 1
    assert saver.get_delta_channel_history(config=bare, channels=["a"]) == {"a": {"writes": []}}
    assert [each.config["configurable"]["checkpoint_ns"] for each in saver.list(bare)] == ["inner", ""]
    assert len(list(saver.list(configured()))) == 1


@pytest.mark.parametrize("length", [1, 255, 2000, 2700, 10_000])
def test_thread_ids_of_any_length_are_kept_apart(database_dsn: str, length: int):
    """F34: also those that begin alike."""
    text = random_text(length)
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        for suffix in ("", "a", "b", "%", "_"):
            puts = Puts(saver, text + suffix)
            puts.step(puts.put(None, {"a": suffix}), "b", suffix)
        for suffix in ("", "a", "b", "%", "_"):
            puts = Puts(saver, text + suffix)
            assert puts.values(uuid_of(1)) == {"a": suffix}
            assert puts.history(uuid_of(2), "b")[1] == [suffix]
            assert [each.config["configurable"]["thread_id"] for each in saver.list(puts.config())] == [
                text + suffix
            ] * 2
        saver.delete_thread(text + "_")
        assert len(list(saver.list(None))) == 8


@pytest.mark.parametrize("length", [1, 255, 500])
def test_long_checkpoint_ids_and_namespaces_are_kept_or_refused(database_dsn: str, length: int):
    with DeltaSaver.from_conn_string(database_dsn) as saver:
        namespace = "|".join(["node:12345678-1234-1234-1234-123456789012"] * 12)
        puts = Puts(saver, "t", namespace)
        ids = [random_text(length)[:-1] + last for last in "abc"]
        ids = [each if len(each.encode()) <= 500 else each.encode()[:500].decode(errors="ignore") for each in ids]
        parent = None
        for each in dict.fromkeys(ids):
            parent = puts.put(parent, {"a": each}, checkpoint_id=each)
            puts.write(each, [("a", each)])
        for each in dict.fromkeys(ids):
            assert puts.values(each) == {"a": each}
        assert [each.checkpoint["id"] for each in saver.list(puts.config())] == sorted(set(ids), reverse=True)
        for bad in (configured(checkpoint_ns="n" * 1501), configured(checkpoint_id="x" * 501)):
            for call in CALLS.values():
                with pytest.raises(InvalidConfigError, match="too long"):
                    call(saver, bad)


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1),
        min_size=1,
        max_size=6,
        unique=True,
    )
)
def test_any_ids_are_listed_in_the_order_of_their_text(ids: list[str]):
    """F35: what is newest is the largest id, in every method alike."""
    ids = [each for each in ids if len(each.encode()) <= 500]
    puts = Puts(DeltaSaver.in_memory())
    parent = None
    for each in ids:
        parent = puts.put(parent, {"a": each}, checkpoint_id=each)
    assert [each.checkpoint["id"] for each in puts.saver.list(puts.config())] == sorted(ids, reverse=True)
    if ids:
        assert puts.values() == {"a": max(ids)}
        puts.saver.prune(["t"])
        assert puts.values() == {"a": max(ids)}


@settings(max_examples=30)
@given(st.text(max_size=20), st.text(max_size=20))
def test_an_id_is_either_kept_or_refused(thread_id: str, checkpoint_id: str):
    saver: Any = DeltaSaver.in_memory()
    config = configured(thread_id=thread_id)
    try:
        saver.put(config, {**CHECKPOINT, "id": checkpoint_id}, {}, {"a": 1})
    except InvalidConfigError:
        assert not list(saver.list(None))
        return
    found = saver.get_tuple(configured(thread_id=thread_id, checkpoint_id=checkpoint_id))
    assert found is not None
    assert found.checkpoint["id"] == checkpoint_id
    assert found.checkpoint["channel_values"] == {"a": 1}


def test_a_put_without_parent_on_a_thread_is_a_new_root_with_its_whole_state():
    """F43: a helper that writes a metadata-only checkpoint and forgets the parent."""
    puts = Puts(DeltaSaver.in_memory())
    head = puts.put(None, {"a": ["x" * 5000] * 3, "b": 1})
    head = puts.step(head, "d", "write")
    versions = puts.versions[head]
    orphan = puts.put(None, {}, versions=versions, metadata={"note": "only metadata"})
    assert puts.values(orphan) == {"a": ["x" * 5000] * 3, "b": 1}
    assert puts.found(orphan).parent_config is None
    assert puts.history(orphan, "d")[1] == ["write"]
    unknown = puts.put(uuid_of(5000), {}, versions=versions)
    assert puts.values(unknown) == puts.values(orphan)
    assert puts.history(unknown, "d")[1] == ["write"]


def test_a_metadata_only_child_is_small():
    saver = DeltaSaver.in_memory()
    puts = Puts(saver)
    head = puts.put(None, {"a": ["x" * 50_000 + str(number) for number in range(20)]})
    puts.put(head, {}, metadata={"note": "a"})
    storage: Any = saver._bridge.engine.storage
    [thread] = storage._threads.values()
    assert len(max(thread.checkpoints.values(), key=lambda row: row.checkpoint_id).payload) < 2000
    assert len(thread.segments) == 1
