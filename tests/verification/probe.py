import asyncio, random, sys, contextlib
import asyncpg
from deltastore import DeltaSaver, StoredDataError
from deltastore.conversion.validate import thread
from deltastore.core import pieces
from deltastore.verification import verify_threads
from tests.faults.damage import damage_something
from tests.faults import test_damage as T
from tests.faults.stories import config_of


async def loads(saver, step):
    saver._bridge.engine.cache.forget(thread("story").key)
    try:
        found = await saver.aget_tuple(step.config)
        if found is None:
            return None
        await saver.aget_delta_channel_history(config=step.config, channels=["log"])
    except StoredDataError as e:
        return str(e)
    return True


async def main(dsn, seed, count):
    pieces.PAGE_PIECES = 4
    stored = await T.written(dsn)
    chance = random.Random(seed)
    async with asyncpg.create_pool(dsn, min_size=1, max_size=2) as pool:
        saver = DeltaSaver(pool, snapshot_frequency=5)
        report = await verify_threads(saver)
        print(report.as_json())
        async with pool.acquire() as connection:
            for n in range(count):
                damage = await damage_something(connection, chance)
                report = await verify_threads(saver)
                hurt = {p.checkpoint_id for f in report.damaged for p in f.hurt}
                kinds = dict(report.kinds)
                notes = [x.kind + ":" + x.row for f in report.noted + report.damaged for x in f.findings if x.is_notice]
                for step in stored.steps:
                    r = await loads(saver, step)
                    if (r is True or r is None) == (step.id in hurt):
                        print("MISMATCH", damage, step.number, step.id, r, step.id in hurt)
                        for f in report.damaged:
                            for x in f.findings:
                                print("   ", x.kind, x.row, x.detail, len(x.hurt), len(x.lost))
                if not report.damaged:
                    print("UNNAMED", damage, notes)
                await T.restore(connection)
        print("done")


from tests.support.servers import database
from deltastore.embedded import EmbeddedServer
import tempfile
from tests.support.servers import SPEED

with EmbeddedServer(sys.argv[3], settings=SPEED) as server:
    with contextlib.ExitStack() as st:
        dsn = st.enter_context(database(server.dsn))

        async def run():
            async with DeltaSaver.from_conn_string(dsn) as s:
                await s.setup()
            await main(dsn, int(sys.argv[1]), int(sys.argv[2]))

        asyncio.run(run())
