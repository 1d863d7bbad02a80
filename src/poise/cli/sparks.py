"""The last minutes as a line of small bars: what nobody held at its worst, and how many moves were made."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from poise.cli.ink import Ink, Row, Span, row
from poise.jobs.series import Series

SPAN_S = 1800
_BARS = 15


def spark_row(series: Series | None, ink: Ink, *, is_split: bool = False) -> Row:
    """Draw the last half hour; nothing where nothing is known of it. A split counts replicas and reports instead."""
    if series is None or not series.at:
        return ()
    worst = _worst(series, "unowned")
    steps = _grown(series, "moves")
    most, moved = max((each or 0 for each in worst), default=0), sum(each or 0 for each in steps)
    return row(
        Span("Last 30 min", "head"),
        "   missing " if is_split else "   no owner ",
        Span(_drawn(worst, ink), "bad" if most else "dim"),
        f" most {most:g}   {'reports' if is_split else 'moves'} ",
        Span(_drawn(steps, ink), "move" if moved else "dim"),
        f" {moved:g}",
    )


def _edges(series: Series) -> list[float]:
    begin = series.now - SPAN_S
    return [begin + SPAN_S * place / _BARS for place in range(_BARS + 1)]


def _worst(series: Series, name: str) -> list[float | None]:
    """Give the largest value of every part of the time; a value holds until the next."""
    edges, column = _edges(series), series.series.get(name, [])
    found: list[float | None] = []
    for begin, end in pairwise(edges):
        first = max(0, bisect_right(series.at, begin) - 1)
        last = bisect_right(series.at, end)
        values = [each for each in column[first:last] if each is not None]
        found.append(max(values, default=None))
    return found


def _grown(series: Series, name: str) -> list[float | None]:
    """Give how much a number grew in every part of the time; before its first point it was what that says."""
    first = next(iter(series.series.get(name, [])), None) or 0.0
    held = [_held(series, name, edge) for edge in _edges(series)]
    return [
        None if after is None else max(0.0, after - (first if before is None else before))
        for before, after in pairwise(held)
    ]


def _held(series: Series, name: str, at_s: float) -> float | None:
    place = bisect_right(series.at, at_s) - 1
    column = series.series.get(name, [])
    return column[place] if 0 <= place < len(column) else None


def _drawn(values: list[float | None], ink: Ink) -> str:
    """Draw bars between zero and the largest; what is not known is left blank."""
    signs = ink.sign("spark")
    most = max((each or 0.0 for each in values), default=0.0)
    return "".join(" " if each is None else _bar(each, most, signs) for each in values)


def _bar(value: float, most: float, signs: str) -> str:
    """Choose a bar; what is more than zero is never drawn as zero."""
    if not value or not most:
        return signs[0]
    return signs[max(1, round(value / most * (len(signs) - 1)))]
