"""The faults of one file, collected: the first ones are kept, the others only counted."""

from __future__ import annotations

import re

from poise.errors import Fault, InvalidSpec

FAULTS_MAX = 50
_SHOWN_MAX = 60
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


class Faults:
    """Collects what is wrong in one file, so that everything is reported at once.

    Of a hostile file with a million faults the first 50 are shown and the rest is a number, so memory stays small.
    """

    def __init__(self, source: str) -> None:
        """Begin with a file that has no faults and no document yet."""
        self.source = source
        self.count = 0
        self._kept: list[Fault] = []
        self._label = source
        self._broken: set[str] = set()

    def enter(self, number: int) -> None:
        """Name the document that the next faults belong to."""
        self._label = f"{self.source}, document {number}"
        self._broken = set()

    def leave(self) -> None:
        """Let the next faults belong to the file as a whole."""
        self._label = self.source

    @property
    def full(self) -> bool:
        """Tell whether more faults are only counted."""
        return self.count >= FAULTS_MAX

    def add(self, path: str, message: str) -> None:
        """Note one fault."""
        if not self.full:
            self._kept.append(Fault(path, message, self._label))
        self.count += 1

    def spoil(self, path: str, message: str = "") -> None:
        """Note that there is no sound value at this path, so that no other rule judges what stands in for it."""
        if message:
            self.add(path, message)
        if len(self._broken) < FAULTS_MAX:
            self._broken.add(path)

    def rule(self, path: str, message: str, *others: str) -> None:
        """Note a broken rule, unless its path or one of the other paths that it judged is spoilt already."""
        if not any(self._is_spoilt(each) for each in (path, *others)):
            self.add(path, message)

    def _is_spoilt(self, path: str) -> bool:
        if not self._broken:
            return False
        ends = [at for at, sign in enumerate(path) if sign in ".["]
        return path in self._broken or any(path[:end] in self._broken for end in ends)

    def raise_any(self) -> None:
        """Raise what was found, if anything was."""
        if not self.count:
            return
        more = self.count - len(self._kept)
        rest = [Fault("", f"and {more} more fault{'s' if more > 1 else ''}", self.source)] if more else []
        raise InvalidSpec(*self._kept, *rest)


def below(path: str, key: str) -> str:
    """Extend a path by the key of a mapping or the field of a document: `$.spec`, `$['a b']`."""
    if _PLAIN.match(key):
        return f"{path}.{key}"
    return f"{path}[{_quoted(key, chr(39))}]"


def at_key(path: str, key: str) -> str:
    """Extend a path by a name that people chose: `$.spec.weights['n1']`."""
    return f"{path}[{_quoted(key, chr(39))}]"


def shown(value: object) -> str:
    """Write a value into a message: short, on one line, and without anything that a terminal would obey."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _shortened(repr(value))
    if isinstance(value, str):
        return _quoted(value, '"')
    return "a list" if isinstance(value, list) else "a mapping"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 20]}… ({len(text)} characters)"


def _quoted(text: str, quote: str) -> str:
    head = text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 20]
    signs = (sign if sign.isprintable() and sign not in ("\\", quote) else _escaped(sign) for sign in head)
    tail = "" if head == text else f"… ({len(text)} characters)"
    return f"{quote}{''.join(signs)}{quote}{tail}"


def _escaped(sign: str) -> str:
    return f"\\{sign}" if sign.isprintable() else sign.encode("unicode_escape").decode()
