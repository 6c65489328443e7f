"""Threads of every kind, written while sweepers of other processes apply a policy, all compared with a model.

`python -m tests.retention.storm --dsn DSN --threads 5000 --writers 20 --sweepers 2 --seconds 120` prints the figures.

The model keeps every value in full. Threads are written by one writer each, so it is known what they hold; which
checkpoints are left in the end is what the policy says of all that were ever put.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore import DeltaSaver, ThreadDeletedError
from deltastore.core.identifiers import pack_checkpoint_id
from deltastore.core.retention import Facts, RetentionPolicy, decide
from deltastore.verification import verify_threads
from tests.retention.trees import DAY, id_at
from tests.support.exact import exact

POLICY = """
grace = "{grace}"

[[rule]]
name = "heads"
filter = {{ kind = "tight" }}
heads_only = true

[[rule]]
name = "thinned"
filter = {{ kind = "daily" }}
keep_last = 2
daily_after = "2d"
max_age = "20d"

[[rule]]
name = "idle"
filter = {{ kind = "idle" }}
idle = "10d"

[[rule]]
name = "last"
keep_last = 8
"""
KINDS = ["chat"] * 4 + ["tight"] * 2 + ["daily"] * 2 + ["idle", "pinned"]
WRITTEN = ("chat", "tight", "daily")
NAMESPACES = ["", "sub:1", "sub:1|inner"]
TEMPLATES_PER_KIND = 4


@dataclass
class Figures:
    """What happened."""

    threads: int = 0
    saves: int = 0
    loads: int = 0
    failed_saves: int = 0
    wrong_states: int = 0
    deadlocks: int = 0
    sweeps: int = 0
    swept_checkpoints: int = 0
    swept_threads: int = 0
    sweep_failures: int = 0
    busy: int = 0
    lock_ms_max: float = 0.0
    lock_ms_max_of_sweeps: list[float] = field(default_factory=list)
    save_ms_p50: float = 0.0
    save_ms_p99: float = 0.0
    save_ms_max: float = 0.0
    refused_late_saves: int = 0
    late_saves: int = 0
    compared_checkpoints: int = 0
    wrong_sets: int = 0
    orphan_rows: int = 0
    hidden_rows: int = 0
    unsound_threads: int = 0
    elapsed_seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether nothing was wrong."""
        wrong = self.failed_saves, self.wrong_states, self.deadlocks, self.sweep_failures, self.wrong_sets
        late = self.late_saves - self.refused_late_saves
        return not any((*wrong, late, self.orphan_rows, self.hidden_rows, self.unsound_threads))


@dataclass
class Node:
    """One checkpoint as it must be: values, and of DeltaChannels what they are rebuilt from."""

    values: dict[str, Any]
    seed: Any
    history: list[Any]
    versions: dict[str, str | int | float]
    time: float
    writes: list[Any] = field(default_factory=list)


