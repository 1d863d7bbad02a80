"""Plain scalars by the core schema of YAML 1.2: `on` and `12:30` are text, `0o17` is a number."""

from __future__ import annotations

import re

NUMBER_LENGTH_MAX = 1_000  # Longer ones take long to convert, and Python refuses to print them.

_NAMED: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_WHOLE = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NUMBER_STARTS = frozenset("+-.0123456789")


class TooLong(ValueError):
    """A number with more digits than anyone needs."""


def plain(text: str) -> object:
    """Read a plain scalar; TooLong where it is a number beyond the limit."""
    if text[:1] in _NUMBER_STARTS:
        return _number(text)
    return _NAMED.get(text, text)


def _number(text: str) -> object:
    if _WHOLE.match(text):
        return int(_limited(text))
    if _BASED.match(text):
        return int(_limited(text), 0)
    if _FLOAT.match(text):
        return float(_limited(text))
    return _NAMED.get(text, text)


def _limited(text: str) -> str:
    if len(text) > NUMBER_LENGTH_MAX:
        raise TooLong
    return text
