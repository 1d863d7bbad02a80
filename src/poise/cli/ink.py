"""Text for a terminal: how wide it is, what it may hold, its signs and its colours; colour never says it alone."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

_COLOURS = {"bad": "31;1", "warn": "33", "good": "32", "move": "36", "dim": "2", "head": "1"}
_RIGHT_TO_LEFT = ("R", "AL", "AN")
_MARK = "\u200e"  # Keeps a terminal that turns Hebrew and Arabic from turning the rest of the line with it.
_EMOJI = "\ufe0f"

SIGNS = {
    # name: in Unicode, in ASCII
    "held": ("■", "#"),
    "offered": ("□", "o"),
    "asked": ("◀", "<"),
    "letting": ("◁", "-"),
    "lost": ("×", "x"),
    "unowned": ("!", "!"),
    "empty": ("·", "."),
    "spot": ("○", "o"),
    "onDemand": ("●", "#"),
    "arrow": ("→", "->"),
    "more": ("…", "~"),
    "dash": ("–", "-"),
    "spark": ("▁▂▃▄▅▆▇█", "_.-=+*%#"),
}


class Span(NamedTuple):
    """A piece of a line in one colour."""

    text: str
    colour: str = ""


Row = tuple[Span, ...]


class Ink(NamedTuple):
    """What a terminal can show."""

    unicode: bool = True
    colour: bool = False

    def sign(self, name: str) -> str:
        """Give a sign that this terminal has."""
        return SIGNS[name][0 if self.unicode else 1]

    def name(self, text: str) -> str:
        """Show a name so that it can neither forge a line nor turn one around."""
        safe = "".join(character if character.isprintable() else _escaped(character) for character in text)
        if not self.unicode:
            return safe.encode("ascii", "backslashreplace").decode()
        is_turned = any(unicodedata.bidirectional(character) in _RIGHT_TO_LEFT for character in safe)
        return f"{_MARK}{safe}{_MARK}" if is_turned else safe

    def fit(self, text: str, width: int) -> str:
        """Cut a text to a width, and say that it was cut."""
        if width_of(text) <= width:
            return text
        more = self.sign("more")
        return _cut(text, max(0, width - 1)) + more if width > 0 else ""

    def fit_middle(self, text: str, width: int) -> str:
        """Cut a name in its middle: beginnings tell families apart, ends tell members apart."""
        if width_of(text) <= width or width < 4:
            return self.fit(text, width)
        tail = _cut(text[::-1], (width - 1) * 2 // 5)[::-1]
        return _cut(text, width - 1 - width_of(tail)) + self.sign("more") + tail

    def cell(self, text: str, width: int, *, right: bool = False) -> str:
        """Bring a text to exactly this width."""
        fitted = self.fit(text, width)
        space = " " * (width - width_of(fitted))
        return space + fitted if right else fitted + space

    def line(self, row: Row, width: int) -> str:
        """Write a row, at most so wide."""
        left, written = width, []
        if sum(width_of(span.text) for span in row) > width:
            row = _cut_row(row, width - 1, self.sign("more"))
        for span in row:
            left -= width_of(span.text)
            written.append(self._paint(span))
        return "".join(written) if self.colour else "".join(written).rstrip()

    def _paint(self, span: Span) -> str:
        code = _COLOURS.get(span.colour, "")
        return f"\x1b[{code}m{span.text}\x1b[0m" if self.colour and code and span.text.strip() else span.text


def row(*parts: str | Span) -> Row:
    """Make a row of texts and pieces."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def width_of(text: str) -> int:
    """Count the columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if character == _EMOJI:
        return 1  # It makes a narrow sign a wide one.
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _cut(text: str, width: int) -> str:
    """Keep what fits; a mark of direction that was opened is closed."""
    kept, used = [], 0
    for character in text:
        used += _columns(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + (_MARK if text.startswith(_MARK) else "")


def _cut_row(spans: Iterable[Span], width: int, more: str) -> Row:
    kept: list[Span] = []
    for span in spans:
        text = _cut(span.text, width) if width_of(span.text) > width else span.text
        kept.append(Span(text, span.colour))
        width -= width_of(text)
        if text != span.text:
            break
    return (*kept, Span(more))


def _escaped(character: str) -> str:
    return repr(character)[1:-1]
