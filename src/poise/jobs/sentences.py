"""Lines of a journal as sentences: what happened to whom and why; what happened to many at once is one sentence.

A sentence is a row of pieces, so that a page can show names and items in its way, and a terminal in its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from poise.model.ownership import Line
from poise.move.handoff import Transition

_NAMED_MAX = 4
_TOGETHER_S = 3.0
REPORTED = "reported"  # Somebody has counted replicas.
MOVED = "moved"  # Let go of by one and given to another within a moment: people call that a move.
Mood = Literal["good", "move", "bad", "quiet"]
# The sentence of each transition, its sign, and how much it matters; the words say it too.
_WORDS: dict[str, tuple[str, str, Mood]] = {
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
    REPORTED: ("{what} counted", "·", "quiet"),
}
# What a journal says about the job itself, in the words of its writers, and how people say it.
_JOB_WORDS: tuple[tuple[re.Pattern[str], str, str, Mood], ...] = (
    (re.compile(r"0 items"), "The job is written", "·", "quiet"),
    (re.compile(r"(?P<all>\d+) items"), "The job is written: {all} in all", "·", "quiet"),
    (re.compile(r"(?P<who>.+) registered, incarnation 1"), "{who} joined", "+", "good"),
    (
        re.compile(r"(?P<who>.+) registered, incarnation (?P<number>\d+)"),
        "{who} came back, as its incarnation {number}",
        "+",
        "good",
    ),
    (re.compile(r"(?P<who>.+) draining"), "{who} is being drained", "↩", "move"),
    (re.compile(r"(?P<who>.+) back in service"), "{who} takes part again", "+", "good"),
    (re.compile(r"paused"), "Moves are paused", "‖", "move"),
    (re.compile(r"paused, recovery too"), "Moves are paused, and recovery too", "‖", "bad"),
    (re.compile(r"resumed|moves go on"), "Moves go on", "▸", "good"),
    # What an operator tells of the instances of a ring.
    (re.compile(r"moves are paused"), "Moves are paused", "‖", "move"),
    (re.compile(r"moves are paused, and recovery too"), "Moves are paused, and recovery too", "‖", "bad"),
    (re.compile(r"(?P<who>\S+) is ready(?: again)?(?: \(.*\))?"), "{who} is ready", "+", "good"),
    (re.compile(r"(?P<who>\S+) is expired.*"), "{who} is late: nothing of it moves yet", "!", "bad"),
    (re.compile(r"(?P<who>\S+) is dead.*"), "{who} is dead: its objects move", "!", "bad"),
    (re.compile(r"(?P<who>\S+) has released its Lease.*"), "{who} has left: its objects move", "−", "move"),
    (re.compile(r"(?P<who>\S+) is being drained: .*"), "{who} is being drained", "↩", "move"),
    (re.compile(r"(?P<who>\S+) is drained and .*"), "{who} is drained, and may be stopped", "✓", "good"),
    (re.compile(r"(?P<who>\S+) is no longer drained.*"), "{who} takes part again", "+", "good"),
)
# Their reason is what each of them says; many at once are told without it.
_TELLING = ("divided", REPORTED)
# The steps of a hand-over that its end tells, and confirmations.
CHATTER = frozenset({Transition.T2, Transition.T3, Transition.T4, Transition.T6})
_GAP = re.compile(r"\{(\w+)\}")


class Happened(msgspec.Struct, frozen=True):
    """One transition with the job that it belongs to, and its time; a move also has its source."""

    kind: str
    job: str
    line: Line
    at: datetime | None
    word: str
    source: str = ""


class Piece(msgspec.Struct, frozen=True):
    """A part of a sentence: words, or the name of a member, or of an item; names are as the store has them."""

    text: str
    what: Literal["words", "name", "item"] = "words"


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one transition, or of many that happened together."""

    at: datetime | None
    kind: str
    job: str
    glyph: str
    mood: Mood
    pieces: tuple[Piece, ...]
    reason: str


def lines_happened(kind: str, job: str, lines: Iterable[Line], zero: datetime | None) -> list[Happened]:
    """Take the lines of a job as what happened; `zero` is the wall clock at store time 0."""
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
        elif each.word in CHATTER:
            continue
        short[place] = told
    return list(short.values())


