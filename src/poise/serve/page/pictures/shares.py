"""Clusters as bars against their exact share, how far each is from it, and every workload as a cell."""

from __future__ import annotations

from fractions import Fraction

from markupsafe import Markup

from poise.serve.page.pictures.figure import TALL, WIDE, figure, sign, svg
from poise.serve.page.pictures.ink import counted, fitted, inked, said, short
from poise.serve.page.pictures.lane_parts import NAME_SIZE, block
from poise.serve.page.pictures.lane_values import Cell
from poise.serve.page.pictures.marks import NUMBERED, PLAIN, SMALL, Size, grid, one
from poise.serve.page.pictures.of_shares import FATES
from poise.serve.page.pictures.share_values import Share, Shares, mixed


def draw_shares(seen: Shares) -> Markup:
    """Draw both forms, the legend, the fleet's error, and the workloads that would move."""
    forms = "" if seen.teach else _wide(seen) + _tall(seen)
    return figure("shares", forms, _caption(seen), seen.teach)


def _scales(seen: Shares) -> tuple[Fraction, Fraction]:
    """Choose what a full bar and a full error stand for; an error is drawn against at least one replica."""
    loads = [max(Fraction(each.exact), Fraction(max(each.now, each.after))) for each in seen.shares]
    errors = [max(abs(each.error), abs(each.error_after)) for each in seen.shares]
    return max([Fraction(1), *loads]), max([Fraction(1), *errors])


def _wide(seen: Shares) -> str:
    most, worst = _scales(seen)
    heads = [
        ("cluster", 0.0),
        ("replicas against the exact share", 190.0),
        (f"off its share, up to {mixed(worst)}", 806.0),
    ]
    body = [f'<text class="sub" x="{short(x)}" y="12">{inked(text)}</text>' for text, x in heads]
    y = 22.0
    for each in seen.shares:
        body.append(_row(each, y, most, worst))
        y += 38
    cells, below = _workloads(seen, y + 14, WIDE)
    return svg("wide", WIDE, y + below, seen.about, "".join(body) + cells)


def _row(each: Share, y: float, most: Fraction, worst: Fraction) -> str:
    name = _text("name", fitted(each.name, 175, NAME_SIZE), 0, y + 15, each.name)
    words = _text("sub", fitted(each.words, 170, 12), 0, y + 30, each.words)
    told = _text("sub strong", fitted(numbers(each), 180, 12), 616, y + 15, exact_words(each))
    off = _text("sub", fitted(distance(each), 180, 12), 616, y + 30, exact_words(each))
    drawn = _bar(each, 190, y + 5, 410, most) + _off(each, 903, y + 5, 97, worst)
    return f'<g class="row {each.tone}">{name}{words}{drawn}{told}{off}</g>'


def _text(classes: str, shown: str, x: float, y: float, title: str) -> str:
    told = f"<title>{inked(said(title))}</title>"
    return f'<text class="{classes}" x="{short(x)}" y="{short(y)}">{told}{inked(shown)}</text>'


def numbers(each: Share) -> str:
    """Read as `317 of 316 2/3`, or with an arrow where the plan changes it."""
    now = f"{each.now:,}" if each.now == each.after else f"{each.now:,} → {each.after:,}"
    return f"{now} of {mixed(Fraction(each.exact))}"


def distance(each: Share) -> str:
    """Read as `1/3 over its share`."""
    error = each.error_after
    if not error:
        return "exactly its share"
    return f"{mixed(abs(error))} {'over' if error > 0 else 'under'} its share"


def exact_words(each: Share) -> str:
    """Say the share to the last digit, for the title."""
    exact = each.exact if len(each.exact) <= 60 else f"{each.exact[:60]}…"
    return f"{each.name}: {each.now:,} replicas, exact share {exact}"


def _bar(each: Share, x: float, y: float, space: float, most: Fraction) -> str:
    """Draw the replicas as a bar and the exact share as a line across it; what the plan changes is dotted."""

    def wide(value: Fraction | int) -> float:
        return float(space * value / most)

    parts = [block("track", x, y, space, 12, 4), block("fill", x, y, wide(each.now), 12, 4)]
    if each.after != each.now:
        low, high = sorted((each.now, each.after))
        side = "gain" if each.after > each.now else "loss"
        parts.append(block(side, x + wide(low), y + 0.7, max(1.0, wide(high - low)), 10.6))
    at = x + wide(Fraction(each.exact))
    return "".join(parts) + f'<path class="mark" d="M{short(at)},{short(y - 4)}v20"/>'


