"""An observer for OpenTelemetry. Needs the extra `otel`; the SDK and its exporters are the application's choice."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any

from opentelemetry import metrics, trace

from deltastore.observing import METRICS, Attributes

SCOPE = "deltastore"


class OpenTelemetryObserver:
    """Reports spans and metrics to OpenTelemetry.

    Args:
        tracer_provider: Where spans go; by default the global one.
        meter_provider: Where metrics go; by default the global one.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        number = version("langgraph-checkpoint-deltastore")
        self._tracer = trace.get_tracer(SCOPE, number, tracer_provider)
        meter = metrics.get_meter(SCOPE, number, meter_provider)
        self._counters = {
            name: meter.create_counter(name, metric.unit, metric.description)
            for name, metric in METRICS.items()
            if metric.kind == "count"
        }
        self._histograms = {
            name: meter.create_histogram(name, metric.unit, metric.description)
            for name, metric in METRICS.items()
            if metric.kind == "measure"
        }

    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Any]:
        """A span that is the current one until it ends; an exception is recorded and makes it an error."""
        return self._tracer.start_as_current_span(name, attributes=dict(attributes))

    def count(self, name: str, amount: int, attributes: Attributes) -> None:
        """Adds to a counter."""
        self._counters[name].add(amount, dict(attributes))

    def measure(self, name: str, value: float, attributes: Attributes) -> None:
        """Adds to a histogram."""
        self._histograms[name].record(value, dict(attributes))
