"""Given numbers and times, checked: seconds since 1970 in facts, date and time in UTC in what people read."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from poise.errors import invalid

# A cron schedule is searched up to 50 years ahead, and the calendar of Python ends with the year 9999.
INSTANT_MAX_S = datetime(9000, 1, 1, tzinfo=UTC).timestamp()
SPAN_MAX_S = 366 * 24 * 3600


def number(path: str, value: object, *, least: float = 0.0, most: float = 1e15) -> float:
    """Return a finite number within its bounds; NaN, an infinity, a bool or text is InvalidSpec."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise invalid(path, f"expected a number, got {type(value).__name__}")
    if not least <= value <= most:
        words = f">= {least:g}" if value < least else f"<= {most:g}" if value > most else "a finite number"
        raise invalid(path, f"expected {words}, got {_shown(value)}")
    return float(value)


def instant(path: str, value: object) -> float:
    """Return seconds since 1970, UTC, that the calendar can show."""
    return number(path, value, most=INSTANT_MAX_S)


def span(path: str, value: object) -> float:
    """Return a length of time in seconds, a year at most."""
    return number(path, value, most=SPAN_MAX_S)


def date_time(path: str, value: object) -> datetime:
    """Return the date and time in UTC of seconds since 1970, or of a date and time that has a zone."""
    if not isinstance(value, datetime):
        return datetime.fromtimestamp(instant(path, value), UTC)
    if value.tzinfo is None:
        raise invalid(path, "expected a time with a zone")
    instant(path, value.timestamp())
    return value.astimezone(UTC)


def first_second(at_s: float) -> datetime:
    """Return the first whole second that is not before an instant, so that what waits for it is free by then."""
    return datetime.fromtimestamp(math.ceil(at_s), UTC)


def quoted(given: object) -> str:
    """Quote a text that was given, cut where it is long: a message is one line."""
    if not isinstance(given, str):
        return type(given).__name__
    return repr(given if len(given) <= 40 else f"{given[:37]}...")


def _shown(value: float) -> str:
    """Keep a number of a thousand digits out of a message."""
    return f"{value}" if isinstance(value, float) or abs(value) < 10**20 else "a number of more than 20 digits"
