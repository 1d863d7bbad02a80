"""A small history of numbers: a point for every change, bounded in number and in bytes, the older ones thinned.

Laws: points are real ones, in the order of time; a value holds until the next point; the first and the last point stay;
of the old points the worst of a few and the last of them are kept, so that no outage vanishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

POINTS_MAX = 360
BYTES_MAX = 20_000
AHEAD_MAX_S = 3_600  # A point further ahead than this was written by a wrong clock.
_GROUP = 4
Number = int | float
Values = Mapping[str, Number]


class Point(msgspec.Struct, frozen=True):
    """What was counted from one second on; a name is left out where there was nothing to count."""

    at_s: int
    values: Values


class History(msgspec.Struct, frozen=True):
    """The points of a job, the moves so far, and the last line of the journal that was counted for them."""

    points: tuple[Point, ...] = ()
    moves: int = 0
    line: int = 0


class _Kept(msgspec.Struct, frozen=True):
    """A history as text: columns, and times as differences, since those are short."""

    line: int
    moves: int
    steps: list[int]
    columns: dict[str, list[Number | None]]


def with_point(history: History, at_s: int, values: Values) -> History:
    """Add what is counted now, unless it is what was counted last."""
    points = [point for point in history.points if point.at_s <= at_s + AHEAD_MAX_S]
    if points and points[-1].values == values:
        return msgspec.structs.replace(history, points=tuple(points))
    # Servers disagree about the time by a little; time never runs backwards here.
    after_s = max(at_s, points[-1].at_s + 1) if points else at_s
    return msgspec.structs.replace(history, points=bounded([*points, Point(after_s, dict(values))]))


def bounded(points: Sequence[Point]) -> tuple[Point, ...]:
    """Thin the older points until they are few enough."""
    while len(points) > POINTS_MAX:
        points = thinned(points)
    return tuple(points)


def thinned(points: Sequence[Point]) -> list[Point]:
    """Leave about half of the older half: of every few points the worst and the last; the very first stays."""
    half = len(points) // 2
    kept = list(points[:1])
    for start in range(1, half, _GROUP):
        group = points[start : min(start + _GROUP, half)]
        worst = max(group, key=_badness)
        kept += [worst, group[-1]] if worst is not group[-1] else [worst]
    return [*kept, *points[half:]]


def _badness(point: Point) -> tuple[float, float]:
    """Compare how bad it was: how many had no owner, then how uneven it was."""
    values = point.values
    uneven = values.get("error") or (values.get("loadMax") or 0) - (values.get("loadMin") or 0)
    return float(values.get("unowned") or 0), float(uneven)


def columns_of(points: Sequence[Point]) -> dict[str, list[Number | None]]:
    """Turn points into columns, one a name; a point that did not count a name has None there."""
    names = list(dict.fromkeys(name for point in points for name in point.values))
    return {name: [point.values.get(name) for point in points] for name in names}


def write_history(history: History) -> str:
    """Write a history as text; one that is too long is thinned until it fits."""
    while len(text := _encoded(history)) > BYTES_MAX and len(history.points) > _GROUP * 2:
        history = msgspec.structs.replace(history, points=tuple(thinned(history.points)))
    return text.decode()


def _encoded(history: History) -> bytes:
    times = [point.at_s for point in history.points]
    steps = [after - before for before, after in zip([0, *times], times, strict=False)]
    return msgspec.json.encode(_Kept(history.line, history.moves, steps, columns_of(history.points)))


def read_history(text: str | None) -> History:
    """Read a history; without a text, or with one that nobody could have written, it is empty."""
    try:
        kept = msgspec.json.decode(text or "", type=_Kept)
    except msgspec.DecodeError:
        return History()
    if any(len(column) != len(kept.steps) for column in kept.columns.values()):
        return History()
    points = tuple(
        Point(at_s, {name: value for name, column in kept.columns.items() if (value := column[place]) is not None})
        for place, at_s in enumerate(accumulate(kept.steps))
    )
    return History(points, kept.moves, kept.line)
