"""The signature picture: members as lanes, items as cells, moves as arcs. Wide: columns; tall: rows."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from poise.serve.page.pictures.arcs import SIDE, Point, beside, bundled, over, sky
from poise.serve.page.pictures.figure import TALL, WIDE, figure, svg
from poise.serve.page.pictures.ink import width
from poise.serve.page.pictures.lane_parts import (
    GAP,
    LINE,
    PAD,
    WORD_SIZE,
    Spot,
    bar,
    frame,
    is_narrow,
    lines_of,
    name_of,
    name_room,
    tiles_of,
    words,
)
from poise.serve.page.pictures.lane_values import UNOWNED, Lane, Lanes
from poise.serve.page.pictures.legend import legend
from poise.serve.page.pictures.marks import NUMBERED, PLAIN, SMALL, Size, grid, rows_of

_FOOT = 30.0  # A bar and a name stand under the cells of a column, then lines of words.
_ACROSS_MAX = 8
_ROWS_MAX = 9  # More rows of cells than these are drawn smaller.
_ONE_COLUMN = 16  # More members than these stand in two columns in the tall form.
_BESIDE = 250.0  # In a row as wide as this, name and load fit in one line.


def draw_lanes(seen: Lanes) -> Markup:
    """Draw both forms and the legend; where nobody holds anything, say how somebody could."""
    forms = "" if seen.teach else wide_form(seen) + tall_form(seen)
    return figure("lanes", forms, legend(seen), seen.teach)


def wide_form(seen: Lanes) -> str:
    """Draw members as columns, in as many rows of columns as they need."""
    across = _across(len(seen.lanes))
    wide = (WIDE - GAP * (across - 1)) / across
    size, narrow = _size(seen, wide - 2 * PAD), is_narrow(seen.lanes, wide - 2 * PAD)
    y, drawn, spots = 0.0, [], {}
    for start in range(0, len(seen.lanes), across):
        row = seen.lanes[start : start + across]
        y += sky(seen.arcs, row)
        foot = _cells_high(row, size, wide - 2 * PAD)
        high = foot + _FOOT + LINE * max(len(lines_of(lane, wide - 2 * PAD, narrow=narrow)) for lane in row) + PAD - 2
        for place, lane in enumerate(row):
            spot = Spot(place * (wide + GAP), y, wide, high)
            text, spots[lane.name] = _column(lane, spot, foot, size, seen.scale, narrow=narrow)
            drawn.append(text)
        y += high + GAP
    tiles, below = tiles_of(seen.tiles, y - GAP, WIDE)
    # What is in flight is drawn last, over all else.
    taken: list[Point] = []
    arcs = [over(arc, spots, place, taken) for place, arc in enumerate(reversed(seen.arcs))]
    return svg("wide", WIDE, y - GAP + below, seen.about, "".join([*drawn, tiles, *arcs]))


def _across(lanes: int) -> int:
    """Choose how many columns stand beside each other: all while their words have room, then rows of equal length."""
    rows = -(-lanes // _ACROSS_MAX)
    return -(-lanes // rows) if lanes else 1


def _size(seen: Lanes, space: float) -> Size:
    """Choose how large cells are: numbers need room, and very many are drawn smaller."""
    if seen.each > 1:
        return NUMBERED
    rows = max((rows_of(lane.cells, PLAIN.across(space), PLAIN) for lane in seen.lanes), default=0)
    return SMALL if rows > _ROWS_MAX else PLAIN


def _cells_high(lanes: Sequence[Lane], size: Size, space: float) -> float:
    rows = max((rows_of(lane.cells, size.across(space), size) for lane in lanes), default=0)
    return size.rows_high(max(1, rows)) + 2 * PAD


def _column(lane: Lane, spot: Spot, foot: float, size: Size, scale: int, *, narrow: bool) -> tuple[str, Spot]:
    """Draw a member as a column: cells on top, where the arcs come down, and under them load, name and words."""
    x, y, space = spot.x + PAD, spot.y + foot, spot.wide - 2 * PAD
    cells, items = grid(lane.cells, x, spot.y + PAD, space, size)
    texts = bar(lane, x, y, space, scale) + name_of(lane, x, y + 23, space)
    for place, (classes, text) in enumerate(lines_of(lane, space, narrow=narrow)):
        texts += words(text, classes, x, y + 23 + LINE * (place + 1), space)
    ground = frame(spot.x, spot.y, spot.wide, spot.high)
    return f'<g class="col {lane.tone}">{ground}{cells}{texts}</g>', Spot(spot.x, spot.y, spot.wide, spot.high, items)


def tall_form(seen: Lanes) -> str:
    """Draw members as rows for a narrow screen, in two columns where there are many; arcs run along the right side."""
    columns = 1 if len(seen.lanes) <= _ONE_COLUMN else 2
    side, between = (SIDE, SIDE - 6) if seen.arcs else (0.0, GAP)
    wide = (TALL - side - between * (columns - 1)) / columns
    size = NUMBERED if seen.each > 1 else PLAIN
    narrow = any(not _is_beside(lane, wide - 2 * PAD) for lane in seen.lanes)
    heights, drawn, spots = [0.0] * columns, [], {}
    for lane in seen.lanes:
        column = heights.index(min(heights))
        place = Spot(column * (wide + between), heights[column], wide, 0)
        text, spot = _row(lane, place, size, seen.scale, narrow=narrow)
        drawn.append(text)
        spots[lane.name] = spot
        heights[column] += spot.high + 6
    tiles, below = tiles_of(seen.tiles, max(heights) - 6, TALL)
    taken: list[Point] = []
    arcs = [beside(arc, spots, place, taken) for place, arc in enumerate(bundled(seen.arcs))]
    return svg("tall", TALL, max(heights) - 6 + below, seen.about, "".join([*drawn, tiles, *arcs]))


def _is_beside(lane: Lane, space: float) -> bool:
    """Say whether load and share fit beside the name in one line."""
    counts = ", ".join(filter(None, (lane.held, lane.share)))
    return name_room(lane, space) + PAD + width(counts, WORD_SIZE) <= space


def _row(lane: Lane, place: Spot, size: Size, scale: int, *, narrow: bool) -> tuple[str, Spot]:
    """Draw a member as a row: name and load, then the bar, then its state in words, then its cells."""
    x, y, wide = place.x, place.y, place.wide
    left, space = x + PAD, wide - 2 * PAD
    roomy = wide > _BESIDE
    room = name_room(lane, space) if roomy else space
    texts, foot = name_of(lane, left, y + 19, room), y + 19
    lines = lines_of(lane, space, narrow=narrow)
    if roomy:
        texts += words(lines[0][1], "sub", left + space, foot, space - room - PAD, end=True)
        lines = lines[1:]
    for classes, text in [line for line in lines if line[0] == "sub"]:
        foot += LINE
        texts += words(text, classes, left, foot, space)
    if lane.tone != UNOWNED:
        texts += bar(lane, left, foot + 9, space, scale)
        foot += 14
    for classes, text in [line for line in lines if line[0] != "sub"]:
        foot += LINE + 2
        texts += words(text, classes, left, foot, space)
    rows = rows_of(lane.cells, size.across(space), size)
    cells, items = grid(lane.cells, left, foot + 8, space, size)
    high = foot + (8 + size.rows_high(rows) if rows else 0) + PAD - y
    return f'<g class="col {lane.tone}">{frame(x, y, wide, high)}{cells}{texts}</g>', Spot(x, y, wide, high, items)
