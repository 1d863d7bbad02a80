"""Sentences about what happened, and about what waits, in plain text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from poise.cli.ink import Ink
from poise.jobs import sentences
from poise.jobs.entries import Waits
from poise.jobs.sentences import Sentence, in_short, lines_happened
from poise.model.ownership import Line

_COLOURS = {"good": "good", "move": "move", "bad": "bad", "quiet": ""}


class Told(NamedTuple):
    """One sentence, when it was true, and its colour; without a time it is not known."""

    at: datetime | None
    text: str
    colour: str


def tell(lines: Sequence[Line], zero: datetime | None, noun: str, ink: Ink) -> list[Told]:
    """Tell lines of a job that come newest first; `zero` is the wall clock at store time 0."""
    found = in_short(lines_happened("", "", lines[::-1], zero))
    return [_shown(each, ink) for each in sentences.tell(found, len(found), noun)]


def _shown(told: Sentence, ink: Ink) -> Told:
    text = "".join(ink.name(piece.text) for piece in told.pieces)
    return Told(told.at, f"{text}: {ink.name(told.reason)}" if told.reason else text, _COLOURS[told.mood])


def clock_text(at: datetime, now: datetime) -> str:
    """Write a time as short as the day allows."""
    is_today = at.astimezone(UTC).date() == now.astimezone(UTC).date()
    return f"{at.astimezone(UTC):%H:%M:%SZ}" if is_today else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def waits_text(waits: Waits, now: datetime, ink: Ink) -> str:
    """Say what something waits for, and when that ends, if a time ends it."""
    until = f"until {clock_text(waits.until, now)}: " if waits.until else ""
    return f"{until}{ink.name(waits.reason)}"