def _off(each: Share, middle: float, y: float, space: float, worst: Fraction) -> str:
    """Draw how far a cluster is from its share, to the left too little, to the right too much."""

    def part(error: Fraction, classes: str, high: float) -> str:
        wide = float(space * abs(error) / worst)
        return block(classes, middle if error > 0 else middle - wide, y + (12 - high) / 2, wide, high)

    track = block("track", middle - space, y, 2 * space, 12, 4)
    drawn = part(each.error, "off", 8) if each.error else ""
    drawn += part(each.error_after, "then", 10.6) if each.error_after != each.error and each.error_after else ""
    return f'{track}{drawn}<path class="mark" d="M{short(middle)},{short(y - 4)}v20"/>'


def _workloads(seen: Shares, y: float, space: float) -> tuple[str, float]:
    """Draw the workloads as cells under the clusters."""
    if not seen.cells:
        return "", 0.0
    size = _cell_size(seen)
    rows = -(-len(seen.cells) // size.across(space))
    head = f'<text class="sub" x="0" y="{short(y + 10)}">{counted(sum(seen.counts.values()), "workload")}</text>'
    cells, _ = grid(seen.cells, 0, y + 18, space, size)
    return f"{head}{cells}", 34 + size.rows_high(rows)


def _cell_size(seen: Shares) -> Size:
    if seen.each > 1:
        return NUMBERED
    return SMALL if len(seen.cells) > 120 else PLAIN


def _tall(seen: Shares) -> str:
    most, worst = _scales(seen)
    body, y = [], 0.0
    for each in seen.shares:
        name = _text("name", fitted(each.name, 190, NAME_SIZE), 0, y + 14, each.name)
        told = fitted(numbers(each), 150, 12)
        count = f'<text class="sub strong" text-anchor="end" x="{short(TALL)}" y="{short(y + 14)}">{inked(told)}</text>'
        words = _text("sub", fitted(f"{each.words}; {distance(each)}", 250, 12), 0, y + 50, exact_words(each))
        drawn = _bar(each, 0, y + 23, TALL, most) + _off(each, 305, y + 41, 45, worst)
        body.append(f'<g class="row {each.tone}">{name}{count}{words}{drawn}</g>')
        y += 66
    cells, below = _workloads(seen, y, TALL)
    return svg("tall", TALL, y + below, seen.about, "".join(body) + cells)


def _caption(seen: Shares) -> str:
    """Say the legend, the error and the movers in words."""
    entries = [
        f"<li>{sign(one(Cell(fate, ''), 0, 0, PLAIN), 15)}{seen.counts[fate]:,} {words}</li>"
        for fate, words in FATES.items()
        if seen.counts.get(fate)
    ]
    line = block("track", 0, 3, 26, 9, 3) + block("fill", 0, 3, 17, 9, 3) + '<path class="mark" d="M15,0v15"/>'
    entries.append(f"<li>{sign(line, 27)}replicas, and a line at the exact share</li>")
    if seen.each > 1:
        entries.append(f"<li>{sign(one(Cell('held', ''), 0, 0, PLAIN), 15)}a full cell is {seen.each:,} workloads</li>")
    errors = "".join(f"<p>{inked(told)}</p>" for told in seen.errors)
    movers = "".join(
        f'<li><a href="{inked(each.href)}"><bdi>{inked(fitted(each.name, 300, 13))}</bdi></a> {inked(each.text)}</li>'
        for each in seen.movers
    )
    head = "What if: these would change" if seen.imagined else "These change"
    listed = f'<p class="head">{head}</p><ul class="movers">{movers}</ul>' if movers else ""
    more = f"<p>{inked(seen.more)}</p>" if seen.more else ""
    legend = f'<ul class="legend">{"".join(entries)}</ul>' if seen.shares and not seen.teach else ""
    return f"{legend}{errors}{listed}{more}"
