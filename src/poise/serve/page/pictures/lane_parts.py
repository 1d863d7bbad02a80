"""The parts of a lane, alike in both forms: its frame, its name and words, its load against its share, and tiles."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from poise.serve.page.pictures.ink import ended, fitted, inked, said, short, width, wrapped
from poise.serve.page.pictures.lane_values import UNOWNED, Lane, Tile
from poise.serve.page.pictures.marks import Size, box, compact, linked

GAP, PAD, LINE = 8.0, 9.0, 15.0
# Bold letters are wider than others: names of 13 as those of 14.5, words of 11 inside of bars as those of 12.5.
NAME_SIZE, WORD_SIZE, INNER_SIZE = 14.5, 12.0, 12.5


class Spot(msgspec.Struct, frozen=True):
    """Where a lane lies, and where the upper edge of each item's cell is."""

    x: float
    y: float
    wide: float
    high: float
    items: dict[str, tuple[float, float]] = {}


def frame(x: float, y: float, wide: float, high: float) -> str:
    """Draw the ground of a lane."""
    place = f'x="{short(x + 0.5)}" y="{short(y + 0.5)}"'
    return f'<rect class="lane" {place} width="{short(wide - 1)}" height="{short(high - 1)}" rx="10"/>'


def name_of(lane: Lane, x: float, y: float, space: float) -> str:
    """Write the name, which leads to what the member holds; its title says all that the lane says."""
    shown = lane.label or fitted(lane.name, space, NAME_SIZE)
    text = f'<text class="name" x="{short(x)}" y="{short(y)}">{inked(shown)}</text>'
    return linked(lane.href, f"<title>{inked(told(lane))}</title>{text}")


def name_room(lane: Lane, space: float) -> float:
    """Say how much of a line a name takes beside other words: what it needs, and less than half."""
    return min(width(lane.label or lane.name[:400], NAME_SIZE), space * 0.44)


def told(lane: Lane) -> str:
    """Say a lane in one line."""
    return f"{lane.label or said(lane.name)}: {', '.join(filter(None, (lane.held, lane.share, lane.words)))}"


def is_narrow(lanes: Sequence[Lane], space: float) -> bool:
    """Say whether load and share need a line each; all lanes of a picture break alike."""
    return any(lane.share and width(f"{lane.held}, {lane.share}", WORD_SIZE) > space for lane in lanes)


def lines_of(lane: Lane, space: float, *, narrow: bool) -> list[tuple[str, str]]:
    """Put load, share and state into lines of words with their class; what has no owner has the most to say."""
    counts = [lane.held, lane.share] if narrow else [", ".join(filter(None, (lane.held, lane.share)))]
    lines = [("sub", text) for text in counts if text]
    if lane.words:
        most = 3 if lane.tone == UNOWNED else 2
        lines += [("sub tone", text) for text in wrapped(lane.words, space, WORD_SIZE, most)]
    return lines


def words(text: str, classes: str, x: float, y: float, space: float, *, end: bool = False) -> str:
    """Write a line of words, cut at its end where it is too long."""
    anchor = ' text-anchor="end"' if end else ""
    shown = inked(ended(text, space, WORD_SIZE))
    return f'<text class="{classes}"{anchor} x="{short(x)}" y="{short(y)}">{shown}</text>'


def bar(lane: Lane, x: float, y: float, space: float, scale: int) -> str:
    """Draw the load as a bar, with the floor and the ceiling of the share marked, or with a what-if's load beside."""
    if lane.tone == UNOWNED:
        return ""

    def at(load: int) -> float:
        return x + space * load / scale

    parts = [block("track", x, y, space, 6, 3), block("fill", x, y, at(lane.load) - x, 6, 3)]
    if lane.after is not None:
        low, high = sorted((lane.load, lane.after))
        side = "gain" if lane.after > lane.load else "loss"
        parts.append(block(side, at(low), y, at(high) - at(low), 6))
    marks = sorted({mark for mark in (lane.floor, lane.ceiling) if mark})
    line = "".join(f"M{short(at(mark))},{short(y - 3)}v12" for mark in marks)
    return "".join(parts) + (f'<path class="mark" d="{line}"/>' if line else "")


def block(classes: str, x: float, y: float, wide: float, high: float, round_by: float = 0) -> str:
    """Draw a rectangle."""
    corner = f' rx="{short(round_by)}"' if round_by else ""
    size = f'width="{short(max(0.0, wide))}" height="{short(high)}"'
    return f'<rect class="{classes}" x="{short(x)}" y="{short(y)}" {size}{corner}/>'


def tiles_of(tiles: Sequence[Tile], y: float, space: float) -> tuple[str, float]:
    """Draw members of whom there is only a load to tell as small boxes with the load in them; and say how high."""
    if not tiles:
        return "", 0.0
    size = Size(110 if any(tile.count > 1 for tile in tiles) else 30, 18)
    across, drawn = size.across(space), []
    for place, tile in enumerate(tiles):
        x, top = place % across * (size.wide + size.gap), y + GAP + place // across * (size.high + size.gap)
        number = compact(tile.load) if tile.count == 1 else f"{compact(tile.count)} hold {compact(tile.load)}"
        label = f'<text x="{short(x + size.wide / 2)}" y="{short(top + 12.6)}">{number}</text>'
        shape = f'<path class="c tile {tile.tone}" d="{box(x, top, size.wide, size.high)}"/>'
        drawn.append(linked(tile.href, f"<title>{inked(tile.title)}</title>{shape}{label}"))
    rows = -(-len(tiles) // across)
    return f'<g class="n on-tile">{"".join(drawn)}</g>', 2 * GAP + size.rows_high(rows)