def tell(
    found: Sequence[Happened], most: int, noun: str = "", *, nouns: Mapping[str, str] | None = None, cut: bool = False
) -> list[Sentence]:
    """Tell what happened, newest first: `found` comes oldest first; `cut` says that older lines were left out.

    With a noun an item is named by it too; `nouns` gives the noun of each kind.
    """
    told: list[Sentence] = []
    for group, whole in _together(found):
        word = noun or (nouns or {}).get(group[0].kind, "")
        told.append(_sentence(group, word, whole=whole or not cut))
        if len(told) == most:
            break
    return told


def _together(found: Sequence[Happened]) -> Iterator[tuple[list[Happened], bool]]:
    """Group what happened within a moment, in the same way and for the same reason, from the newest on.

    A group that reaches back to the oldest line may have begun before it: then it is not known to be whole.
    """
    waiting: dict[tuple[str, ...], list[Happened]] = {}
    for each in reversed(found):
        for key in [key for key, group in waiting.items() if group[0].line.at_s - each.line.at_s > _TOGETHER_S]:
            yield waiting.pop(key), True
        key = _alike(each)
        waiting.setdefault(key, []).append(each)
    for group in waiting.values():
        yield group, False


def _alike(each: Happened) -> tuple[str, ...]:
    line = each.line
    reason = "" if each.word in _TELLING else re.sub(r"\d+", "#", line.reason)
    apart = str(line.number) if line.transition == "set" else ""
    return (each.kind, each.job, each.word, each.source, line.member or "", reason, apart)


def _sentence(group: Sequence[Happened], noun: str, *, whole: bool) -> Sentence:
    newest = group[0]
    if newest.word == "set":
        return _of_job(newest, noun)
    # A word that is not known here is told as it is, like any other text of the store.
    form, glyph, mood = _WORDS.get(newest.word, ("{what}: {word}", "·", "quiet"))
    pieces = _filled(
        form,
        what=_what(group, noun, whole=whole),
        who=[Piece(newest.line.member or "nobody", "name")],
        source=[Piece(newest.source, "name")],
        word=[Piece(newest.word)],
    )
    many = len({each.line.item for each in group}) > 1
    silent = newest.word == Transition.T2 or (newest.word in _TELLING and many)
    return _told(newest, pieces, glyph, mood, "" if silent else newest.line.reason)


def _of_job(each: Happened, noun: str) -> Sentence:
    """Tell what happened to the job itself."""
    for form, words, glyph, mood in _JOB_WORDS:
        if found := form.fullmatch(each.line.reason):
            names = {key: [Piece(name, "name")] for key, name in found.groupdict().items()}
            if number := found.groupdict().get("all"):
                names["all"] = [Piece(_counted(int(number), noun), "name")]
            return _told(each, _filled(words, **names), glyph, mood, "")
    return _told(each, [Piece("The job")], "·", "quiet", each.line.reason)


def _filled(form: str, **parts: list[Piece]) -> list[Piece]:
    """Put pieces in the gaps of a form."""
    pieces: list[Piece] = []
    for place, text in enumerate(_GAP.split(form)):
        pieces += parts[text] if place % 2 else [Piece(text)] if text else []
    return pieces


def _told(newest: Happened, pieces: list[Piece], glyph: str, mood: Mood, reason: str) -> Sentence:
    return Sentence(
        at=newest.at,
        kind=newest.kind,
        job=newest.job,
        glyph=glyph,
        mood=mood,
        pieces=tuple(pieces),
        reason=reason,
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun or 'item'}{'' if number == 1 else 's'}"


def _what(group: Sequence[Happened], noun: str, *, whole: bool) -> list[Piece]:
    """Name what it happened to: a few by name, many by their number, and each of them once."""
    items = list(dict.fromkeys(each.line.item for each in reversed(group)))
    names = [Piece(item, "item") if item else Piece("the job") for item in items]
    if len(names) == 1:
        return [Piece(f"{noun} "), *names] if noun and items[0] else names
    pieces = [Piece(f"{'' if whole else 'at least '}{_counted(len(names), noun)} (")]
    for place, name in enumerate(names[:_NAMED_MAX]):
        pieces += [Piece(", "), name] if place else [name]
    more = f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
    return [*pieces, Piece(f"{more})")]
