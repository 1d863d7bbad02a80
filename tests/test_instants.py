"""Given numbers and times: what is taken, what is refused, and how it is said."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest

from poise.errors import InvalidSpec
from poise.instants import date_time, first_second, instant, number, quoted, span


def test_bounds_are_included() -> None:
    assert number("$.x", 1, least=1, most=2) == 1
    assert number("$.x", 2, least=1, most=2) == 2
    assert instant("$.x", 0) == 0
    assert span("$.x", 366 * 86400) == 31_622_400


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.5, "expected >= 1, got 0.5"),
        (2.5, "expected <= 2, got 2.5"),
        (math.nan, "expected a finite number, got nan"),
        (-math.inf, "expected >= 1, got -inf"),
        (10**400, "expected <= 2, got a number of more than 20 digits"),
        (10**20 - 1, "expected <= 2, got 99999999999999999999"),
        (10**20, "expected <= 2, got a number of more than 20 digits"),
        (True, "expected a number, got bool"),
        ("1", "expected a number, got str"),
    ],
)
def test_what_is_no_number_in_bounds_is_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        number("$.x", value, least=1, most=2)
    assert str(caught.value) == f"$.x: {message}"


def test_times_end_with_the_year_9000_and_spans_after_366_days() -> None:
    last = datetime(9000, 1, 1, tzinfo=UTC).timestamp()
    assert instant("$.x", last) == last
    for check, value in ((instant, last + 1), (span, 366 * 86400 + 1), (instant, -1), (span, -1)):
        with pytest.raises(InvalidSpec):
            check("$.x", value)


def test_date_and_time_in_utc() -> None:
    noon = datetime(2026, 11, 15, 12, tzinfo=timezone(timedelta(hours=2)))
    assert date_time("$.x", noon).isoformat() == "2026-11-15T10:00:00+00:00"
    assert date_time("$.x", noon.timestamp()) == noon
    with pytest.raises(InvalidSpec, match=r"^\$\.x: expected a time with a zone$"):
        date_time("$.x", datetime(2026, 11, 15))


def test_the_first_second_is_never_early() -> None:
    assert first_second(1.0) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert first_second(1.001) == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)


def test_long_texts_are_cut() -> None:
    assert quoted("x" * 40) == repr("x" * 40)
    assert quoted("x" * 41) == repr("x" * 37 + "...")
    assert quoted("two\nlines") == "'two\\nlines'"
    assert quoted(None) == "NoneType"
