"""Spot and on-demand, or pools, against what is wanted: a bar a workload, its next action, and why it waits."""

from __future__ import annotations

from markupsafe import Markup

from poise.serve.page.pictures.figure import TALL, WIDE, figure, sign, svg
from poise.serve.page.pictures.ink import ended, fitted, inked, said, short, width, wrapped
from poise.serve.page.pictures.lane_parts import INNER_SIZE, NAME_SIZE, block
from poise.serve.page.pictures.marks import linked
from poise.serve.page.pictures.of_split import TONES
from poise.serve.page.pictures.split_values import SplitRow, Splits

_SPOT = "spot"
_FILLS = ("steady", "hatched", "plain")  # Pools take turns: filled, hatched, outlined.
_HEADS = (("workload", 0), ("what runs, and the thin bar: what is wanted", 190), ("next action", 590))


def draw_splits(seen: Splits) -> Markup:
    """Draw both forms and the legend."""
    forms = "" if seen.teach else _wide(seen) + _tall(seen)
    return figure("split", forms, _caption(seen), seen.teach)


def fill_of(place: str, places: list[str]) -> str:
    """Choose how a side is filled: spot is always hatched, pools take turns."""
    if place == _SPOT:
        return "hatched"
    others = [each for each in places if each != _SPOT]
    return _FILLS[others.index(place) % len(_FILLS)]


def _wide(seen: Splits) -> str:
    body = [f'<text class="sub" x="{x}" y="12">{text}</text>' for text, x in _HEADS]
    y = 24.0
    for row in seen.rows:
        lines = wrapped(row.why, 410, 12, 2) if row.why else []
        texts = _name(row, 0, y + 13, 175) + _text("sub", row.words, 0, y + 29, 175)
        texts += _text("sub strong", row.next, 590, y + 13, 410)
        texts += "".join(
            _text("sub tone", line, 590, y + 29 + 15 * at, 410, title=row.why) for at, line in enumerate(lines)
        )
        body.append(f'<g class="row {row.tone}">{texts}{_bars(row, seen.places, 190, y, 370)}</g>')
        y += 48 + 15 * max(0, len(lines) - 1)
    return svg("wide", WIDE, y - 10, seen.about, "".join(body))


def _tall(seen: Splits) -> str:
    body, y = [], 0.0
    for row in seen.rows:
        lines = wrapped(row.why, TALL, 12, 3) if row.why else []
        texts = _name(row, 0, y + 13, 200) + _text("sub", row.words, TALL, y + 13, 145, end=True)
        texts += _text("sub strong", row.next, 0, y + 66, TALL)
        texts += "".join(
            _text("sub tone", line, 0, y + 81 + 15 * at, TALL, title=row.why) for at, line in enumerate(lines)
        )
        body.append(f'<g class="row {row.tone}">{texts}{_bars(row, seen.places, 0, y + 21, TALL)}</g>')
        y += 88 + 15 * len(lines)
    return svg("tall", TALL, y - 16, seen.about, "".join(body))


def _name(row: SplitRow, x: float, y: float, space: float) -> str:
    text = f'<text class="name" x="{short(x)}" y="{short(y)}">{inked(fitted(row.name, space, NAME_SIZE))}</text>'
    return linked(row.href, f"<title>{inked(row.title)}</title>{text}")


def _text(classes: str, text: str, x: float, y: float, space: float, *, end: bool = False, title: str = "") -> str:
    anchor = ' text-anchor="end"' if end else ""
    told = f"<title>{inked(title)}</title>" if title else ""
    shown = inked(ended(text, space, 12))
    return f'<text class="{classes}"{anchor} x="{short(x)}" y="{short(y)}">{told}{shown}</text>'


def _bars(row: SplitRow, places: list[str], x: float, y: float, space: float) -> str:
    """Draw what runs as a bar of sides with their numbers, and under it a thin one of what is wanted."""
    parts = [block("track", x, y, space, 18, 3)]
    at_now = at_wanted = x
    for side in row.sides:
        fill, unit = fill_of(side.name, places), space / row.longest
        label = (f"{side.name} {side.now:,}", f"{side.now:,}")
        parts.append(_segment(fill, at_now, y, unit * side.now, 18, f"{said(side.name)}: {side.now:,} run", label))
        at_now += unit * side.now
        wanted = f"{said(side.name)}: {side.wanted:,} wanted"
        parts.append(_segment(fill, at_wanted, y + 22, unit * side.wanted, 7, wanted, ()))
        at_wanted += unit * side.wanted
    return "".join(parts)


def _segment(fill: str, x: float, y: float, wide: float, high: float, title: str, labels: tuple[str, ...]) -> str:
    """Draw one side with the longest of its labels that fits."""
    if wide <= 0:
        return ""
    inner = max(1.0, wide - 1.5)
    lines = hatch(x, y, inner, high) if fill == "hatched" else ""
    shown = inked(next((text for text in labels if width(text, INNER_SIZE) <= inner - 8), ""))
    text = f'<text class="in {fill}" x="{short(x + inner / 2)}" y="{short(y + 13)}">{shown}</text>' if shown else ""
    return f"<g><title>{inked(title)}</title>{block(fill, x, y, inner, high, 2)}{lines}{text}</g>"


def hatch(x: float, y: float, wide: float, high: float) -> str:
    """Draw slanted lines inside a box: what is hatched can be told apart without its colour."""
    step = 7 if high > 10 else 5
    lines = [
        f"M{short(x + at)},{short(y + high)}l{short(high)},{short(-high)}"
        for at in range(0, int(wide - high) + 1, step)
    ]
    return f'<path class="lines" d="{"".join(lines)}"/>' if lines else ""


def _caption(seen: Splits) -> str:
    """Name the sides, and count the workloads by what they do next."""
    if not seen.rows:
        return ""
    entries = "".join(
        f"<li>{_sign(fill_of(place, seen.places))}<bdi>{inked(fitted(place, 240, 13))}</bdi></li>"
        for place in seen.places
    )
    told = [f"{seen.counts[tone]:,} {words}" for tone, words in TONES.items() if seen.counts.get(tone)]
    notes = "".join(f"<p>{inked(note)}</p>" for note in [f"Workloads: {', '.join(told)}.", *seen.notes])
    return f'<ul class="legend">{entries}</ul>{notes}'


def _sign(fill: str) -> str:
    return sign(block(fill, 0.5, 2, 26, 11, 2) + (hatch(0.5, 2, 26, 11) if fill == "hatched" else ""), 27)
