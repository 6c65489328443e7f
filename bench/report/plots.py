"""Plots as inline SVG. Colours and dashes come from the page's style by class, so light and dark need no second plot.

All plots are drawn 420 wide, about the width of a phone, so that their text is readable there and larger elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bench.measure import BUCKETS_PER_DECADE
from bench.report.axes import Axis, axis

WIDTH = 420
HEIGHT = 280
LEFT, RIGHT, TOP, BOTTOM = 46, 118, 14, 36
ROW_HEIGHT = 50
LABEL_HEIGHT = 13
Text = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    """A line: its label at the end, its class names, and points by rising x."""

    label: str
    style: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Row:
    """A line of a plot of distributions.

    Args:
        buckets: Calls by logarithmic bucket (`bench.measure.histogram`), drawn as a hill.
        samples: Single samples, drawn as dots.
        middle: The median, drawn as a tick.
        value: What stands at the right.
    """

    label: str
    style: str
    middle: float
    value: str
    buckets: Mapping[int, int]
    samples: Sequence[float] = ()


def line_plot(
    series: Sequence[Series], *, x_title: str, x_text: Text, y_text: Text, x_log: bool = False, y_log: bool = False
) -> str:
    """Lines over a common x, each labelled at its end."""
    xs = [x for line in series for x, _ in line.points]
    ys = [y for line in series for _, y in line.points]
    x_axis = axis(xs, LEFT, WIDTH - RIGHT, log=x_log, text=x_text)
    if x_log:
        x_axis = Axis(min(xs), max([*xs, min(xs) * 2]), LEFT + 8, WIDTH - RIGHT, log=True, text=x_text)
    y_axis = axis(ys, HEIGHT - BOTTOM, TOP, log=y_log, text=y_text)
    ticks = sorted(set(xs)) if x_log else x_axis.ticks()
    parts = [*_grid(y_axis), *_x_ticks(x_axis, ticks, HEIGHT - BOTTOM), _x_title(x_title, WIDTH - RIGHT, HEIGHT)]
    for line in series:
        path = " ".join(f"{x_axis.at(x)},{y_axis.at(y)}" for x, y in line.points)
        parts.append(f'<polyline class="line {line.style}" points="{path}"/>')
        for x, y in line.points:
            title = f"{escape(line.label)}: {y_text(y)} at {x_text(x)} {escape(x_title)}"
            shown = "sample" if len(line.points) == 1 else "dot"
            dot = f'<circle class="{shown} {line.style}" cx="{x_axis.at(x)}" cy="{y_axis.at(y)}" r="2.2"/>'
            parts.append(f'<g class="point"><title>{title}</title>{dot}{_target(x_axis.at(x), y_axis.at(y))}</g>')
    parts += _end_labels(series, y_axis)
    return _svg(parts, HEIGHT)


def distribution_plot(rows: Sequence[Row], *, x_title: str, x_text: Text) -> str:
    """Hills or dots over a common logarithmic x, one row each."""
    height = TOP + ROW_HEIGHT * len(rows) + BOTTOM
    edges = [edge for row in rows for bucket in row.buckets for edge in (_edge(bucket), _edge(bucket + 1))]
    values = edges + [sample for row in rows for sample in row.samples]
    x_axis = axis(values, 10, WIDTH - 10, log=True, text=x_text)
    parts = [*_x_ticks(x_axis, x_axis.ticks(), height - BOTTOM, top=TOP), _x_title(x_title, WIDTH - 10, height)]
    for position, row in enumerate(rows):
        base = TOP + ROW_HEIGHT * (position + 1) - 4
        middle = x_axis.at(row.middle)
        parts += [
            f'<line class="base" x1="10" x2="{WIDTH - 10}" y1="{base}" y2="{base}"/>',
            _hill(row, x_axis, base) if row.buckets else "".join(_dots(row, x_axis, base)),
            f'<line class="middle {row.style}" x1="{middle}" x2="{middle}" y1="{base - 24}" y2="{base}"/>',
            f'<text class="label {row.style}" x="10" y="{base - 29}">{escape(row.label)}</text>',
            f'<text class="value end" x="{WIDTH - 10}" y="{base - 29}">{escape(row.value)}</text>',
        ]
    return _svg(parts, height)


def _edge(bucket: int) -> float:
    edge: float = 10.0 ** (bucket / BUCKETS_PER_DECADE)
    return edge


def _hill(row: Row, x_axis: Axis, base: float) -> str:
    top = max(row.buckets.values())
    first, last = min(row.buckets), max(row.buckets)
    points = [f"{x_axis.at(_edge(first))},{base}"]
    for bucket in range(first, last + 1):
        y = round(base - 24 * row.buckets.get(bucket, 0) / top, 1)
        points += [f"{x_axis.at(_edge(bucket))},{y}", f"{x_axis.at(_edge(bucket + 1))},{y}"]
    points.append(f"{x_axis.at(_edge(last + 1))},{base}")
    return f'<polygon class="hill {row.style}" points="{" ".join(points)}"/>'


def _dots(row: Row, x_axis: Axis, base: float) -> Iterator[str]:
    for sample in row.samples:
        title = f"<title>{escape(row.label)}: {x_axis.text(sample)}</title>"
        yield f'<circle class="sample {row.style}" cx="{x_axis.at(sample)}" cy="{base - 12}" r="4.5">{title}</circle>'


def _grid(y_axis: Axis) -> Iterator[str]:
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick end" x="{LEFT - 6}" y="{y + 3.5}">{escape(y_axis.text(tick))}</text>'


def _x_ticks(x_axis: Axis, ticks: Sequence[float], bottom: float, *, top: float | None = None) -> Iterator[str]:
    for tick in ticks:
        x = x_axis.at(tick)
        if top is not None:
            yield f'<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'
        yield f'<text class="tick middle-text" x="{x}" y="{bottom + 15}">{escape(x_axis.text(tick))}</text>'


def _x_title(title: str, x: float, height: float) -> str:
    return f'<text class="axis end" x="{x}" y="{height - 4}">{escape(title)}</text>'


def _target(x: float, y: float) -> str:
    """A larger invisible circle to point at."""
    return f'<circle class="target" cx="{x}" cy="{y}" r="9"/>'


def _end_labels(series: Sequence[Series], y_axis: Axis) -> Iterator[str]:
    """Labels at the ends of lines, pushed apart where they would cover each other."""
    wanted = sorted((y_axis.at(line.points[-1][1]), line.label, line.style) for line in series if line.points)
    places: list[float] = []
    for y, _, _ in wanted:
        floor = places[-1] + LABEL_HEIGHT if places else TOP
        places.append(max(y, floor))
    overflow = max(0.0, places[-1] - (HEIGHT - BOTTOM)) if places else 0.0
    for position in range(len(places) - 1, -1, -1):
        ceiling = places[position + 1] - LABEL_HEIGHT if position + 1 < len(places) else places[position] - overflow
        places[position] = min(places[position], ceiling)
    for (y, label, style), place in zip(wanted, places, strict=True):
        start, end = WIDTH - RIGHT + 3, WIDTH - RIGHT + 12
        yield f'<polyline class="leader {style}" points="{start},{y} {end - 3},{place} {end},{place}"/>'
        yield f'<text class="label {style}" x="{end + 3}" y="{round(place + 3.5, 1)}">{escape(label)}</text>'


def _svg(parts: Sequence[str], height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'
