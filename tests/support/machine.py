"""Random calls of a saver, compared after each with a model that keeps full values (`model.py`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore import writing
from deltastore.conversion.convert import IGNORED_CHANNELS
from deltastore.core import packing, pieces
from deltastore.core.chain import Chain
from deltastore.core.compacted import Compaction
from deltastore.core.edits import ThreadRows
from deltastore.core.identifiers import thread_key, unpack_checkpoint_id
from deltastore.core.model import SegmentKind
from deltastore.core.sweep import references
from deltastore.engine import Engine
from deltastore.errors import ThreadDeletedError
from deltastore.langgraph.saver import EngineSaver
from deltastore.options import EngineOptions
from deltastore.storage import Storage
from deltastore.structure import read_rows
from tests.support.exact import address, exact_history, exact_tuple
from tests.support.model import Model, Node, Place, config_of
from tests.support.puts import uuid_of

T = TypeVar("T")

_by_id = attrgetter("segment_id")

CHANNELS = ["a", "b", "c", "d"]
NAMESPACES = ["", "sub:1|inner"]
RUNS = ["run 0", "run 1", "run 2"]
TASKS = ["task 0", "task 1", "0b6e1c3a-7d7e-4e67-9c1e-3f2f8d7f9a10"]
PATHS = ["", "~__pregel_pull, x", "~__pregel_push, 0", "~~0000000001"]
SPECIAL = ["__error__", "__interrupt__", "__resume__", "__scheduled__", "__no_writes__"]
LENGTHS = [0, 1, 13, 14, 15, 16, 40, 200, 1022, 1023, 1500]

texts = st.builds(lambda letter, length: letter * length, st.sampled_from("abx?é"), st.sampled_from(LENGTHS))
scalars = st.one_of(st.integers(-2, 3), texts, st.sampled_from([None, True, 0.0, -0.0, 1.5, b"", b"raw"]))
elements = st.one_of(
    scalars,
    st.lists(scalars, max_size=2),
    st.dictionaries(st.sampled_from(["role", "content"]), scalars, max_size=2),
)
opaque = st.one_of(
    scalars,
    st.tuples(scalars, scalars),
    st.dictionaries(st.integers(0, 2), scalars, max_size=2),
    st.frozensets(st.integers(0, 3)),
)


@st.composite
def edited(draw: st.DrawFn, value: Any) -> Any:
    """A value like the one before: the same, with parts added, changed, moved or taken away."""
    if isinstance(value, _DeltaSnapshot):
        value = value.value
    if isinstance(value, dict):
        return _edited_dict(draw, dict(value))
    return _edited_list(draw, list(value) if isinstance(value, list) else [])


def _edited_list(draw: st.DrawFn, value: list[Any]) -> list[Any]:
    more = draw(st.lists(elements, min_size=1, max_size=4))
    at = draw(st.integers(0, len(value)))
    match draw(
        st.sampled_from(["append", "append", "insert", "replace", "cut", "turn", "rotate", "clear", "repeat", "echo"])
    ):
        case "append":
            value += more
        case "insert":
            value[at:at] = more
        case "replace":
            value[at : at + 1] = more
        case "cut":
            del value[at : at + draw(st.integers(1, 3))]
        case "turn":
            value.reverse()
        case "rotate":
            value = [*value[at:], *value[:at]]
        case "clear":
            value = []
        case "repeat":
            value += value[:6]
    return value


def _edited_dict(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    more = draw(st.dictionaries(st.sampled_from(["k", "l", "m", "n", "é"]), elements, min_size=1, max_size=3))
    match draw(st.sampled_from(["update", "update", "drop", "turn", "clear", "echo"])):
        case "update":
            value.update(more)
        case "drop":
            for key in more:
                value.pop(key, None)
        case "turn":
            value = dict(reversed(value.items()))
        case "clear":
            value = {}
    return value


fresh = st.one_of(
    st.lists(elements, max_size=5),
    st.dictionaries(st.sampled_from(["k", "l", "m"]), elements, max_size=3),
    opaque,
)
ACTIONS = ["keep", "keep", "keep", "edit", "edit", "edit", "fresh", "snapshot", "clear", "drop", "borrow"]


class SaverMachine(RuleBasedStateMachine):
    """Two savers with caches of their own work on one storage, as two processes do."""

    number: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        SaverMachine.number += 1
        self.loop = asyncio.new_event_loop()
        self.model = Model()
        self.threads = [f"{self.number} t{n}" for n in range(2)]
        self.copies = 0
        self.versions = 0
        self.ids = 100
        self.touched: set[str] = set()
        self.calls: Counter[Place] = Counter()
        self.torn: set[Place] = set()
        self.page_pieces, self.early_seconds = (pieces.PAGE_PIECES_MIN, pieces.PAGE_PIECES), writing.EARLY_SECONDS_MAX
        self.pack_bytes = packing.PACK_BYTES, packing.PACK_BYTES_MAX
        writing.EARLY_SECONDS_MAX = 0.0

    async def open_storage(self) -> Storage:
        """The storage under test."""
        raise NotImplementedError

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    @initialize(
        snapshot_frequency=st.sampled_from([1, 2, 3, 5, 8]),
        inline_bytes=st.sampled_from([0, 20, 1024]),
        cache_bytes=st.sampled_from([0, 5_000, 10**8]),
        page_pieces=st.sampled_from([(2, 2), (3, 3), (2, 3), (32, 256)]),
        pack_bytes=st.sampled_from([200, 1000, 2**22]),
    )
    def begin(
        self,
        snapshot_frequency: int,
        inline_bytes: int,
        cache_bytes: int,
        page_pieces: tuple[int, int],
        pack_bytes: int,
    ) -> None:
        pieces.PAGE_PIECES_MIN, pieces.PAGE_PIECES = page_pieces
        packing.PACK_BYTES, packing.PACK_BYTES_MAX = pack_bytes, pack_bytes * 3 // 2
        self.options = EngineOptions(snapshot_frequency, inline_bytes, cache_bytes, IGNORED_CHANNELS)
        self.storage = self.run(self.open_storage())
        self.savers = [self.new_saver(), self.new_saver()]

    def new_saver(self) -> EngineSaver:
        async def never() -> Any:
            raise AssertionError

        saver = EngineSaver(never)
        saver._bridge.adopt(Engine(self.storage, self.options), self.loop)
        return saver

    # --- rules

    @rule(data=st.data(), which=st.integers(0, 1), thread=st.integers(0, 1), namespace=st.sampled_from(NAMESPACES))
    def put(self, data: st.DataObject, which: int, thread: int, namespace: str) -> None:
        """A checkpoint on the head, on any other, on a deleted or unknown one, on none, or copied beside another."""
        place = self.threads[thread], namespace
        parent = self._parent(data, place)
        self._save(which, place, parent, self._new_id(data), data)

    @rule(data=st.data(), which=st.integers(0, 1), thread=st.integers(0, 1), namespace=st.sampled_from(NAMESPACES))
    def super_step(self, data: st.DataObject, which: int, thread: int, namespace: str) -> None:
        """As a graph does it: writes of several tasks to the head and its child, all under way at once."""
        head = next(self.model.visible((self.threads[thread], namespace)), None)
        if head is None:
            return
        for task in range(data.draw(st.integers(1, 3))):
            self._write(which, head.place, f"{head.place[2]} {task}", data)
        self._save(which, head.place[:2], head.place[2], self._new_id(data, grows=True), data)

    @rule(data=st.data(), which=st.integers(0, 1), task=st.sampled_from(TASKS))
    def write(self, data: st.DataObject, which: int, task: str) -> None:
        """Writes to any checkpoint, also to one that has children or that has not arrived."""
        place = self.threads[data.draw(st.integers(0, 1))], data.draw(st.sampled_from(NAMESPACES))
        known = [node.place[2] for node in self.model.visible(place)]
        target = data.draw(st.sampled_from([*known, uuid_of(self.ids + 1)]))
        self._write(which, (*place, target), task, data)

    @rule(data=st.data(), which=st.integers(0, 1))
    def put_again(self, data: st.DataObject, which: int) -> None:
        """A checkpoint with an id that is stored already, the same or another one."""
        nodes = list(self.model.visible((self.threads[data.draw(st.integers(0, 1))],)))
        if not nodes:
            return
        node = data.draw(st.sampled_from(nodes))
        if data.draw(st.booleans()) and node.parent is not None and node.parent_id is not None:
            self._put_same(which, node)
        else:
            parent = self._parent(data, node.place[:2], besides=node.place[2])
            self._save(which, node.place[:2], parent, node.place[2], data)
        self._forget_swept_writes(node.place[0])

    @rule(which=st.integers(0, 1), thread=st.integers(0, 1))
    def keep_latest(self, which: int, thread: int) -> None:
        name = self.threads[thread]
        self.run(self.savers[which].aprune([name]))
        self.model.keep_latest(name)
        self._swept(name)

    @rule(which=st.integers(0, 1), runs=st.lists(st.sampled_from(RUNS), min_size=1, max_size=2))
    def delete_runs(self, which: int, runs: list[str]) -> None:
        self.run(self.savers[which].adelete_for_runs(runs))
        for name in self.model.delete_runs(runs):
            self._swept(name)

    @rule(which=st.integers(0, 1), thread=st.integers(0, 1))
    def compact(self, which: int, thread: int) -> None:
        """Nothing reads otherwise, and a second call finds nothing to do."""
        name = self.threads[thread]
        rows = self._rows(name)
        if rows is not None:
            self.run(self.savers[which].acompact_thread(name))
            assert self.run(self.savers[which].acompact_thread(name)).status is Compaction.UNCHANGED
            found = self._rows(name)
            assert found is not None
            assert [replace(each, pack_id=None) for each in sorted(found.segments, key=_by_id)] == [
                replace(each, pack_id=None, payload=mine.payload)
                for each, mine in zip(
                    sorted(rows.segments, key=_by_id), sorted(found.segments, key=_by_id), strict=True
                )
            ]
            self._check(name)

    @rule(which=st.integers(0, 1), thread=st.integers(0, 1))
    def delete_thread(self, which: int, thread: int) -> None:
        name = self.threads[thread]
        rows = self._rows(name)
        named: tuple[Any, ...] = () if rows is None else (*rows.checkpoints, *rows.segments)
        self.run(self.savers[which].adelete_thread(name))
        self._delete(name, [unpack_checkpoint_id(each.checkpoint_id) for each in named])
        self._check(name)
        assert self._rows(name) is None

    def _delete(self, name: str, ids: list[str]) -> None:
        self.model.delete_thread(name, ids)
        self.calls = Counter({place: calls for place, calls in self.calls.items() if place[0] != name})

    @rule(which=st.integers(0, 1), thread=st.integers(0, 1))
    def copy(self, which: int, thread: int) -> None:
        """The copy takes the place of its original in later calls; the original must stay as it is."""
        self.copies += 1
        target = f"{self.number} c{self.copies}"
        self.run(self.savers[which].acopy_thread(self.threads[thread], target))
        self.model.copy_thread(self.threads[thread], target)
        self.calls |= {
            (target, *place[1:]): calls for place, calls in self.calls.items() if place[0] == self.threads[thread]
        }
        self._check(target)
        self.touched.add(self.threads[thread])
        self.threads[thread] = target

    @rule(which=st.integers(0, 1))
    def forget(self, which: int) -> None:
        """A new process takes the place of one of the two."""
        self.savers[which] = self.new_saver()

    @precondition(lambda self: self.touched)
    @rule()
    def look_back(self) -> None:
        """Threads that were left alone are still what they were."""
        for name in self.touched:
            self._check(name)

    def teardown(self) -> None:
        try:
            if hasattr(self, "storage"):
                for name in [*self.threads, *self.touched]:
                    self._check(name, everything=True)
                self.run(self.storage.close())
        finally:
            pieces.PAGE_PIECES_MIN, pieces.PAGE_PIECES = self.page_pieces
            writing.EARLY_SECONDS_MAX = self.early_seconds
            packing.PACK_BYTES, packing.PACK_BYTES_MAX = self.pack_bytes
            self.run(self.loop.shutdown_asyncgens())
            self.loop.close()

    # --- pieces of the rules

    def _new_id(self, data: st.DataObject, *, grows: bool = False) -> str:
        self.ids += 1
        kind = "next" if grows else data.draw(st.sampled_from(["next", "next", "next", "small", "text"]))
        return {"next": uuid_of(self.ids), "small": uuid_of(10_000 - self.ids)[1:] + "x", "text": f"é{self.ids}"}[kind]

    def _parent(self, data: st.DataObject, place: tuple[str, str], besides: str = "") -> str | None:
        head = next((node.place[2] for node in self.model.visible(place)), None)
        known = [at[2] for at, node in self.model.nodes.items() if at[:2] == place]
        parent = data.draw(st.sampled_from([head, head, head, head, None, uuid_of(1), *known]))
        return None if parent == besides else parent

    def _save(
        self, which: int, place: tuple[str, str], parent_id: str | None, checkpoint_id: str, data: st.DataObject
    ) -> None:
        parent = self.model.nodes.get((*place, parent_id or ""))
        checkpoint, new_versions = self._checkpoint(data, checkpoint_id, place, parent)
        metadata: Any = {"source": "loop", "step": self.ids, "parents": {}, "run_id": data.draw(st.sampled_from(RUNS))}
        config = config_of(*place, parent_id)
        self._put(which, config, checkpoint, metadata, new_versions)

    def _put(self, which: int, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> None:
        name = config["configurable"]["thread_id"]
        stored = self._stored(name)
        if self.model.refuses(config, stored if self._rows(name) else None, is_put=True):
            with pytest.raises(ThreadDeletedError):
                self.run(self.savers[which].aput(config, checkpoint, metadata, new_versions))
            if self._rows(name) is None:
                self._delete(name, [checkpoint["id"]])
            self.model.deleted_through[name] = max(self.model.deleted_through[name], checkpoint["id"])
            self._check(name)
            return
        self.run(self.savers[which].aput(config, checkpoint, metadata, new_versions))
        self.model.put(config, checkpoint, metadata, new_versions, stored.__contains__)
        self._check(name)

    def _put_same(self, which: int, node: Node) -> None:
        """What was put, again: by a caller that did not get the answer."""
        load = self.model.serde.loads_typed
        assert node.parent_id is not None
        assert node.parent is not None
        before = node.parent.checkpoint["channel_versions"]
        versions = node.checkpoint["channel_versions"]
        new = {channel: version for channel, version in versions.items() if before.get(channel) != version}
        values = {channel: load(value) for channel, value in node.values.items()}
        self._put(
            which,
            config_of(*node.place[:2], node.parent_id),
            {**node.checkpoint, "channel_values": values},
            load(node.metadata),
            new,
        )

    def _checkpoint(
        self, data: st.DataObject, checkpoint_id: str, place: tuple[str, str], parent: Node | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        versions = {} if parent is None else dict(parent.checkpoint["channel_versions"])
        values: dict[str, Any] = {}
        new_versions: dict[str, Any] = {}
        others = list(self.model.visible(place))
        for channel in data.draw(st.permutations(CHANNELS)):
            action = data.draw(st.sampled_from(ACTIONS))
            if action == "drop":
                versions.pop(channel, None)
            elif action == "borrow" and others:
                other = data.draw(st.sampled_from(others)).checkpoint["channel_versions"]
                if channel in other:
                    versions[channel] = other[channel]
            elif action not in ("keep", "borrow"):
                versions[channel] = new_versions[channel] = self._version(data)
                if action != "clear":
                    values[channel] = self._value(data, channel, action, parent)
        checkpoint = {
            "v": 4,
            "id": checkpoint_id,
            "ts": f"2024-05-04T06:32:42.{self.ids:06}+00:00",
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": self._seen(data, versions, parent),
            "updated_channels": data.draw(st.sampled_from([None, sorted(new_versions), []])),
        }
        if data.draw(st.booleans()):
            checkpoint["pending_sends"] = data.draw(st.lists(scalars, max_size=1))
        return checkpoint, new_versions

    def _version(self, data: st.DataObject) -> Any:
        self.versions += 1
        return data.draw(st.sampled_from([self.versions, self.versions, self.versions + 0.5, f"{self.versions:032}.5"]))

    def _value(self, data: st.DataObject, channel: str, action: str, parent: Node | None) -> Any:
        stored = None if parent is None else parent.values.get(channel)
        if stored is None and parent is not None:
            stored = parent.history(channel)[0]
        before = None if stored is None else self.model.serde.loads_typed(stored)
        value = data.draw(fresh) if action == "fresh" else data.draw(edited(before))
        return _DeltaSnapshot(value) if action == "snapshot" else value

    def _seen(self, data: st.DataObject, versions: dict[str, Any], parent: Node | None) -> dict[str, Any]:
        seen = {} if parent is None else {node: dict(each) for node, each in parent.checkpoint["versions_seen"].items()}
        node = data.draw(st.sampled_from(["n", "m", "__input__"]))
        match data.draw(st.sampled_from(["sees", "sees", "forgets", "is gone", "nothing"])):
            case "sees":
                before = {} if parent is None else parent.checkpoint["channel_versions"]
                seen[node] = {**seen.get(node, {}), **dict(list((before or versions).items())[:2])}
            case "forgets":
                seen[node] = dict(list(seen.get(node, {}).items())[1:])
            case "is gone":
                seen.pop(node, None)
        return seen

    def _write(self, which: int, place: Place, task: str, data: st.DataObject) -> None:
        writes = data.draw(
            st.lists(st.tuples(st.sampled_from([*CHANNELS, *CHANNELS, *SPECIAL]), elements), min_size=1, max_size=3)
        )
        path = data.draw(st.sampled_from(PATHS))
        config = config_of(*place)
        if self.model.refuses(config, () if self._rows(place[0]) else None, is_put=False):
            with pytest.raises(ThreadDeletedError):
                self.run(self.savers[which].aput_writes(config, writes, task, path))
            return
        self.run(self.savers[which].aput_writes(config, writes, task, path))
        self.calls[place] += 1
        self.model.put_writes(config, writes, task, path)

    # --- checks

    def _check(self, name: str, *, everything: bool = False) -> None:
        """All visible checkpoints of a thread are what the model says; histories of the newest ones, or of all."""
        expected = sorted(self.model.visible((name,)), key=lambda node: (node.place[2], node.place[1]), reverse=True)
        for saver in self.savers if everything else self.savers[:1]:
            found = self.run(self._listed(saver, name))
            assert [address(each.config) for each in found] == [node.place for node in expected]
            for node, each in zip(expected, found, strict=True):
                assert exact_tuple(each) == exact_tuple(self.model.tuple_of(node))
        for node in expected if everything else expected[:3]:
            self._check_node(node)
        for namespace in NAMESPACES:
            head = next(self.model.visible((name, namespace)), None)
            config = config_of(name, namespace)
            wanted = None if head is None else exact_tuple(self.model.tuple_of(head))
            assert exact_tuple(self.run(self.savers[1].aget_tuple(config))) == wanted

    def _check_node(self, node: Node) -> None:
        config = config_of(*node.place)
        for saver in self.savers:
            assert exact_tuple(self.run(saver.aget_tuple(config))) == exact_tuple(self.model.tuple_of(node))
            channels = self._channels_with_history(node)
            found = self.run(saver.aget_delta_channel_history(config=config, channels=channels))
            assert exact_history(found) == exact_history(self.model.history_of(node, channels))

    def _channels_with_history(self, node: Node) -> list[str]:
        """Channels whose history is certain.

        A channel with a value has no history of its own: what is before that value is read from the parent of today,
        with the writes of today.
        """
        if node.is_unsure:
            return []
        place = (*node.place[:2], "" if node.parent is None else node.parent.place[2])
        above = self.model.nodes.get(place)
        unchanged = node.parent is None or (
            above is not None
            and above.values is node.parent.values
            and not above.hidden
            and self.model.ordered_writes(place) == node.consumed
        )
        return [channel for channel in CHANNELS if unchanged or channel not in node.values]

    async def _listed(self, saver: EngineSaver, name: str) -> list[Any]:
        return [each async for each in saver.alist({"configurable": {"thread_id": name}})]

    def _rows(self, name: str) -> ThreadRows | None:
        async def rows() -> ThreadRows | None:
            async with self.storage.edit(thread_key(name)) as edit:
                return await read_rows(edit, None)

        return self.run(rows())

    def _stored(self, name: str) -> set[Place]:
        """The checkpoints of which a row is stored."""
        rows = self._rows(name)
        checkpoints = () if rows is None else rows.checkpoints
        return {(name, row.namespace, unpack_checkpoint_id(row.checkpoint_id)) for row in checkpoints}

    def _swept(self, name: str) -> None:
        """After a deletion."""
        self._forget_swept_writes(name)
        self._check(name)
        self._check_nothing_unneeded(name)

    def _forget_swept_writes(self, name: str) -> None:
        """Writes that wait for their checkpoint are kept for a while."""
        rows = self._rows(name)
        segments = () if rows is None else rows.segments
        stored = Counter(
            (name, each.namespace, unpack_checkpoint_id(each.checkpoint_id))
            for each in segments
            if each.kind is SegmentKind.WRITES
        )
        for place, calls in [*self.calls.items()]:
            if place[0] == name and place not in self.model.nodes and stored[place] != calls:
                self.torn.add(place)  # this checkpoint will not arrive
                self.ids += 1
                stored[place] = 0
        self.model.forget_writes(name, lambda place: stored[place] > 0)

    def _check_nothing_unneeded(self, name: str) -> None:
        """After a deletion only what a visible checkpoint needs is stored, and writes that wait for theirs."""
        rows = self._rows(name)
        if rows is None:
            return
        by_key = {row.key: row for row in rows.checkpoints}
        kept = {}
        for row in rows.checkpoints:
            current = None if row.hidden else row
            while current is not None:
                kept[current.key] = current
                above = None if current.depth == 0 else (current.namespace, current.parent_id)
                current = None if above is None else by_key[above]  # type: ignore[index]
        assert kept == by_key, "a hidden checkpoint that nothing needs"
        assert {row.metadata_id for row in kept.values()} == {number for number, _ in rows.metadata}
        needed: set[int] = set()
        for namespace in NAMESPACES:
            chain = Chain.of(
                rows.thread,
                namespace,
                [row for row in kept.values() if row.namespace == namespace],
                [each for each in rows.segments if each.kind is SegmentKind.PAGES and each.namespace == namespace],
                frozenset(),
                None,
            )
            for row in chain.rows.values():
                needed |= references(chain.payload(row.checkpoint_id), row)
        visible = {node.place for node in self.model.visible((name,))}
        ids = {("", ""), *((row.namespace, unpack_checkpoint_id(row.checkpoint_id)) for row in rows.checkpoints)}
        for segment in rows.segments:
            place = name, segment.namespace, unpack_checkpoint_id(segment.checkpoint_id)
            waits = place in self.torn or (place[1:] not in ids and place[2] > max(each[1] for each in ids))
            if segment.kind is SegmentKind.WRITES and (place in visible or place in self.model.writes or waits):
                needed.add(segment.segment_id)
        stored = {segment.segment_id: segment for segment in rows.segments}
        assert needed <= stored.keys(), "a segment is missing"
        waiting = list(needed)
        while waiting:
            more = set(stored[waiting.pop()].references) - needed
            needed |= more
            waiting += more
        rows_needed = {stored[each].stored_id for each in needed}
        assert rows_needed == rows.stored_ids, "a segment, or a pack, that nothing needs"
