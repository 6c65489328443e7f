"""Verification of threads in a storage: which threads, and each of them read as of one moment."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeVar

from deltastore.core.codec import Codec
from deltastore.core.findings import ThreadFindings
from deltastore.core.frame import Cipher
from deltastore.core.identifiers import THREAD_KEY_BYTES
from deltastore.core.repair import Plan, plan
from deltastore.core.verify import Inspection
from deltastore.engine import Engine
from deltastore.storage import Survey

KEYS_PAGE = 256
OFF_LOOP_BYTES = 64 * 1024
"""Threads with more stored bytes than this are looked at in a thread, so that the event loop goes on."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifies threads.

    Attributes:
        engine: Where they are.
        codec: Reads their values.
        cipher: Opens ciphered payloads.
    """

    engine: Engine
    codec: Codec
    cipher: Cipher | None

    async def keys(self, sample: int | None) -> AsyncIterator[bytes]:
        """Keys of all threads, or of `sample` threads by chance.

        Keys are digests, so the threads behind a random key are as random as any.
        """
        start = b"" if sample is None else secrets.token_bytes(THREAD_KEY_BYTES)
        left = sample
        async for key in self._behind(start):
            if left == 0:
                return
            left = None if left is None else left - 1
            yield key
        if sample is not None:
            async for key in self._behind(b""):
                if left == 0 or key > start:
                    return
                left = None if left is None else left - 1
                yield key

    async def is_known(self, key: bytes) -> bool:
        """Whether anything is stored under a key, be it only rows without the row of their thread."""
        before = max(int.from_bytes(key) - 1, 0).to_bytes(len(key))
        return key in await self.engine.storage.survey_keys(before, 1)

    async def verify(self, key: bytes, thread_id: str | None = None) -> tuple[ThreadFindings, Plan] | None:
        """What is found in a thread, and how it would be repaired; None if nothing is stored under its key.

        Damage is looked at twice, and what is gone at the second look was a change under way: only what stays counts.
        """
        looked = await self._look(key, thread_id)
        return looked if looked is None or looked[0].is_sound else await self._look(key, thread_id)

    async def repair(self, key: bytes, thread_id: str | None, shown: Plan) -> bool:
        """Repairs a thread as planned. False if the thread has changed since, so that another repair would be made."""
        async with self.engine.storage.repair(key) as repair:
            looked = await self.inspect(repair, thread_id)
            planned = Plan() if looked is None else plan(looked[0])
            if planned.repairs is None or planned.actions != shown.actions:
                return False
            await repair.apply(planned.repairs)
        self.engine.cache.forget(key)
        return True

    async def inspect(self, survey: Survey, thread_id: str | None) -> tuple[Inspection, ThreadFindings] | None:
        """Looks at the rows of a survey; None if there are none."""
        rows = await survey.rows()
        if rows.is_empty:
            return None
        inspection = Inspection(rows, self.codec, self.cipher, self.engine.options.ignored_channels, thread_id)
        stored_bytes = sum(head.payload_bytes for head in rows.segments)
        stored_bytes += sum(len(row.payload) for row in rows.checkpoints)
        off_loop = stored_bytes > OFF_LOOP_BYTES
        for batch in inspection.batches():
            payloads = await survey.payloads(batch)
            await _run(off_loop, lambda: inspection.take(payloads))  # noqa: B023 - awaited before the next batch
        return inspection, await _run(off_loop, inspection.finish)

    async def _look(self, key: bytes, thread_id: str | None) -> tuple[ThreadFindings, Plan] | None:
        async with self.engine.storage.survey(key) as survey:
            looked = await self.inspect(survey, thread_id)
        return None if looked is None else (looked[1], plan(looked[0]))

    async def _behind(self, start: bytes) -> AsyncIterator[bytes]:
        while keys := await self.engine.storage.survey_keys(start, KEYS_PAGE):
            for key in keys:
                yield key
            start = keys[-1]


async def _run(off_loop: bool, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if off_loop else work()
