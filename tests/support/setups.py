"""What each of many processes does that set up schemas at the same moment."""

from __future__ import annotations

import asyncio
from threading import Barrier

from deltastore.postgres.storage import PostgresStorage


def set_up_rounds(dsn: str, rounds: int, barrier: Barrier) -> None:
    """Sets up the schemas `round 0`, `round 1`, … as soon as all processes are there."""

    async def work() -> None:
        for number in range(rounds):
            storage = await PostgresStorage.open(dsn, f"round {number}")
            await asyncio.to_thread(barrier.wait, 60)
            await storage.setup()
            await storage.close()

    asyncio.run(work())