@dataclass
class Thread:
    """One thread of the model."""

    thread_id: str
    kind: str
    nodes: dict[tuple[str, str], Node] = field(default_factory=dict)
    version: int = 0

    def newest(self, namespace: str) -> list[str]:
        return sorted((each for space, each in self.nodes if space == namespace), reverse=True)

    def config(self, namespace: str, checkpoint_id: str | None = None) -> Any:
        settings = {"thread_id": self.thread_id, "checkpoint_ns": namespace}
        return {"configurable": settings if checkpoint_id is None else {**settings, "checkpoint_id": checkpoint_id}}

    async def step(
        self, saver: DeltaSaver, namespace: str, parent: str | None, moment: float, chance: random.Random
    ) -> str:
        """Writes of two tasks to the parent, and its child, as a super-step of a graph does."""
        self.version += 1
        above = self.nodes.get((namespace, parent or ""))
        checkpoint_id = id_at(moment, self.version)
        texts = [f"{self.version} {chance.random()} " + "x" * chance.choice([0, 10, 300, 1400]) for _ in range(3)]
        if parent is not None and above is not None:
            for task in range(2):
                name = f"{checkpoint_id} {task}"
                await saver.aput_writes(self.config(namespace, parent), [("delta", texts[task])], name, f"~{task}")
                above.writes.append((name, "delta", texts[task]))
        values = {} if above is None else dict(above.values)
        values["plain"] = [*values.get("plain", []), texts[2]]
        new: dict[str, str | int | float] = {"plain": self.version, "delta": self.version}
        given: dict[str, Any] = {"plain": values["plain"]}
        values.pop("delta", None)
        if above is None or chance.random() < 0.1:
            values["delta"] = given["delta"] = _DeltaSnapshot([texts[0]])
        if above is None or chance.random() < 0.3:
            values["dict"] = given["dict"] = {**values.get("dict", {}), chance.choice("abc"): texts[1]}
            new["dict"] = self.version
        versions = {**({} if above is None else above.versions), **new}
        checkpoint: Any = {
            "v": 4, "id": checkpoint_id, "ts": "2026-01-01T00:00:00+00:00", "channel_values": {**values, **given},
            "channel_versions": versions, "versions_seen": {}, "updated_channels": sorted(new),
        }  # fmt: skip
        metadata: Any = {"source": "loop", "step": self.version, "parents": {}, "kind": self.kind}
        await saver.aput(self.config(namespace, parent), checkpoint, metadata, new)
        seed, history = None, []
        if above is not None:
            behind = "delta" in above.values
            seed = above.values["delta"] if behind else above.seed
            consumed = sorted(above.writes, key=lambda write: (write[0][-1], write[0]))
            history = [*([] if behind else above.history), *consumed]
        self.nodes[namespace, checkpoint_id] = Node(values, seed, history, versions, moment)
        return checkpoint_id

    async def is_right(self, saver: DeltaSaver, found: Any) -> bool:
        """Whether a loaded checkpoint is what the model says."""
        settings = found.config["configurable"]
        node = self.nodes[settings["checkpoint_ns"], settings["checkpoint_id"]]
        values = found.checkpoint["channel_values"]
        good = exact(sorted(values.items())) == exact(sorted(node.values.items()))
        good = good and sorted(found.pending_writes or []) == sorted(node.writes)
        if "delta" not in node.values:
            history = await saver.aget_delta_channel_history(config=found.config, channels=["delta"])
            good = good and exact(history["delta"].get("seed")) == exact(node.seed)
            good = good and list(history["delta"]["writes"]) == node.history
        return good


