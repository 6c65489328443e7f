"""OpenTelemetry: spans with their parents, metrics with their units, and nothing without being asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deltastore import DeltaSaver, InvalidConfigError
from deltastore.observing import METRICS
from deltastore.telemetry import OpenTelemetryObserver
from tests.support.processes import running
from tests.support.puts import Puts


class Told:
    """Providers whose spans and metrics stay in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.observer = OpenTelemetryObserver(self.tracers, self.meters)

    def spans(self) -> dict[str, Any]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def metrics(self) -> dict[str, Any]:
        data: Any = self.reader.get_metrics_data()
        [resource] = data.resource_metrics
        [scope] = resource.scope_metrics
        assert scope.scope.name == "deltastore"
        return {metric.name: metric for metric in scope.metrics}


@pytest.fixture
def told() -> Told:
    return Told()


def parents(spans: dict[str, Any]) -> dict[str, str | None]:
    names = {span.context.span_id: name for name, span in spans.items()}
    return {name: span.parent and names.get(span.parent.span_id) for name, span in spans.items()}


def test_spans_are_children_of_what_the_application_does(database_dsn: str, told: Told) -> None:
    """The saver's loop runs in another thread here."""
    with DeltaSaver.from_conn_string(database_dsn, observer=told.observer) as saver:
        puts = Puts(saver)
        tracer = trace.get_tracer("application", tracer_provider=told.tracers)
        with tracer.start_as_current_span("turn"):
            first = puts.put(None, {"log": ["x"]})
            puts.write(first, [("log", ["y"])])
            puts.found(first)
    spans = told.spans()
    assert parents(spans) == {
        "turn": None,
        "deltastore.put": "turn",
        "deltastore.storage.save": "deltastore.put",
        "deltastore.put_writes": "turn",
        "deltastore.storage.save_writes": "deltastore.put_writes",
        "deltastore.get_tuple": "turn",
        "deltastore.storage.load_chains": "deltastore.get_tuple",
    }
    assert dict(spans["deltastore.put"].attributes) == {
        "deltastore.thread_id": "t",
        "deltastore.checkpoint_ns": "",
        "deltastore.checkpoint_id": first,
    }
    assert dict(spans["deltastore.storage.save"].attributes) == {"operation": "save"}


async def test_metrics_are_declared_with_units_and_hold_no_ids(database_dsn: str, told: Told) -> None:
    async with DeltaSaver.from_conn_string(database_dsn, observer=told.observer) as saver:
        puts = await asyncio.to_thread(_some_puts, saver)
        await saver.aget_tuple(puts.config())
    metrics = told.metrics()
    assert set(metrics) <= set(METRICS)
    assert {name.split(".")[1] for name in metrics} >= {"call", "storage", "chain", "cache", "pool"}
    for name, metric in metrics.items():
        assert (metric.unit, metric.description) == (METRICS[name].unit, METRICS[name].description)
        for point in metric.data.data_points:
            assert set(point.attributes) <= {"call", "operation", "error", "reason", "rows"}
    calls = {point.attributes["call"]: point.count for point in metrics["deltastore.call.duration"].data.data_points}
    assert calls == {"put": 3, "get_tuple": 1}
    [length] = metrics["deltastore.chain.length"].data.data_points
    assert (length.min, length.max) == (3, 3)


def _some_puts(saver: DeltaSaver) -> Puts:
    puts, parent = Puts(saver), None
    for number in range(3):
        parent = puts.put(parent, {"log": ["x"] * number})
    return puts


async def test_an_error_is_recorded(told: Told) -> None:
    saver = DeltaSaver.in_memory(observer=told.observer)
    _some_puts(saver)
    await saver.acopy_thread("t", "u")
    with pytest.raises(InvalidConfigError):
        await saver.acopy_thread("t", "u")
    failed = [span for span in told.exporter.get_finished_spans() if not span.status.is_ok and span.events]
    assert [span.name for span in failed] == ["deltastore.copy_thread"]
    assert failed[0].events[0].name == "exception"
    errors = [
        point.attributes.get("error") for point in told.metrics()["deltastore.call.duration"].data.data_points
        if point.attributes["call"] == "copy_thread"
    ]  # fmt: skip
    assert sorted(errors, key=str) == ["InvalidConfigError", None]


def test_global_providers_are_the_default() -> None:
    saver = DeltaSaver.in_memory(observer=OpenTelemetryObserver())
    assert _some_puts(saver).found() is not None


def test_nothing_of_it_is_needed_without_being_asked_for() -> None:
    code = """
    import sys
    sys.modules["opentelemetry"] = None
    from deltastore import DeltaSaver
    from tests.support.puts import Puts
    puts = Puts(DeltaSaver.in_memory())
    puts.put(None, {"log": ["x"]})
    assert puts.values() == {"log": ["x"]}
    print("deltastore.telemetry" in sys.modules)
    """
    with running(code) as script:
        assert script.line() == "False"
