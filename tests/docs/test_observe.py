"""The metrics of `docs/howto/observe.md` are those that the code declares, and all of them are reported somewhere."""

from __future__ import annotations

import re

from deltastore import observing
from deltastore.observing import METRICS
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "howto" / "observe.md").read_text(encoding="utf-8")
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for path in (ROOT / "deltastore").rglob("*.py")
    if path.name != "observing.py"
}


def test_metrics_are_documented() -> None:
    documented = re.findall(r"^\| `(deltastore\.[\w.]+)` \| (\w+) \| `(.+?)` \| (.+) \|$", TEXT, re.MULTILINE)
    assert documented == [(name, metric.kind, metric.unit, metric.description) for name, metric in METRICS.items()]


def test_every_metric_is_reported() -> None:
    constants = {value: name for name, value in vars(observing).items() if isinstance(value, str) and value in METRICS}
    assert set(constants) == set(METRICS)
    for constant in constants.values():
        assert any(re.search(rf"\b{constant}\b", text) for text in SOURCES.values()), constant


def test_loggers_are_documented() -> None:
    named = {name for text in SOURCES.values() for name in re.findall(r'getLogger\("(deltastore[\w.]*)"\)', text)}
    assert named == set(re.findall(r"^\| `(deltastore\.[\w.]+)` \| (?:debug|info|warning)", TEXT, re.MULTILINE))
