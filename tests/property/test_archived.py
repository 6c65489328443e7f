"""Random threads that are archived and restored between random calls stay what the model says."""

from __future__ import annotations

from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from deltastore.archive.archiver import Archiver
from deltastore.archive.places import Place
from deltastore.archive.report import Status
from deltastore.archive.restoring import Restorer
from deltastore.conversion import validate
from deltastore.memory import MemoryStorage
from deltastore.postgres.pool import PoolOptions
from deltastore.postgres.storage import PostgresStorage
from deltastore.storage import Storage
from tests.support.machine import SaverMachine


class Archiving(SaverMachine):
    """Savers that do not know that a thread was away for a while."""

    @rule(thread=st.integers(0, 1))
    def archive_and_restore(self, thread: int) -> None:
        name = self.threads[thread]
        if self._rows(name) is None:
            return
        outcome = self.run(Archiver(self.storage, Place("memory://random")).archive(validate.thread(name)))
        assert outcome.status is Status.ARCHIVED, outcome
        assert self._rows(name) is None
        self.run(Restorer(self.storage).restore(outcome.file))
        self.model.deleted_through.pop(name, None)
        MemoryFileSystem.store.clear()
        self._check(name, everything=True)


def test_random_threads_in_memory():
    class InMemory(Archiving):
        async def open_storage(self) -> Storage:
            return MemoryStorage()

    run_state_machine_as_test(InMemory, settings=settings(max_examples=max(settings().max_examples // 2, 5)))


def test_random_threads_on_postgresql(database_dsn: str):
    class OnPostgres(Archiving):
        async def open_storage(self) -> Storage:
            return await PostgresStorage.open(database_dsn, options=PoolOptions(min_size=1, max_size=2))

    run_state_machine_as_test(OnPostgres, settings=settings(max_examples=max(settings().max_examples // 20, 3)))
