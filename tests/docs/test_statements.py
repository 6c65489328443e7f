"""The table of statements in `docs/design.md` is what happens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore import DeltaSaver
from tests.docs.pages import ROOT

DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([^|]+?) \| ((?:`\w+`(?:, )?)+|none) \|$", re.MULTILINE)
DOCUMENTED = {call: re.findall(r"`(\w+)`", statements) for call, statements in ROW.findall(DESIGN)}


async def keep_session(connection: object) -> None:
    """No reset: see `docs/howto/deploy.md`."""


@dataclass
class Watched:
    """A database, new savers on it, and the statements that they run."""

    pool: Any
    seen: list[str] = field(default_factory=list)
    measured: dict[str, list[str]] = field(default_factory=dict)
    saver: DeltaSaver = field(init=False)

    async def restart(self) -> None:
        """What a new process has: a saver that knows nothing."""
        self.saver = DeltaSaver(self.pool)
        await self.saver.setup()

    async def watch(self, call: str, awaitable: Awaitable[Any]) -> Any:
        names = {text: name for name, text in self.saver._bridge.engine.storage._queries.text.items()}  # type: ignore[attr-defined]
        self.seen.clear()
        answer = await awaitable
        await asyncio.sleep(0)
        self.measured[call] = [names[text] for text in self.seen if text in names]
        return answer


@pytest.fixture
async def watched(database_dsn: str) -> AsyncIterator[Watched]:
    async with asyncpg.create_pool(database_dsn, min_size=1, max_size=1, reset=keep_session) as pool:
        watched = Watched(pool)
        async with pool.acquire() as connection:
            connection.add_query_logger(lambda record: watched.seen.append(record.query))
        await watched.restart()
        yield watched


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name, "checkpoint_ns": ""}}


def checkpoint(number: int, values: dict[str, Any]) -> Any:
    return {
        "v": 4,
        "id": f"1f0a1b2c-3d4e-6f70-8123-{number:012x}",
        "ts": "2026-01-01T00:00:00.250000+00:00",
        "channel_values": values,
        "channel_versions": {"log": number},
        "versions_seen": {},
        "updated_channels": ["log"],
    }


def text(number: int) -> str:
    return f"{number} " + "x" * 2000


async def put(saver: DeltaSaver, parent: Any, number: int, *, run_id: str = "r1", elements: int | None = None) -> Any:
    values = {"log": [text(each) for each in range(elements or number)]}
    return await saver.aput(parent, checkpoint(number, values), {"source": "loop", "run_id": run_id}, {"log": number})


async def put_delta(saver: DeltaSaver, parent: Any, number: int) -> Any:
    await saver.aput_writes(parent, [("log", [text(number)])], f"task {number}")
    return await saver.aput(parent, checkpoint(number, {}), {"source": "loop"}, {"log": number})


async def ordinary(watched: Watched) -> None:
    saver, watch = watched.saver, watched.watch
    head = await watch("`put`, first of a thread", put(saver, thread("a"), 1))
    head = await watch("`put`, parent known to the process", put(saver, head, 2))
    await watch("`put_writes`", saver.aput_writes(head, [("log", [text(2)])], "task"))
    for number in range(3, 75):
        head = await put(saver, head, number)
    await watched.restart()
    saver = watched.saver
    await watch("`get_tuple`", saver.aget_tuple(thread("a")))
    await watch("`get_tuple`, items known to the process", saver.aget_tuple(thread("a")))
    few = thread("few")
    for number in range(1, 75):
        few = await put(saver, few, number, elements=min(number, 20))
    await watched.restart()
    saver = watched.saver
    await watch("`get_tuple`, items in older small segments", saver.aget_tuple(few))
    before = (await saver.aget_tuple(head)).parent_config  # type: ignore[union-attr]
    await saver.aget_tuple(before)  # type: ignore[arg-type]
    await watch("`put` again, the same checkpoint", put(saver, before, 74))
    await watch("`put` again, another checkpoint", put(saver, before, 74, run_id="r2"))
    await watched.restart()
    await watch("`put`, parent not known to the process", put(watched.saver, head, 75))


async def delta(watched: Watched) -> None:
    saver = watched.saver
    head = await saver.aput(thread("d"), checkpoint(1, {"log": _DeltaSnapshot([text(0)])}), {}, {"log": 1})
    for number in range(2, 75):
        head = await put_delta(saver, head, number)
    await watched.restart()
    saver, watch = watched.saver, watched.watch
    await watch("`get_delta_channel_history`", history(saver, head))
    await saver.aget_tuple(head)
    await watch("`get_delta_channel_history`, right after `get_tuple`", history(saver, head))


async def history(saver: DeltaSaver, config: Any) -> None:
    found = await saver.aget_delta_channel_history(config=config, channels=["log"])
    assert len(found["log"]["writes"]) == 73
    assert found["log"]["seed"].value == [text(0)]


async def maintenance(watched: Watched) -> None:
    await watched.restart()
    saver, watch = watched.saver, watched.watch
    pages = [each async for each in saver.alist(thread("a"), limit=64)]
    assert len(pages) == 64
    await watched.restart()
    saver = watched.saver
    await watch("`list` of one thread and namespace, each 32", listed(saver))
    await watch("`delete_for_runs`, each thread concerned", saver.adelete_for_runs(["r2"]))
    await watch("`copy_thread`", saver.acopy_thread("a", "b"))
    await watch("`compact_thread`, and the look that finds nothing left", saver.acompact_thread("b"))
    await watch("`prune` with `keep_latest`, each thread", saver.aprune(["a"]))
    await watch("`delete_thread`", saver.adelete_thread("b"))


async def listed(saver: DeltaSaver) -> None:
    assert len([each async for each in saver.alist(thread("a"), limit=32)]) == 32


async def test_statements_are_as_documented(watched: Watched) -> None:
    steps: list[Callable[[Watched], Awaitable[None]]] = [ordinary, delta, maintenance]
    for step in steps:
        await step(watched)
    assert watched.measured == DOCUMENTED
