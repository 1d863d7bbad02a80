"""Moves as arcs: over the lanes in the wide form, beside them in the tall one; many of one pair are one arc."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from poise.serve.page.pictures.ink import inked, short, width
from poise.serve.page.pictures.lane_parts import GAP, Spot
from poise.serve.page.pictures.lane_values import Arc, Lane
from poise.serve.page.pictures.marks import compact

Point = tuple[float, float]
Curve = tuple[Point, Point, Point, Point]
_LIFT, _REACH = 20.0, 7.0  # An arc rises so far over its lanes, and so much more for each lane that it passes.
_NUMBER_SIZE = 12.5  # Numbers are 11 high and bold.
_PARTS = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82)  # Where on an arc its number may stand.
SIDE = 32.0  # The room for arcs beside the lanes of the tall form.


def sky(arcs: Sequence[Arc], row: Sequence[Lane]) -> float:
    """Leave room for arcs above a row of lanes; the wider they reach, the higher they go."""
    places = {lane.name: place for place, lane in enumerate(row)}
    reach = [
        abs(places[arc.source] - places[arc.target]) if arc.source in places and arc.target in places else 2
        for arc in arcs
        if arc.source in places or arc.target in places
    ]
    # A curve of this kind reaches three quarters of the way to its control points.
    return 0.75 * (_LIFT + _REACH * max(reach)) + 8 if reach else 0.0


def over(arc: Arc, spots: Mapping[str, Spot], place: int, taken: list[Point]) -> str:
    """Draw a move over the lanes, from cell to cell, or from lane to lane where it stands for several.

    Its number goes where no other is: `taken` says where they are, and learns of this one.
    """
    source, target = spots[arc.source], spots[arc.target]
    x1, y1 = source.items.get(arc.item, (source.x + source.wide / 2 - 5, source.y))
    x2, y2 = target.items.get(arc.item, (target.x + target.wide / 2 + 5, target.y))
    if source.y != target.y:
        return _around(arc, (x1, y1), (x2, y2), spots, place)
    peak = source.y - _LIFT - _REACH * round(abs(source.x - target.x) / (source.wide + GAP))
    curve = ((x1, y1), (x1, peak), (x2, peak), (x2, y2 - 3))
    return _drawn(arc, _path(curve), _tip(x2, y2 - 1, down=1), _label(arc, curve, taken))


def _path(curve: Curve) -> str:
    start, *others = (f"{short(x)},{short(y)}" for x, y in curve)
    return f"M{start}C{' '.join(others)}"


def _label(arc: Arc, curve: Curve, taken: list[Point]) -> Point:
    """Find the place on a curve, the nearer to its middle the better, where its number covers no other."""
    wide = width(compact(arc.count), _NUMBER_SIZE)
    found = _at(curve, 0.5)
    for part in _PARTS if arc.count > 1 else ():
        tried = _at(curve, part)
        if all(abs(tried[0] - x) >= wide or abs(tried[1] - y) >= _NUMBER_SIZE for x, y in taken):
            found = tried
            break
    taken += [found] if arc.count > 1 else []
    return found


def _at(curve: Curve, part: float) -> Point:
    """Give the point of a curve after a part of its way."""
    rest = 1 - part
    shares = (rest**3, 3 * rest**2 * part, 3 * rest * part**2, part**3)
    x, y = (sum(share * point[axis] for share, point in zip(shares, curve, strict=True)) for axis in (0, 1))
    return x, y


def _around(arc: Arc, start: Point, end: Point, spots: Mapping[str, Spot], place: int) -> str:
    """Draw a move to another row of lanes along the gaps between them, so that it crosses no words."""
    source, target = spots[arc.source], spots[arc.target]
    lift = 8.0 + 4 * (place % 5)
    gap = target.x - GAP / 2 if target.x > 0 else target.x + target.wide + GAP / 2
    sky1, sky2 = source.y - lift, target.y - lift
    corners = [start, (start[0], sky1), (gap, sky1), (gap, sky2), (end[0], sky2), (end[0], end[1] - 3)]
    # Numbers would cover each other here; the cell that it leads to has the same one.
    return _drawn(msgspec.structs.replace(arc, count=1), _rounded(corners), _tip(end[0], end[1] - 1, down=1), end)


def _rounded(corners: Sequence[Point]) -> str:
    """Draw a line along corners, each rounded by 5 or as far as its sides allow."""
    parts = [f"M{short(corners[0][0])},{short(corners[0][1])}"]
    for before, corner, after in zip(corners, corners[1:], corners[2:], strict=False):
        ends = [_towards(corner, other) for other in (before, after)]
        parts.append(f"L{ends[0]}Q{short(corner[0])},{short(corner[1])} {ends[1]}")
    return "".join([*parts, f"L{short(corners[-1][0])},{short(corners[-1][1])}"])


def _towards(corner: Point, other: Point) -> str:
    """Go from a corner a little way towards another."""
    across, down = other[0] - corner[0], other[1] - corner[1]
    length = abs(across) + abs(down)  # One of the two is 0.
    part = min(5.0, length / 2) / length if length else 0.0
    return f"{short(corner[0] + across * part)},{short(corner[1] + down * part)}"


def bundled(arcs: Sequence[Arc]) -> list[Arc]:
    """Make one arc of all that run between the same two lanes alike: beside the rows there is little room."""
    pairs: dict[tuple[str, str, str], list[Arc]] = {}
    for arc in arcs:
        pairs.setdefault((arc.style, arc.source, arc.target), []).append(arc)
    bundles = [
        msgspec.structs.replace(alike[0], title=_titles(alike), count=sum(arc.count for arc in alike))
        for alike in pairs.values()
    ]
    return bundles[::-1]  # What is in flight is drawn last, over all else.


def _titles(alike: Sequence[Arc]) -> str:
    shown = "\n".join(arc.title for arc in alike[:8])
    return shown + (f"\n… {len(alike) - 8} more" if len(alike) > 8 else "")


def beside(arc: Arc, spots: Mapping[str, Spot], place: int, taken: list[Point]) -> str:
    """Draw a move beside the rows: from right edge to right edge, or across the gap between two columns."""
    source, target = spots[arc.source], spots[arc.target]
    y1, y2 = (spot.y + min(spot.high - 6, 12 + 6 * (place % 4)) for spot in (source, target))
    if source.x == target.x:
        x1 = x2 = source.x + source.wide
        out, across = x1 + 10 + min(18.0, abs(y1 - y2) / 14), -1
    else:
        across = 1 if target.x > source.x else -1
        x1, x2 = (source.x + source.wide, target.x) if across > 0 else (source.x, target.x + target.wide)
        out = (x1 + x2) / 2
    curve = ((x1, y1), (out, y1), (out, y2), (x2 - 3 * across, y2))
    return _drawn(arc, _path(curve), _tip(x2 - across, y2, across=across), _label(arc, curve, taken))


def _drawn(arc: Arc, path: str, tip: str, label: Point) -> str:
    place = f'x="{short(label[0])}" y="{short(label[1] + 4)}"'
    number = f'<text class="many" {place}>{compact(arc.count)}</text>' if arc.count > 1 else ""
    lines = f'<path class="line" d="{path}"/><path class="tip" d="{tip}"/>'
    return f'<g class="arc {arc.style}"><title>{inked(arc.title)}</title>{lines}{number}</g>'


def _tip(x: float, y: float, *, across: int = 0, down: int = 0) -> str:
    """Draw the head of an arrow that points down, or to one side."""
    back_x, back_y = x - 7 * across, y - 7 * down
    ends = [(back_x + 3.6 * turn * down, back_y + 3.6 * turn * across) for turn in (1, -1)]
    return "".join([f"M{short(x)},{short(y)}", *(f"L{short(left)},{short(top)}" for left, top in ends), "z"])
