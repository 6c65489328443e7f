"""Scales and ticks of the plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

TICKS_MAX = 6


@dataclass(frozen=True)
class Axis:
    """Maps values to places in a drawing.

    Args:
        start: Place of `low`.
        end: Place of `high`; may be before `start`.
        text: Writes a value as the reader wants it.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool
    text: Callable[[float], str]

    def at(self, value: float) -> float:
        """The place of a value."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values within the axis: powers of ten on a logarithmic one, with 2s and 5s where there is room."""
        if not self.log:
            step = _round_step((self.high - self.low) / (TICKS_MAX - 1))
            first = math.ceil(self.low / step - 1e-9)
            return [count * step for count in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            ticks = [factor * 10.0**decade for decade in decades for factor in factors]
            ticks = [tick for tick in ticks if self.low * 0.999 <= tick <= self.high * 1.001]
            if len(ticks) <= TICKS_MAX:
                return ticks or [math.sqrt(self.low * self.high)]
        return ticks


def axis(values: Iterable[float], start: float, end: float, *, log: bool, text: Callable[[float], str]) -> Axis:
    """An axis that holds all values, from zero or, if logarithmic, with a little room on both sides."""
    found = [value for value in values if value > 0 or not log] or [1.0]
    low, high = min(found), max(found)
    if log:
        return Axis(low / 1.25, high * 1.25, start, end, log=True, text=text)
    top = high or 1.0
    step = _round_step(top / (TICKS_MAX - 1))
    return Axis(0.0, math.ceil(top / step - 1e-9) * step, start, end, log=False, text=text)


def _round_step(step: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * 0.999)
