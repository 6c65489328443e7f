"""Random saves, forks, copies, deletions and prunes give what a model with full values gives, on both storages."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from deltastore.memory import MemoryStorage
from deltastore.postgres.pool import PoolOptions
from deltastore.postgres.storage import PostgresStorage
from deltastore.storage import Storage
from tests.support.machine import SaverMachine


def test_random_calls_on_the_storage_in_memory_match_the_model():
    class InMemory(SaverMachine):
        async def open_storage(self) -> Storage:
            return MemoryStorage()

    run_state_machine_as_test(InMemory)


def test_random_calls_on_postgresql_match_the_model(database_dsn: str):
    class OnPostgres(SaverMachine):
        async def open_storage(self) -> Storage:
            return await PostgresStorage.open(database_dsn, options=PoolOptions(min_size=1, max_size=2))

    run_state_machine_as_test(OnPostgres, settings=settings(max_examples=max(settings().max_examples // 10, 5)))
