"""LangGraph's own conformance suite: every capability, every test, on both storages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from importlib import import_module

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.report import CapabilityReport

from deltastore import DeltaSaver

FREQUENCIES = [1, 3, 50]


def count_of_tests(capability: Capability) -> int:
    """How many tests the released suite has for a capability."""
    module = import_module(f"langgraph.checkpoint.conformance.spec.test_{capability.value}")
    return sum(name.startswith("test_") for name in vars(module))


def assert_all_passed(report: CapabilityReport) -> None:
    assert {result: report.results[result].failures for result in report.results} == {
        capability.value: [] for capability in Capability
    }
    for capability in Capability:
        result = report.results[capability.value]
        assert result.detected, capability
        assert (result.passed, result.tests_failed, result.tests_skipped) == (True, 0, 0), capability
        assert result.tests_passed == count_of_tests(capability) > 0, capability
    assert len(report.results) == 8
    assert report.conformance_level() == "FULL"


@pytest.mark.parametrize("snapshot_frequency", FREQUENCIES)
async def test_every_capability_passes_in_memory(snapshot_frequency: int):
    @checkpointer_test(name="DeltaSaver in memory")
    async def saver() -> AsyncGenerator[DeltaSaver, None]:
        yield DeltaSaver.in_memory(snapshot_frequency=snapshot_frequency)

    assert_all_passed(await validate(saver))


@pytest.mark.parametrize("snapshot_frequency", FREQUENCIES)
async def test_every_capability_passes_on_postgresql(database_dsn: str, snapshot_frequency: int):
    @checkpointer_test(name="DeltaSaver on PostgreSQL")
    async def saver() -> AsyncGenerator[DeltaSaver, None]:
        async with DeltaSaver.from_conn_string(
            database_dsn, schema="conformance", snapshot_frequency=snapshot_frequency
        ) as opened:
            await opened.setup()
            yield opened

    assert_all_passed(await validate(saver))
