"""Single values beside their types: what is wrong with a number, a text or a time, in words."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from operator import ge, gt, le, lt

import msgspec
from msgspec import inspect as types

from poise.documents.faults import shown


@lru_cache(maxsize=64)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def bare(kind: types.Type) -> types.Type:
    """Take a type out of its description."""
    return kind.type if isinstance(kind, types.Metadata) else kind


def is_meant(value: object, kind: types.Type) -> bool:
    """Tell whether a value was meant as this type, be it in range or not."""
    match bare(kind):
        case types.NoneType():
            return value is None
        case types.StrType() | types.LiteralType() | types.DateTimeType():
            return isinstance(value, str)
        case types.IntType():
            return type(value) is int
        case types.FloatType():
            return type(value) in (int, float)
        case types.BoolType():
            return isinstance(value, bool)
        case types.ListType():
            return isinstance(value, list)
    return isinstance(value, dict)


def noun(kind: types.Type) -> str:
    """Name a type as people do."""
    described = (kind.extra_json_schema or {}).get("description") if isinstance(kind, types.Metadata) else None
    match bare(kind):
        case types.IntType():
            return "a whole number"
        case types.FloatType():
            return "a number"
        case types.BoolType():
            return "true or false"
        case types.LiteralType(values=values):
            return ("one of " if len(values) > 1 else "") + ", ".join(map(str, values))
        case types.DateTimeType():
            return "a time such as 2026-11-15T02:00:00Z"
        case types.ListType():
            return "a list"
        case types.StrType():
            return str(described or "text")
    return "a mapping"


def read(value: object, kind: types.Type) -> object:
    """Turn a sound single value into what its Struct holds."""
    match bare(kind):
        case types.DateTimeType():
            return msgspec.convert(value, datetime)
        case types.FloatType() if isinstance(value, int):
            return float(value)
    return value


def fault_of(value: object, expected: types.Type) -> str | None:
    """Say what is wrong with a single value; None where it is sound."""
    match bare(expected):
        case types.IntType() | types.FloatType() as number:
            return _number_fault(value, number)
        case types.StrType() as text:
            return _text_fault(value, text, noun(expected))
        case types.LiteralType(values=values):
            sound = isinstance(value, str) and value in values
        case types.DateTimeType(tz=tz):
            sound = _is_time(value, tz)
        case kind:
            sound = is_meant(value, kind)
    return None if sound else f"expected {noun(expected)}, got {shown(value)}"


def _number_fault(value: object, expected: types.IntType | types.FloatType) -> str | None:
    if not is_meant(value, expected):
        return f"expected {noun(expected)}, got {shown(value)}"
    assert isinstance(value, int | float)
    # A NaN fails each of these comparisons, so it is refused wherever there is a bound.
    for sign, bound, holds in (
        (">=", expected.ge, ge),
        (">", expected.gt, gt),
        ("<=", expected.le, le),
        ("<", expected.lt, lt),
    ):
        if bound is not None and not holds(value, bound):
            return f"expected {sign} {bound}, got {shown(value)}"
    return None


def _text_fault(value: object, expected: types.StrType, described: str) -> str | None:
    if not isinstance(value, str):
        quotes = " (put it in quotes)" if isinstance(value, int | float) else ""
        return f"expected text, got {shown(value)}{quotes}"
    if expected.min_length and not value:
        return "may not be empty"
    if expected.max_length is not None and len(value) > expected.max_length:
        return f"expected at most {expected.max_length:,} characters, got {len(value):,}"
    if expected.pattern is not None and not _pattern(expected.pattern).search(value):
        return f"expected {described}, got {shown(value)}"
    return None


def _is_time(value: object, with_zone: bool | None) -> bool:
    try:
        read_time = msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return False
    return isinstance(value, str) and (read_time.tzinfo is not None or not with_zone)
