"""The story of an item: its owners as bars in time, with epochs and reasons. Wide: a row an owner; tall: a list."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from markupsafe import Markup

from poise.model.ownership import Line
from poise.serve.page.pictures.figure import TALL, WIDE, figure, sign, svg
from poise.serve.page.pictures.ink import counted, ended, fitted, inked, said, short, span, width, wrapped
from poise.serve.page.pictures.lane_parts import INNER_SIZE, NAME_SIZE, WORD_SIZE, block
from poise.serve.page.pictures.spans import FREE, OVER, TOLD, WORDS, Span, epoch_text, spans_of
from poise.serve.page.rendering import moment_text

_SPANS_MAX, _LISTED_MAX = 40, 14
_LABEL, _ROW, _BAR = 180.0, 30.0, 20.0


class _Told(msgspec.Struct, frozen=True):
    """The spans that are drawn, how many came before them, and the time of looking."""

    spans: list[Span]
    earlier: int
    now: datetime
    about: str


def draw_story(lines: list[Line], now: datetime, zero: datetime | None = None) -> Markup:
    """Draw who held an item when, from lines oldest first; `zero` is the wall clock at store time 0 (None: 1970)."""
    spans = spans_of(lines, zero)
    if not spans:
        return figure("story", "", "", ["Nothing has happened to it yet: its story begins with its first owner."])
    told = _Told(spans[-_SPANS_MAX:], max(0, len(spans) - _SPANS_MAX), now, _about(spans, now))
    return figure("story", _wide(told) + _tall(told), _caption(told), [])


def _about(spans: Sequence[Span], now: datetime) -> str:
    """Say the story in words: how it stands, and how often it changed hands."""
    grants = sum(1 for before, each in zip([None, *spans], spans, strict=False) if _is_new_owner(before, each))
    owners = len({each.owner for each in spans if each.owner})
    past = (
        f"{counted(grants, 'grant')} to {counted(owners, 'owner')} so far" if owners else counted(len(spans), "change")
    )
    return f"Now: {spans[-1].told(now)}. {past}."


def _is_new_owner(before: Span | None, each: Span) -> bool:
    return bool(each.owner) and (before is None or before.owner != each.owner or before.epoch != each.epoch)


def _wide(told: _Told) -> str:
    """Draw a row for every owner, the newest on top, and a bar for every phase, in the order of time."""
    names = list(dict.fromkeys(each.owner for each in reversed(told.spans)))
    rows = {name: 4 + _ROW * place for place, name in enumerate(names)}
    whole = sum(each.weight(told.now) for each in told.spans)
    x, free, bars, clocks = _LABEL, 0.0, [], []
    foot = 4 + _ROW * len(names)
    for each in told.spans:
        wide = (WIDE - _LABEL) * each.weight(told.now) / whole
        bars.append(_bar(each, x, rows[each.owner], wide, told.now))
        text = moment_text(each.start, told.now)
        end = x + width(text, WORD_SIZE) + 10
        if x >= free and end < WIDE - 30:
            clocks.append(_clock(text, x, foot))
            free = end
        x += wide
    labels = [_label(name, told.spans, y) for name, y in rows.items()]
    tracks = [block("track faint", _LABEL, y, WIDE - _LABEL, _BAR, 4) for y in rows.values()]
    now = f'<text class="sub" text-anchor="end" x="{short(WIDE)}" y="{short(foot + 16)}">now</text>'
    return svg("wide", WIDE, foot + 24, told.about, "".join([*tracks, *bars, *labels, *clocks, now]))


def _clock(text: str, x: float, y: float) -> str:
    tick = f'<path class="tick" d="M{short(x + 0.5)},{short(y)}v5"/>'
    return f'{tick}<text class="sub" x="{short(x)}" y="{short(y + 16)}">{text}</text>'


def _label(name: str, spans: Sequence[Span], y: float) -> str:
    told = all(each.phase == TOLD for each in spans if each.owner == name)
    shown = fitted(name, _LABEL - 14, NAME_SIZE) if name else "what changed" if told else "no owner"
    title = f"<title>{inked(said(name))}</title>" if name else ""
    return f'<text class="name" x="0" y="{short(y + 15)}">{title}{inked(shown)}</text>'


def _bar(each: Span, x: float, y: float, wide: float, now: datetime) -> str:
    """Draw one phase, with its epoch where there is room."""
    inner = max(2.0, wide - 1.5)
    lasted = span(each.lasted_s(now))
    epoch = f"epoch {epoch_text(each.epoch)}" if each.owner else ""
    told = [each.reason, ended(each.reason, inner - 8, INNER_SIZE)] if each.phase == TOLD else []
    choices = [*told, f"{epoch}, {lasted}" if epoch else lasted, epoch or lasted]
    shown = inked(next((text for text in choices if text and width(text, INNER_SIZE) <= inner - 8), ""))
    text = (
        f'<text class="in on-{each.phase}" x="{short(x + inner / 2)}" y="{short(y + 14)}">{shown}</text>'
        if shown
        else ""
    )
    return f"<g><title>{inked(each.told(now))}</title>{block(f's {each.phase}', x, y, inner, _BAR, 3)}{text}</g>"


def _tall(told: _Told) -> str:
    """List the phases, the newest first, along a line."""
    body, y = [], 0.0
    for each in reversed(told.spans[-_LISTED_MAX:]):
        reason = wrapped(each.reason, TALL - 26, 12, 2) if each.reason else []
        high = 34 + 15 * len(reason)
        body.append(block(f"s {each.phase}", 2, y + 3, 10, high - 6, 3))
        head = ", ".join(filter(None, [WORDS[each.phase], f"epoch {epoch_text(each.epoch)}" if each.owner else ""]))
        name = (
            fitted(each.owner, 145, NAME_SIZE)
            if each.owner
            else "no owner"
            if each.phase in (FREE, OVER)
            else "changed"
        )
        body.append(f'<text class="name" x="24" y="{short(y + 14)}">{inked(name)}</text>')
        words = inked(ended(head, 175, 12)) if each.phase != FREE else ""
        body.append(f'<text class="sub" text-anchor="end" x="{short(TALL)}" y="{short(y + 14)}">{words}</text>')
        when = f"{moment_text(each.start, told.now)} UTC, for {span(each.lasted_s(told.now))}"
        for at, text in enumerate([when, *reason], 1):
            body.append(f'<text class="sub" x="24" y="{short(y + 14 + 15 * at)}">{inked(text)}</text>')
        y += high + 4
    return svg("tall", TALL, y - 4, told.about, "".join(body))


def _caption(told: _Told) -> str:
    """Name the phases that were drawn, and say how time is drawn."""
    phases = dict.fromkeys(each.phase for each in told.spans)
    entries = [
        f"<li>{sign(block(f's {phase}', 1, 2, 24, 11, 2), 27)}{words}</li>"
        for phase, words in WORDS.items()
        if phase in phases and words
    ]
    earlier = f" {counted(told.earlier, 'earlier change')} not drawn." if told.earlier else ""
    note = f"<p>Times are UTC. A long time is drawn shorter than it was, so that short ones can be seen.{earlier}</p>"
    return f'<ul class="legend">{"".join(entries)}</ul>{note}' if entries else note