@dataclass
class Storm:
    """The threads, their writers and their sweepers."""

    dsn: str
    threads_count: int
    writers: int
    sweepers: int
    seconds: float
    seed: int = 1
    figures: Figures = field(default_factory=Figures)
    threads: list[Thread] = field(default_factory=list)
    save_ms: list[float] = field(default_factory=list)

    async def run(self) -> Figures:
        started = time.monotonic()
        async with AsyncExitStack() as stack:
            savers = [
                await stack.enter_async_context(DeltaSaver.from_conn_string(self.dsn, snapshot_frequency=5, max_size=4))
                for _ in range(min(self.writers, 4))
            ]
            await self.populate(savers[0])
            self.say(f"{len(self.threads)} threads are there after {time.monotonic() - started:.0f} s")
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            policy = folder / "policy.toml"
            policy.write_text(POLICY.format(grace="10m"))
            sweepers = [await self.sweeper(stack, policy, "--every", "0.2s") for _ in range(self.sweepers)]
            begun = [asyncio.Event() for _ in sweepers]
            reading = [
                asyncio.create_task(self.listen(sweeper, first)) for sweeper, first in zip(sweepers, begun, strict=True)
            ]
            await asyncio.gather(*(first.wait() for first in begun))
            end = time.monotonic() + self.seconds
            chances = [random.Random(f"{self.seed} {number}") for number in range(self.writers)]
            await asyncio.gather(
                *(self.write(savers[n % len(savers)], n, end, chance) for n, chance in enumerate(chances))
            )
            for sweeper in sweepers:
                sweeper.send_signal(2)
            await asyncio.gather(*reading, *(sweeper.wait() for sweeper in sweepers))
            policy.write_text(POLICY.format(grace="0s"))
            await self.listen(await self.sweeper(stack, policy, "--once"))
            self.say(f"written and swept after {time.monotonic() - started:.0f} s: {self.figures.saves} saves")
            await self.late(savers[0])
            await self.compare(savers)
            await self.look_for_orphans(savers[0])
        self.times()
        self.figures.elapsed_seconds = round(time.monotonic() - started, 1)
        return self.figures

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def populate(self, saver: DeltaSaver) -> None:
        """A few threads of each kind, and copies of them."""
        chance = random.Random(self.seed)
        now = time.time()
        templates: dict[str, list[Thread]] = {}
        for kind in dict.fromkeys(KINDS):
            for number in range(TEMPLATES_PER_KIND):
                thread = Thread(f"{kind} template {number}", kind)
                days = {"chat": [0.01], "tight": [0.01], "idle": [12.5]}.get(
                    kind, [0.2, 3.3, 3.4, 6.5, 6.6, 13.2, 25.5]
                )
                moments = sorted(now - chance.choice(days) * DAY + step for step in range(12))
                for moment in moments:
                    namespace = chance.choice(NAMESPACES)
                    parents = thread.newest(namespace)
                    parent = chance.choice([*parents[:1] * 4, *parents]) if parents else None
                    await thread.step(saver, namespace, parent, moment, chance)
                templates.setdefault(kind, []).append(thread)
        self.threads = [each for kind in templates.values() for each in kind]
        gate = asyncio.Semaphore(4)

        async def copy(number: int) -> Thread:
            source = chance.choice(templates[KINDS[number % len(KINDS)]])
            target = Thread(f"{source.kind} {number}", source.kind, version=source.version)
            target.nodes = {
                key: Node(node.values, node.seed, node.history, node.versions, node.time, [*node.writes])
                for key, node in source.nodes.items()
            }
            async with gate:
                await saver.acopy_thread(source.thread_id, target.thread_id)
                if source.kind == "pinned":
                    await saver.apin(target.thread_id)
            return target

        missing = range(max(self.threads_count - len(self.threads), 0))
        self.threads += await asyncio.gather(*(copy(number) for number in missing))
        for thread in templates["pinned"]:
            await saver.apin(thread.thread_id)
        self.figures.threads = len(self.threads)

    async def sweeper(self, stack: AsyncExitStack, policy: Path, *mode: str) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "deltastore.cli", "retain", *mode, "--policy", str(policy), "--json"]
        sweeper = await asyncio.create_subprocess_exec(*command, "--dsn", self.dsn, stdout=asyncio.subprocess.PIPE)
        stack.callback(lambda: sweeper.kill() if sweeper.returncode is None else None)
        return sweeper

    async def listen(self, sweeper: asyncio.subprocess.Process, first: asyncio.Event | None = None) -> None:
        """Reads the reports of a sweeper to their end."""
        assert sweeper.stdout is not None
        while line := await sweeper.stdout.readline():
            report = json.loads(line)
            if first is not None:
                first.set()
            figures = self.figures
            figures.sweeps += 1
            figures.swept_checkpoints += report["checkpoints"]
            figures.swept_threads += report["deleted_threads"]
            figures.sweep_failures += len(report["failures"])
            figures.notes += [each["reason"] for each in report["failures"]][:3]
            figures.busy += len(report["busy_threads"])
            figures.lock_ms_max_of_sweeps.append(report["lock_ms_max"])

    async def write(self, saver: DeltaSaver, number: int, end: float, chance: random.Random) -> None:
        """Runs on the writer's threads, one after the other, now and then two on one thread at once."""
        own = [each for each in self.threads if each.kind in WRITTEN][number :: self.writers]
        favourites = own[:3]
        while time.monotonic() < end:
            thread = chance.choice([*favourites, *own[:: max(len(own) // 6, 1)], chance.choice(own)])
            namespace = chance.choice(NAMESPACES)
            heads = thread.newest(namespace)
            head = heads[0] if heads else None
            if head is not None:
                found = await saver.aget_tuple(thread.config(namespace))
                self.figures.loads += 1
                if found is None or found.checkpoint["id"] != head or not await thread.is_right(saver, found):
                    self.wrong(f"head of {thread.thread_id} {namespace}")
            if thread.kind == "chat" and chance.random() < 0.2:
                older = chance.choice(heads[:3]) if heads else None
                await asyncio.gather(
                    self.a_run(saver, thread, namespace, head, chance),
                    self.a_run(saver, thread, namespace, older, chance),
                )
            else:
                await self.a_run(saver, thread, namespace, head, chance)

    async def a_run(
        self, saver: DeltaSaver, thread: Thread, namespace: str, parent: str | None, chance: random.Random
    ) -> None:
        for _ in range(chance.randint(1, 2)):
            started = time.monotonic()
            try:
                parent = await thread.step(saver, namespace, parent, time.time(), chance)
            except Exception as error:  # noqa: BLE001 - that is what is counted
                self.figures.failed_saves += 1
                self.figures.notes.append(f"{thread.thread_id}: {error!r}"[:300])
                return
            self.save_ms.append((time.monotonic() - started) * 1000)
            self.figures.saves += 1

    async def late(self, saver: DeltaSaver) -> None:
        """Runs that still hold a checkpoint of a thread that was removed."""
        for thread in [each for each in self.threads if each.kind == "idle"][:200]:
            namespace, newest = max(thread.nodes, key=lambda key: key[1])
            self.figures.late_saves += 1
            try:
                await thread.step(saver, namespace, newest, time.time(), random.Random(1))
            except ThreadDeletedError:
                self.figures.refused_late_saves += 1

    async def compare(self, savers: list[DeltaSaver]) -> None:
        """Every checkpoint that is left, with the model; and which ones are left."""
        policy = RetentionPolicy.from_toml(POLICY.format(grace="0s"))
        reader = DeltaSaver(savers[0]._bridge.engine.storage._pool)  # type: ignore[attr-defined]
        now = time.time()

        async def one(thread: Thread) -> None:
            facts = Facts({(space, pack_checkpoint_id(each)): n.time for (space, each), n in thread.nodes.items()}, now)
            position = policy.rule_of({"kind": thread.kind})
            assert position is not None
            rule = None if thread.kind == "pinned" else policy.rules[position]
            gone = decide(rule, facts, now).checkpoints
            expected = {key for key in thread.nodes if (key[0], pack_checkpoint_id(key[1])) not in gone}
            seen = set()
            async for found in _listed(reader, thread):
                settings = found.config["configurable"]
                seen.add((settings["checkpoint_ns"], settings["checkpoint_id"]))
                self.figures.compared_checkpoints += 1
                if not await thread.is_right(reader, found):
                    self.wrong(f"{thread.thread_id} {settings}")
            if seen != expected:
                self.figures.wrong_sets += 1
                self.figures.notes.append(f"{thread.thread_id}: {len(seen)} left, {len(expected)} expected")

        for start in range(0, len(self.threads), 8):
            await asyncio.gather(*(one(thread) for thread in self.threads[start : start + 8]))

    async def look_for_orphans(self, saver: DeltaSaver) -> None:
        """Rows that nothing needs, rows of no thread, deadlocks."""
        report = await verify_threads(saver)
        self.figures.unsound_threads = len(report.damaged) + len(report.noted)
        self.figures.notes += [repr(each)[:900] for each in (*report.damaged, *report.noted)][:4]
        connection = await asyncpg.connect(self.dsn)
        for table in ("checkpoints", "segments", "metadata"):
            self.figures.orphan_rows += await connection.fetchval(
                f"SELECT count(*) FROM deltastore.delta_{table} WHERE thread_key NOT IN"
                " (SELECT thread_key FROM deltastore.delta_threads)"
            )
        hidden = "SELECT count(*) FROM deltastore.delta_checkpoints WHERE hidden"
        self.figures.hidden_rows = await connection.fetchval(hidden)
        deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        self.figures.deadlocks = await connection.fetchval(deadlocks)
        await connection.close()

    def wrong(self, what: str) -> None:
        self.figures.wrong_states += 1
        self.figures.notes.append(f"wrong: {what}")

    def times(self) -> None:
        figures, times = self.figures, sorted(self.save_ms)
        figures.lock_ms_max = max(figures.lock_ms_max_of_sweeps, default=0.0)
        if times:
            figures.save_ms_p50 = round(times[len(times) // 2], 1)
            figures.save_ms_p99 = round(times[len(times) * 99 // 100], 1)
            figures.save_ms_max = round(times[-1], 1)


async def _listed(saver: DeltaSaver, thread: Thread) -> AsyncIterator[Any]:
    async for found in saver.alist({"configurable": {"thread_id": thread.thread_id}}):
        yield found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dsn", required=True)
    for name, default in (("threads", 5000), ("writers", 20), ("sweepers", 2), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=120)
    given = parser.parse_args()
    storm = Storm(given.dsn, given.threads, given.writers, given.sweepers, given.seconds, given.seed)
    figures = asyncio.run(storm.run())
    shown = asdict(figures)
    locks = shown.pop("lock_ms_max_of_sweeps")
    shown["lock_ms_max_of_sweeps"] = dict(Counter(f"< {10 * (int(each) // 10 + 1)} ms" for each in locks))
    print(json.dumps(shown, indent=2))
    sys.exit(not figures.is_good)


if __name__ == "__main__":
    main()
