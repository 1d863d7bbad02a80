"""Sentences about what happened, and about what waits, in plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from poise.cli.ink import Ink, width_of
from poise.jobs import sentences
from poise.jobs.entries import Waits
from poise.jobs.sentences import Piece, Sentence, in_short, lines_happened
from poise.model.ownership import Line

_COLOURS = {"good": "good", "move": "move", "bad": "bad", "quiet": ""}
_ENDLESS = 10_000
_COUNTED = re.compile(r"(?P<all>[\d,]+) .+ \(")
_NUMBERS = re.compile(r" \([^()]*\)$")
_MORE = re.compile(r"(?: and [\d,]+ more)?\)")


class Told(NamedTuple):
    """One sentence, when it was true, and its colour; without a time it is not known."""

    at: datetime | None
    text: str
    colour: str


def tell(lines: Sequence[Line], zero: datetime | None, noun: str, ink: Ink, width: int = _ENDLESS) -> list[Told]:
    """Tell lines of a job that come newest first; `zero` is the wall clock at store time 0."""
    found = in_short(lines_happened("", "", lines[::-1], zero))
    return [_shown(each, ink, width) for each in sentences.tell(found, len(found), noun)]


def _shown(told: Sentence, ink: Ink, width: int) -> Told:
    """Write a sentence so that its verb and its reason fit: fewer items are named, then names and reasons are cut."""
    named = sum(piece.what == "item" for piece in told.pieces)
    sizes = [(named, _ENDLESS), *((many, 30) for many in range(named, -1, -1)), *((0, room) for room in (20, 14, 12))]
    reasons = _reasons(told.reason, ink)
    for reason in reasons:
        for many, room in sizes:
            text = _sentence(told, many, room, ink) + reason
            if width_of(text) <= width:
                return Told(told.at, text, _COLOURS[told.mood])
    return Told(told.at, _sentence(told, 0, 20, ink) + reasons[-1], _COLOURS[told.mood])


def _sentence(told: Sentence, many: int, room: int, ink: Ink) -> str:
    return "".join(_written(piece, ink, room) for piece in _fewer(told.pieces, many))


def _reasons(reason: str, ink: Ink) -> list[str]:
    """Give a reason in full, without the numbers at its end, and where it has several parts its first one."""
    if not reason:
        return [""]
    first, rest, _ = reason.partition("; ")
    shorter = [_NUMBERS.sub("", reason), *([f"{first}; {ink.sign('more')}"] if rest else [])]
    return [f": {ink.name(each)}" for each in dict.fromkeys([reason, *shorter])]


def _written(piece: Piece, ink: Ink, room: int) -> str:
    text = ink.name(piece.text)
    return text if piece.what == "words" else ink.fit_middle(text, room)


def _fewer(pieces: Sequence[Piece], many: int) -> Sequence[Piece]:
    """Name only so many of the items that stand in brackets, and count the others."""
    places = [place for place, piece in enumerate(pieces) if piece.what == "item"]
    if len(places) < 2 or many == len(places):
        return pieces
    first, last = places[0], places[-1]
    head, tail = pieces[first - 1].text, pieces[last + 1].text if last + 1 < len(pieces) else ""
    counted, after = _COUNTED.fullmatch(head), _MORE.match(tail)
    if counted is None or after is None:
        return pieces  # A sentence of another form is left as it is.
    left = int(counted["all"].replace(",", "")) - many
    more = f" and {left:,} more)" if many else ""
    kept = pieces[first : places[many - 1] + 1] if many else ()
    words = [Piece(head if many else head.removesuffix(" ("))]
    return [*pieces[: first - 1], *words, *kept, Piece(more + tail[after.end() :]), *pieces[last + 2 :]]


def clock_text(at: datetime, now: datetime) -> str:
    """Write a time as short as the day allows."""
    is_today = at.astimezone(UTC).date() == now.astimezone(UTC).date()
    return f"{at.astimezone(UTC):%H:%M:%SZ}" if is_today else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def day_text(at: datetime | None, now: datetime) -> str:
    """Write a time that was: of today by the second, of another day with its day; nothing where it is not known."""
    if at is None:
        return ""
    is_today = at.astimezone(UTC).date() == now.astimezone(UTC).date()
    return f"{at.astimezone(UTC):%H:%M:%SZ}" if is_today else f"{at.astimezone(UTC):%d %b %H:%MZ}"


def waits_text(waits: Waits, now: datetime, ink: Ink) -> str:
    """Say what something waits for, and when that ends, if a time ends it."""
    until = f"until {clock_text(waits.until, now)}: " if waits.until else ""
    return f"{until}{ink.name(waits.reason)}"
