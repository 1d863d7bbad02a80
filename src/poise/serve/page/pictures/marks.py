"""Cells as SVG: every state has its colour and also its own outline, dash or glyph. Nothing has an id.

An id would exist twice, in the wide and in the tall form, and a pattern inside a hidden form does not draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import msgspec

from poise.serve.page.pictures.ink import inked, short, width
from poise.serve.page.pictures.lane_values import (
    ASKED,
    GHOSTS,
    HELD,
    LATE,
    LOST,
    OFFERED,
    RELEASING,
    UNOWNED,
    Cell,
)


class Size(msgspec.Struct, frozen=True):
    """How large a cell is, and how far the next one is."""

    wide: float
    high: float
    gap: float = 3.0

    def across(self, space: float) -> int:
        """Count the cells that fit beside each other."""
        return max(1, int((space + self.gap) // (self.wide + self.gap)))

    def rows_high(self, rows: int) -> float:
        """Say how high so many rows are."""
        return max(0.0, rows * (self.high + self.gap) - self.gap)


# Each sign is drawn from the middle of its cell: the first step moves, the others draw (l) or move (m) from there.
_ARROW = [("M", -3.2, 0.0), ("l", 6.4, 0.0), ("m", -3.2, -3.2), ("l", 3.2, 3.2), ("l", -3.2, 3.2)]
_SIGNS: dict[str, list[tuple[str, float, float]]] = {
    ASKED: _ARROW,
    RELEASING: _ARROW,
    UNOWNED: [("M", 0.0, -4.0), ("l", 0.0, 4.6), ("m", 0.0, 3.0), ("l", 0.0, 0.1)],
    OFFERED: [("M", 0.0, 0.0), ("l", 0.0, 0.1)],
    LATE: [("M", 0.0, -3.2), ("l", 0.0, 3.2), ("l", 2.6, 0.0)],
    LOST: [("M", -2.8, -2.8), ("l", 5.6, 5.6), ("m", 0.0, -5.6), ("l", -5.6, 5.6)],
}
_NUMBER_SIZE = 11.4  # Numbers are 10 high and bold.
PLAIN, SMALL, NUMBERED = Size(15, 15), Size(10, 10, 2.5), Size(22.5, 16)


def grid(
    cells: Sequence[Cell], x: float, y: float, space: float, size: Size
) -> tuple[str, dict[str, tuple[float, float]]]:
    """Draw cells in rows; and say where the middle of each item's upper edge is, for arcs to begin and end at."""
    across, drawn, places = size.across(space), [], {}
    many: dict[tuple[str, str, str], list[tuple[Cell, float, float]]] = {}
    for place, cell in zip(places_of(cells, across, size), cells, strict=True):
        left, top = x + place % across * (size.wide + size.gap), y + place // across * (size.high + size.gap)
        if cell.item:
            places[cell.item] = (left + size.wide / 2, top)
            drawn.append(one(cell, left, top, size))
        else:
            many.setdefault((cell.state, cell.title, cell.href), []).append((cell, left, top))
    drawn += [_alike(cells, size) for cells in many.values()]
    return "".join(drawn), places


def places_of(cells: Sequence[Cell], across: int, size: Size) -> list[int]:
    """Give every cell its place in rows of so many; a number that is wider than a cell takes several of one row."""
    places, free = [], 0
    for cell in cells:
        spans = min(across, _spans(cell, size))
        if free % across + spans > across:
            free += across - free % across
        places.append(free)
        free += spans
    return places


def rows_of(cells: Sequence[Cell], across: int, size: Size) -> int:
    """Count the rows that cells fill."""
    return places_of(cells, across, size)[-1] // across + 1 if cells else 0


def _spans(cell: Cell, size: Size) -> int:
    """Count the places that a cell needs: only where items go to a number is as long as it is."""
    if cell.item or cell.state not in GHOSTS:
        return 1
    return ceil((width(_number(cell), _NUMBER_SIZE) + 4 + size.gap) / (size.wide + size.gap))


def one(cell: Cell, x: float, y: float, size: Size) -> str:
    """Draw one item: a link to its page, with its title."""
    classes = f"c {cell.state}" + (f" to-{cell.mark}" if cell.mark else "")
    body = f'<path class="{classes}" d="{box(x, y, size.wide, size.high)}"/>{_glyph(cell, x, y, size)}'
    if cell.mark and cell.state == HELD:
        half = short(size.high / 2)
        body += f'<path class="corner" d="M{short(x + size.wide)},{short(y + size.high / 2)}v{half}h-{half}z"/>'
    return linked(cell.href, f"<title>{inked(cell.title)}</title>{body}")


def linked(href: str, body: str) -> str:
    """Make a link that the pointer finds; the keyboard finds the same in the list of items, with fewer stops."""
    return f'<a href="{inked(href)}" tabindex="-1">{body}</a>' if href else f"<g>{body}</g>"


def box(x: float, y: float, wide: float, high: float) -> str:
    """Draw a box one unit inside of its place: its outline with round corners fills the rest."""
    return f"M{short(x + 1)},{short(y + 1)}h{short(wide - 2)}v{short(high - 2)}h{short(2 - wide)}z"


def _alike(cells: list[tuple[Cell, float, float]], size: Size) -> str:
    """Draw cells that say the same as one path, with a number in each; one that is not full is a lighter shade."""
    first, drawn = cells[0][0], ""
    for classes in ("", " less"):
        ours = [each for each in cells if (each[0].count < each[0].full) == bool(classes)]
        if not ours:
            continue
        path = "".join(box(x, y, _wide(cell, size), size.high) for cell, x, y in ours)
        texts = "".join(
            f'<text x="{short(x + _wide(cell, size) / 2)}" y="{short(y + size.high / 2 + 3.6)}">{_number(cell)}</text>'
            for cell, x, y in ours
        )
        drawn += (
            f'<path class="c {first.state}{classes}" d="{path}"/><g class="n on-{first.state}{classes}">{texts}</g>'
        )
    return linked(first.href, f"<title>{inked(first.title)}</title>{drawn}")


def _wide(cell: Cell, size: Size) -> float:
    spans = _spans(cell, size)
    return spans * (size.wide + size.gap) - size.gap


def _number(cell: Cell) -> str:
    return f"{'+' if cell.state in GHOSTS else ''}{compact(cell.count)}"


def compact(number: int) -> str:
    """Write 950, 1.2k, 12k."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}".removesuffix(".0") + "k" if number < 10_000 else f"{number // 1000}k"


def _glyph(cell: Cell, x: float, y: float, size: Size) -> str:
    """Draw the sign of a state inside its cell: an arrow, a mark of exclamation, a dot, a clock, a cross."""
    sign = _SIGNS.get(cell.state)
    if sign is None:
        return ""
    unit = min(size.wide, size.high) / 15
    middle, centre = x + size.wide / 2, y + size.high / 2
    first, *steps = sign
    path = f"M{short(middle + unit * first[1])},{short(centre + unit * first[2])}"
    path += "".join(f"{way}{short(unit * across)},{short(unit * down)}" for way, across, down in steps)
    return f'<path class="g on-{cell.state}" d="{path}"/>'
