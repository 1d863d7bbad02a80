"""The ink of all pictures: text that is always escaped, names that always fit, numbers that are always short."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from markupsafe import escape

_JOINERS = "\u200c\u200d"  # Without these, writing and emoji of several parts fall apart.
_NARROW, _WIDE = frozenset("fijlrtI.,:;'|!()[]/ -"), frozenset("mwMW@%")


def clean(text: str) -> str:
    """Replace what no text may hold: control signs, halves of signs, and signs that turn the writing direction."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in _JOINERS else "\ufffd" for sign in text)


def isolated(text: str) -> str:
    """Keep a name that is written from right to left from turning the words around it."""
    if text.isascii() or not any(unicodedata.bidirectional(sign) in ("R", "AL", "AN") for sign in text):
        return text
    return f"\u2068{text}\u2069"


def said(name: str) -> str:
    """Give a name as a part of a sentence: clean, and kept apart from the words around it."""
    return isolated(clean(name))


def inked(text: str) -> str:
    """Escape a text for elements and attributes."""
    return str(escape(text))


def short(number: float) -> str:
    """Write a number of a drawing with at most one digit after the point."""
    return f"{number:.1f}".removesuffix(".0")


def counted(number: int, noun: str) -> str:
    """Say `1 move`, `2 moves`, `10,000 moves`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def span(seconds: float) -> str:
    """Read a span of time as people say it: `7 s`, `12 min`, `5 h 46 min`, `3 days`."""
    if seconds < 0.5:
        return "less than 1 s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} days"


@lru_cache(maxsize=4096)
def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort pod-2 before pod-10."""
    parts: list[tuple[int, int | str]] = []
    digits = ""
    for sign in f"{name}\0":
        if sign.isascii() and sign.isdigit():
            digits += sign
            continue
        if digits:
            parts.append((0, int(digits[:300])))
            digits = ""
        parts.append((1, sign))
    return tuple(parts)


def width(text: str, size: float) -> float:
    """Estimate how wide a text is drawn, on the safe side."""
    return size * sum(map(_em, text))


@lru_cache(maxsize=4096)
def _em(sign: str) -> float:
    if sign in _NARROW:
        return 0.38
    if sign in _WIDE or unicodedata.east_asian_width(sign) in "WF":
        return 1.0
    if unicodedata.combining(sign) or sign in _JOINERS:
        return 0.0
    return 0.72 if sign.isupper() else 0.64


def fitted(text: str, space: float, size: float) -> str:
    """Cut a name in its middle where it is too wide: beginnings tell families apart, ends tell members apart."""
    text = clean(text)
    if width(text[:400], size) <= space and len(text) <= 400:
        return text
    room = max(space - size, size)
    head, tail = _head(text, room * 0.6, size), _head(text[::-1], room * 0.4, size)[::-1]
    return f"{head}…{tail}"


def ended(text: str, space: float, size: float) -> str:
    """Cut a sentence at its end where it is too wide."""
    text = clean(text)
    return text if width(text, size) <= space else f"{_head(text, space - size, size).rstrip()}…"


def wrapped(text: str, space: float, size: float, most: int) -> list[str]:
    """Break a sentence into lines; the last one is cut where there are too many."""
    lines: list[str] = []
    line = ""
    for word in clean(text).split(" "):
        if line and width(f"{line} {word}", size) > space:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    lines.append(line)
    kept = lines if len(lines) <= most else [*lines[: most - 1], " ".join(lines[most - 1 :])]
    return [ended(each, space, size) for each in kept]


def _head(text: str, space: float, size: float) -> str:
    used, end = 0.0, 0
    for sign in text:
        used += size * _em(sign)
        if used > space:
            break
        end += 1
    return text[:end]
