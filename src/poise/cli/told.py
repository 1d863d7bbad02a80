"""Transitions as sentences in plain text; what happened to many at once is one sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from poise.cli.ink import Ink
from poise.cli.render import count
from poise.jobs.entries import Waits
from poise.model.ownership import Line
from poise.move.handoff import Transition

_TOGETHER_S = 2.0
_NAMED_MAX = 3
# The sentence of each transition, and its colour.
_WORDS: dict[str, tuple[str, str]] = {
    Transition.T1: ("{what} given to {who}", "good"),
    Transition.T2: ("{who} works on {what}", ""),
    Transition.T3: ("{what} asked back from {who}", "move"),
    Transition.T4: ("{who} is letting go of {what}", "move"),
    Transition.T5: ("{who} has let go of {what}", "move"),
    Transition.T6: ("{what} stays on {who}", ""),
    Transition.T6B: ("{what} is meant for {who} now", "move"),
    Transition.T7: ("{what} lost the owner {who}", "bad"),
    Transition.T9: ("{what} is no longer part of the job", ""),
    "divided": ("{what} divided: {why}", "move"),
    "deleted": ("{what} is no longer listed", ""),
    "reported": ("{what} counted: {why}", ""),
    "set": ("the job: {why}", ""),
}
_ALONE = ("divided", "reported", "set")  # Their reason is what they say.
# The reason of these was told when it began.
_WITHOUT_REASON = (*_ALONE, Transition.T2, Transition.T4, Transition.T5, Transition.T9)
_NUMBERS = re.compile(r" \([^()]*\)$")


class Told(NamedTuple):
    """One sentence, when it was true, and its colour; without a time it is not known."""

    at: datetime | None
    text: str
    colour: str


def tell(lines: Sequence[Line], zero: datetime | None, noun: str, ink: Ink) -> list[Told]:
    """Tell lines that come newest first; `zero` is the wall clock at store time 0."""
    return [_sentence(group, zero, noun, ink) for group in _together(lines)]


def clock_text(at: datetime, now: datetime) -> str:
    """Write a time as short as the day allows."""
    is_today = at.astimezone(UTC).date() == now.astimezone(UTC).date()
    return f"{at.astimezone(UTC):%H:%M:%SZ}" if is_today else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def waits_text(waits: Waits, now: datetime, ink: Ink) -> str:
    """Say what something waits for, and when that ends, if a time ends it."""
    until = f"until {clock_text(waits.until, now)}: " if waits.until else ""
    return f"{until}{ink.name(waits.reason)}"


def _together(lines: Sequence[Line]) -> list[list[Line]]:
    """Group what happened at once, in the same way and to the same member, in the order of what is newest of each."""
    groups: list[list[Line]] = []
    recent: dict[tuple[str, str | None], list[Line]] = {}
    for line in lines:
        key = (line.transition, line.member)
        group = recent.get(key)
        if group is None or line.transition in _ALONE or group[0].at_s - line.at_s > _TOGETHER_S:
            group = recent[key] = []
            groups.append(group)
        group.append(line)
    return groups


def _sentence(group: Sequence[Line], zero: datetime | None, noun: str, ink: Ink) -> Told:
    line = group[0]
    form, colour = _WORDS.get(line.transition, ("{what}: " + ink.name(line.transition), ""))
    what = _what(group, noun, ink)
    text = form.format(what=what, who=ink.name(line.member or "nobody"), why=ink.name(line.reason))
    why = _reason(group) if line.transition not in _WITHOUT_REASON else ""
    return Told(zero and zero + timedelta(seconds=line.at_s), f"{text}: {ink.name(why)}" if why else text, colour)


def _reason(group: Sequence[Line]) -> str:
    """Give the reason that all have; what differs only in the numbers behind it is one reason."""
    reasons = {line.reason for line in group}
    if len(reasons) == 1:
        return group[0].reason
    short = {_NUMBERS.sub("", reason) for reason in reasons}
    return short.pop() if len(short) == 1 else ""


def _what(group: Sequence[Line], noun: str, ink: Ink) -> str:
    """Name what it happened to: one by its kind and name, a few by name, many by their number."""
    names = [ink.name(line.item) for line in reversed(group)]
    if len(names) == 1:
        return f"{noun} {names[0]}"
    few = ", ".join(names[:_NAMED_MAX])
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{count(len(names), noun)} ({few}{more})"
