"""Plots as SVG for a page without scripts: the drawing stretches with the page, text and line widths do not.

A plot has a fixed height in pixels and any width. Its drawing is an SVG of 1,000 units across that is stretched; the
labels are text of the page, placed by pixels down and by percent across, so that they stay readable on a phone.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

import msgspec

WIDTH = 1000
POINTS_MAX = 400
LABEL_PX = 15


class Scale(msgspec.Struct, frozen=True):
    """A vertical axis: the values at its ends, the step between labels, its height in pixels; or in powers of ten."""

    low: float
    high: float
    step: float
    height: int
    log: bool = False

    def y(self, value: float) -> float:
        """Place a value, in pixels from the top."""
        low, high = self._bent(self.low), self._bent(self.high)
        part = (self._bent(value) - low) / (high - low)
        return round(self.height * (1 - min(1.0, max(0.0, part))), 2)

    def _bent(self, value: float) -> float:
        """Bend large values down; log(1 + x) also has a place for 0."""
        return log10(1 + value) if self.log else value

    def ticks(self) -> list[float]:
        """List the values to label, none so near the one below that the texts would touch."""
        if not self.log:
            multiples = range(round(self.low / self.step), round(self.high / self.step) + 1)
            return [multiple * self.step for multiple in multiples]
        powers = [10.0**power for power in range(len(str(int(self.high)))) if 10**power > self.low]
        kept = [self.low]
        for value in [*powers, self.high]:
            if self.y(kept[-1]) - self.y(value) >= LABEL_PX:
                kept.append(value)
        return kept


def scale(values: Sequence[float], height: int) -> Scale:
    """Make a plain axis that holds 0 and all the values: round ends, and a label about every 40 pixels."""
    low, high = min([0, *values]), max([0, *values])
    if high - low < 1:
        high = low + 1
    step = _round_step((high - low) / max(2, height // 40))
    return Scale(floor(low / step) * step, ceil(high / step) * step, step, height)


def log_scale(values: Sequence[float], height: int, low: float = 0) -> Scale:
    """Make an axis that counts in powers of ten; what is below its low end is drawn at that end."""
    return Scale(low, _round_step(max([1, 10 * low, *values])), 1, height, log=True)


def _round_step(least: float) -> float:
    """Find the smallest of 1, 2, 5, 10, 20, 50, … that is not below; loads are whole numbers."""
    power = 10.0 ** floor(log10(max(least, 1)))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least)


def buckets(count: int, most: int = POINTS_MAX) -> list[range]:
    """Group places into at most so many neighbouring ones, all of one size but the last, which may be smaller."""
    size = max(1, -(-count // most))
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def steps(values: Sequence[float], axis: Scale) -> str:
    """Draw values as a line of steps, each as wide as its place."""
    if not values:
        return ""
    width = WIDTH / len(values)
    parts = [f"M0,{_short(axis.y(values[0]))}"]
    before = values[0]
    for place, value in enumerate(values):
        if value != before:
            parts.append(f"H{_short(place * width)}V{_short(axis.y(value))}")
            before = value
    return "".join([*parts, f"H{WIDTH}"])


def band(lows: Sequence[float], highs: Sequence[float], axis: Scale) -> str:
    """Draw the area between two lines of steps."""
    if not lows:
        return ""
    back = [f"L{WIDTH},{_short(axis.y(lows[-1]))}"]
    width, after = WIDTH / len(lows), lows[-1]
    for place in range(len(lows) - 1, -1, -1):
        if lows[place] != after:
            back.append(f"H{_short((place + 1) * width)}V{_short(axis.y(lows[place]))}")
            after = lows[place]
    return f"{steps(highs, axis)}{''.join(back)}H0Z"


def dashes(values: Sequence[float | None], axis: Scale) -> str:
    """Draw a short line at each value, as wide as its place, and nothing where there is None."""
    width = WIDTH / max(1, len(values))
    return "".join(
        f"M{_short(place * width)},{_short(axis.y(value))}H{_short((place + 1) * width)}"
        for place, value in enumerate(values)
        if value is not None
    )


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class Mark(msgspec.Struct, frozen=True):
    """One path of a plot, with the classes that say how it looks."""

    path: str
    classes: str


class Label(msgspec.Struct, frozen=True):
    """A text at the right end of a plot, beside the value that it names."""

    value: float
    text: str
    classes: str


def plot(axis: Scale, marks: Sequence[Mark], across: range, about: str, labels: Sequence[Label] = ()) -> str:
    """Put axes, paths and labels together; `across` numbers the places, `about` says the plot in words."""
    ticks = [(axis.y(value), f"{value:,.0f}") for value in axis.ticks()]
    lines = "".join(f'<path class="grid" d="M0,{_short(y)}H{WIDTH}"/>' for y, _ in ticks)
    paths = "".join(f'<path class="{escape(mark.classes)}" d="{mark.path}"/>' for mark in marks if mark.path)
    names = "".join(f'<span style="top:{_short(y)}px">{text}</span>' for y, text in ticks)
    beside = "".join(
        f'<span class="{escape(label.classes)}" style="top:{_short(y)}px">{escape(label.text)}</span>'
        for y, label in _apart(axis, labels)
    )
    aside = f'<div class="ends">{beside}</div>' if labels else ""
    return (
        f'<div class="plot{" labelled" if labels else ""}" style="--h:{axis.height}px"><div class="ys">{names}</div>'
        f'<svg viewBox="0 0 {WIDTH} {axis.height}" preserveAspectRatio="none" role="img" aria-label="{escape(about)}">'
        f"{lines}{paths}</svg>{aside}"
        f'<div class="xs">{_numbers_below(across)}</div></div>'
    )


def _numbers_below(numbers: range) -> str:
    """Label the places across: the first, the last, and about four round ones between, each at its middle."""
    if not numbers:
        return ""
    first, last = numbers[0], numbers[-1]
    step = int(_round_step(len(numbers) / 5))
    between = [number for number in numbers if number % step == 0 and first + step / 2 < number < last - step / 2]
    spans = []
    for number in dict.fromkeys([first, *between, last]):
        part = {last: 100.0, first: 0.0}.get(number, 100 * (number - first + 0.5) / len(numbers))
        spans.append(f'<span style="left:{_short(part)}%">{number:,}</span>')
    return "".join(spans)


def _apart(axis: Scale, labels: Sequence[Label]) -> list[tuple[float, Label]]:
    """Place labels at their values, pushed apart so that none covers another."""
    placed: list[tuple[float, Label]] = []
    for label in sorted(labels, key=lambda each: -each.value):
        y = axis.y(label.value)
        if placed and y < placed[-1][0] + LABEL_PX:
            y = placed[-1][0] + LABEL_PX
        placed.append((y, label))
    # What was pushed out below moves up again, and takes along what is then too near.
    most = float(axis.height)
    for place in range(len(placed) - 1, -1, -1):
        y, label = placed[place]
        placed[place] = (min(y, most), label)
        most = placed[place][0] - LABEL_PX
    return placed


def offset(value: float, largest: float) -> str:
    """Draw how far a value is from zero, to the left or to the right of a middle line."""
    part = 50 * max(-1.0, min(1.0, value / largest)) if largest else 0.0
    left, width = (50.0, part) if part >= 0 else (50 + part, -part)
    return (
        '<svg class="offset" aria-hidden="true"><rect class="middle" x="50%" y="0" width="1" height="100%"/>'
        f'<rect class="fill" x="{_short(left)}%" y="1" width="{_short(width)}%" height="5"/></svg>'
    )
