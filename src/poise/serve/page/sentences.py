"""Transitions as sentences: what happened to whom and why; what happened to many at once is one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec
from markupsafe import Markup

from poise.model.ownership import Line
from poise.move.handoff import Transition
from poise.serve.facade import Event
from poise.serve.page.rendering import counted, named, path_text

_NAMED_MAX = 4
_TOGETHER_S = 3.0
MOVED = "moved"  # Let go of by one and given to another within a moment: people call that a move.
# The sentence of each transition, its sign, and how much it matters; the words say it too.
_WORDS: dict[str, tuple[str, str, str]] = {
    MOVED: ("{what} moved from {source} to {who}", "→", "move"),
    Transition.T1: ("{what} given to {who}", "+", "good"),
    Transition.T2: ("{who} works on {what}", "✓", "quiet"),
    Transition.T3: ("{what} asked back from {who}", "↩", "move"),
    Transition.T4: ("{who} is letting go of {what}", "…", "move"),
    Transition.T5: ("{who} has let go of {what}", "→", "move"),
    Transition.T6: ("{what} stays on {who}", "=", "quiet"),
    Transition.T6B: ("{what}, still on {who}, is meant for somebody else now", "↪", "move"),
    Transition.T7: ("{what} left without an owner by {who}", "!", "bad"),
    Transition.T9: ("{what} is no longer part of the job", "−", "quiet"),
    "divided": ("{what} divided", "→", "move"),
    "deleted": ("{what} is no longer listed", "−", "quiet"),
    "reported": ("{what} counted", "·", "quiet"),
}
# What a journal says about the job itself, in the words of its writers, and how the page says it.
_JOB_WORDS = (
    (re.compile(r"0 items"), "The job is written", "·", "quiet"),
    (re.compile(r"(\d+ items)"), "The job is written: {} in all", "·", "quiet"),
    (re.compile(r"(.+) registered, incarnation 1"), "{} joined", "+", "good"),
    (re.compile(r"(.+) registered, incarnation (\d+)"), "{} came back, as its incarnation {}", "+", "good"),
    (re.compile(r"(.+) draining"), "{} is being drained", "↩", "move"),
    (re.compile(r"(.+) back in service"), "{} takes part again", "+", "good"),
    (re.compile(r"paused"), "Moves are paused", "‖", "move"),
    (re.compile(r"paused, recovery too"), "Moves are paused, and recovery too", "‖", "bad"),
    (re.compile(r"resumed"), "Moves go on", "▸", "good"),
)
# Their reason is what each of them says; many at once are told without it.
_TELLING = ("divided", "reported")
_CHATTER = (Transition.T2, Transition.T3, Transition.T4, Transition.T6)


class Happened(msgspec.Struct, frozen=True):
    """One transition with the job that it belongs to, and its time; a move also has its source."""

    kind: str
    job: str
    line: Line
    at: datetime | None
    word: str
    source: str = ""


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """What the page says of one transition, or of many that happened together."""

    at: datetime | None
    kind: str
    job: str
    glyph: str
    mood: str
    text: Markup
    reason: str


def happened(events: Iterable[Event]) -> list[Happened]:
    """Take events as what happened."""
    return [Happened(each.kind, each.job, each.line, each.at, each.line.transition) for each in events]


def lines_happened(kind: str, job: str, lines: Iterable[Line], zero: datetime | None) -> list[Happened]:
    """Take the lines of a job as what happened."""
    return [Happened(kind, job, line, zero and zero + timedelta(seconds=line.at_s), line.transition) for line in lines]


def in_short(found: Sequence[Happened]) -> list[Happened]:
    """Leave the steps of a hand-over out where its end tells them: one move is one line. `found` comes oldest first."""
    freed: dict[tuple[str, str, str], int] = {}
    short: dict[int, Happened] = {}
    for place, each in enumerate(found):
        key = (each.kind, each.job, each.line.item)
        told = each
        if each.word == Transition.T1 and (left := freed.pop(key, None)) is not None:
            source = short[left].line.member or "nobody"
            if source != each.line.member:
                del short[left]
                told = msgspec.structs.replace(each, word=MOVED, source=source)
        elif each.word == Transition.T5:
            freed[key] = place
        elif each.word in _CHATTER:
            continue
        short[place] = told
    return list(short.values())


def tell(found: Sequence[Happened], most: int) -> list[Sentence]:
    """Tell what happened, newest first: `found` comes oldest first."""
    told: list[Sentence] = []
    for group in _together(found):
        told.append(_sentence(group))
        if len(told) == most:
            break
    return told


def _together(found: Sequence[Happened]) -> Iterator[list[Happened]]:
    """Group what happened within a moment, in the same way and for the same reason, from the newest on."""
    waiting: dict[tuple[str, ...], list[Happened]] = {}
    for each in reversed(found):
        for key in [key for key, group in waiting.items() if group[0].line.at_s - each.line.at_s > _TOGETHER_S]:
            yield waiting.pop(key)
        key = _alike(each)
        waiting.setdefault(key, []).append(each)
    yield from waiting.values()


def _alike(each: Happened) -> tuple[str, ...]:
    line = each.line
    reason = "" if each.word in _TELLING else re.sub(r"\d+", "#", line.reason)
    apart = str(line.number) if line.transition == "set" else ""
    return (each.kind, each.job, each.word, each.source, line.member or "", reason, apart)


def _sentence(group: Sequence[Happened]) -> Sentence:
    newest = group[0]
    if newest.word == "set":
        return _of_job(newest)
    line = newest.line
    # A word that is not known here is told as it is; it is escaped like any other text of the store.
    form, glyph, mood = _WORDS.get(newest.word, ("{what}: {word}", "·", "quiet"))
    text = Markup(form).format(
        what=_what(group), who=_name(line.member or "nobody"), source=_name(newest.source), word=newest.word
    )
    silent = newest.word == Transition.T2 or (newest.word in _TELLING and len(group) > 1)
    reason = "" if silent else line.reason
    return _told(newest, text, glyph, mood, reason)


def _told(newest: Happened, text: Markup, glyph: str, mood: str, reason: str) -> Sentence:
    return Sentence(at=newest.at, kind=newest.kind, job=newest.job, glyph=glyph, mood=mood, text=text, reason=reason)


def _of_job(each: Happened) -> Sentence:
    """Tell what happened to the job itself."""
    for form, words, glyph, mood in _JOB_WORDS:
        if found := form.fullmatch(each.line.reason):
            return _told(each, Markup(words).format(*map(_name, found.groups())), glyph, mood, "")
    return _told(each, Markup("The job"), "·", "quiet", each.line.reason)


def _name(name: str) -> Markup:
    return Markup("<b>{}</b>").format(named(name))


def _what(group: Sequence[Happened]) -> Markup:
    """Name what it happened to: a few by name, many by their number."""
    names = [_link(each) for each in reversed(group)]
    if len(names) == 1:
        return names[0]
    few = Markup(", ").join(names[:_NAMED_MAX])
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return Markup("{} ({}{})").format(counted(len(names), "item"), few, more)


def _link(each: Happened) -> Markup:
    item = each.line.item
    if not item:
        return Markup("the job")
    if not each.kind:
        return named(item)
    address = f"/jobs/{path_text(each.kind)}/{path_text(each.job)}/items/{path_text(item)}"
    return Markup('<a href="{}">{}</a>').format(address, named(item))
