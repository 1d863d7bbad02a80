"""Windows: half-open, in their time zone, across changes of the clock, and every way to write them wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from poise.errors import InvalidSpec
from poise.model.common import Window
from poise.move.guards import GuardFacts, judge
from poise.move.windows import WindowText, choose_windows, in_window, parse_duration, parse_window

TEXTS = json.loads((Path(__file__).parent.parent / "data" / "capacity_input.json").read_text())
NIGHT = Window("0 2 * * *", "4h")
AFTERNOON = Window("0 14 * * *", "2h30m")


def at(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


@pytest.mark.parametrize("row", TEXTS["inside"], ids=lambda row: f"{row['schedule']} {row['at']}")
def test_every_row_of_the_window_vectors(row: dict[str, str]) -> None:
    window = parse_window(row["schedule"], row["duration"])
    assert window is not None
    assert in_window([window], datetime.fromisoformat(row["at"])).open == bool(row["inside"])


@pytest.mark.parametrize("row", TEXTS["parse"], ids=lambda row: f"{row['schedule']} {row['duration']}")
def test_every_row_of_the_parse_vectors(row: dict[str, str | None]) -> None:
    assert row["result"] is not None
    if row["result"].startswith("error"):
        with pytest.raises(InvalidSpec, match=r"^\$\.(schedule|duration): "):
            parse_window(row["schedule"], row["duration"])
    else:
        assert parse_window(row["schedule"], row["duration"]) is None


@pytest.mark.parametrize(
    ("window", "clock", "is_open"),
    [
        (NIGHT, "02:00", True),
        (NIGHT, "05:59", True),
        (NIGHT, "06:00", False),
        (AFTERNOON, "16:29", True),
        (AFTERNOON, "16:30", False),
    ],
)
def test_the_examples_of_the_design(window: Window, clock: str, is_open: bool) -> None:
    assert in_window([window], at(f"2026-11-15T{clock}")).open is is_open


def test_the_state_says_which_window_and_when() -> None:
    state = in_window([NIGHT, AFTERNOON], at("2026-11-15T03:00"))
    assert (state.open, state.window, state.closes_at) == (True, NIGHT, at("2026-11-15T06:00"))
    state = in_window([NIGHT, AFTERNOON], at("2026-11-15T06:00"))
    assert (state.open, state.window, state.opens_at) == (False, AFTERNOON, at("2026-11-15T14:00"))
    assert in_window([NIGHT], at("2026-11-15T03:00").timestamp()) == in_window([NIGHT], at("2026-11-15T03:00"))


def test_without_windows_it_is_always_open() -> None:
    state = in_window([], at("2026-11-15T03:00"))
    assert (state.open, state.window, state.opens_at, state.closes_at) == (True, None, None, None)


def test_windows_that_overlap_or_touch_close_together() -> None:
    chain = [Window("0 2 * * *", "2h"), Window("0 3 * * *", "2h"), Window("0 5 * * *", "1h")]
    assert in_window(chain, at("2026-11-15T02:30")).closes_at == at("2026-11-15T06:00")


def test_a_duration_longer_than_the_period_never_closes() -> None:
    for window in (Window("0 * * * *", "2h"), Window("0 2 * * *", "24h"), Window("* * * * *", "1m")):
        state = in_window([window], at("2026-11-15T01:59:59"))
        assert (state.open, state.closes_at) == (True, None)


def test_a_long_window_is_found_from_far_inside() -> None:
    month = Window("0 0 1 1 *", "720h")
    assert in_window([month], at("2026-01-30T23:59")).closes_at == at("2026-01-31T00:00")
    assert in_window([month], at("2026-01-31T00:00")).opens_at == at("2027-01-01T00:00")


def test_a_start_of_leap_years_is_found() -> None:
    assert in_window([Window("0 0 29 2 *", "1h")], at("2096-03-01T00:00")).opens_at == at("2104-02-29T00:00")


def test_a_schedule_that_gives_no_start_is_closed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poise.move.windows._starts", lambda *_, **__: iter(()))
    state = in_window([NIGHT], at("2026-11-15T03:00"))
    assert (state.open, state.window, state.opens_at) == (False, None, None)
    refusal = judge("migrate-to-spot", GuardFacts(now_s=0, windows=[NIGHT]))
    assert refusal is not None
    assert (refusal.until, refusal.reason) == (None, "outside of its windows, and none ever opens")


def test_the_zone_moves_the_window() -> None:
    paris = Window("0 2 * * *", "4h", "Europe/Paris")
    assert in_window([paris], at("2026-01-15T01:00")).open
    assert not in_window([paris], at("2026-01-15T00:59")).open
    assert in_window([paris], at("2026-07-15T00:00")).open


def test_a_start_in_the_hour_that_is_skipped_falls_on_the_first_minute_after_it() -> None:
    berlin = Window("30 2 * * *", "1h", "Europe/Berlin")
    assert in_window([berlin], at("2026-03-29T01:59", "Europe/Berlin")).opens_at == at("2026-03-29T01:00")
    assert in_window([berlin], at("2026-03-29T03:00", "Europe/Berlin")).closes_at == at("2026-03-29T02:00")


def test_a_start_in_the_hour_that_happens_twice_falls_once_and_lasts_in_elapsed_time() -> None:
    berlin = Window("30 2 * * *", "1h", "Europe/Berlin")
    first = at("2026-10-25T00:30")
    for minutes, is_open in ((-1, False), (0, True), (30, True), (59, True), (60, False), (90, False)):
        assert in_window([berlin], first + timedelta(minutes=minutes)).open is is_open, minutes
    # At the second 02:10 the wall shows a time before the start, yet the next one is tomorrow.
    assert in_window([berlin], first + timedelta(minutes=90)).opens_at == at("2026-10-26T01:30")


def test_a_long_window_over_a_clock_change_keeps_its_elapsed_length() -> None:
    berlin = Window("0 22 * * *", "6h", "Europe/Berlin")
    assert in_window([berlin], at("2026-10-24T21:00")).closes_at == at("2026-10-25T02:00")
    assert in_window([berlin], at("2026-03-28T22:00")).closes_at == at("2026-03-29T03:00")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4h", 14400),
        ("2h30m", 9000),
        ("90m", 5400),
        ("45s", 45),
        ("1s", 1),
        ("1h0m30s", 3630),
        ("1.5h", 5400),
        ("8784h", 31622400),
    ],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "4", "4 h", "-4h", "4d", "0h", "0.1s", "h", "1e3s", "nan", "9999h", "9" * 9999 + "h", "4h\n", "４h"]
)
def test_unreadable_durations_are_one_clear_line(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.duration: expected ") as caught:
        parse_duration(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("0 0 2 * * *", r"expected 5 fields \(minute hour day month weekday\), got 6 in '0 0 2 \* \* \*'"),
        ("@daily", r"expected 5 fields .*, got 1 in '@daily'"),
        ("", r"expected 5 fields .*, got 0 in ''"),
        ("0 0 30 2 *", r"expected a cron schedule that can fire, got '0 0 30 2 \*': bad day-of-month"),
        ("60 * * * *", r"expected a cron schedule that can fire, got '60 \* \* \* \*': bad minute"),
        ("0 0 " + "9" * 900 + " * *", r"expected a cron schedule that can fire, got .*"),
        ("9 " * 9999, r"expected a cron schedule such as .*"),
    ],
)
def test_faulty_schedules_say_what_is_wrong(schedule: str, message: str) -> None:
    with pytest.raises(InvalidSpec, match=rf"^\$\.schedule: {message}$"):
        parse_window(schedule, "4h")


@pytest.mark.parametrize(
    "zone", ["Mars/Phobos", "", "Europe", "localtime", "../etc/passwd", "/etc/localtime", "x\0", "a" * 10_000, "utc "]
)
def test_unknown_zones_are_refused(zone: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.timezone: expected a time zone such as 'Europe/Paris', got "):
        parse_window("0 2 * * *", "4h", zone)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(InvalidSpec) as caught:
        in_window([NIGHT, Window("x", "y", "z")], at("2026-11-15T03:00"))
    assert [fault.path for fault in caught.value.faults] == [
        "$.windows[1].schedule",
        "$.windows[1].duration",
        "$.windows[1].timezone",
    ]


@pytest.mark.parametrize("wrong", [float("nan"), 1e308, -1.0, datetime(2026, 1, 1), datetime(9001, 1, 1, tzinfo=UTC)])
def test_faulty_times_are_refused(wrong: float | datetime) -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.at: expected "):
        in_window([NIGHT], wrong)


def test_precedence_workload_then_namespace_then_configuration() -> None:
    workload, namespace = WindowText("0 1 * * *", "1h"), WindowText("0 3 * * *", "1h", "Europe/Paris")
    unset = WindowText()
    assert choose_windows(workload, namespace, [NIGHT]) == [Window("0 1 * * *", "1h")]
    assert choose_windows(unset, namespace, [NIGHT]) == [Window("0 3 * * *", "1h", "Europe/Paris")]
    assert choose_windows(unset, unset, [NIGHT, AFTERNOON]) == [NIGHT, AFTERNOON]
    assert choose_windows(unset, unset, []) == []


@pytest.mark.parametrize(
    ("workload", "namespace", "path"),
    [
        (WindowText(schedule="0 1 * * *"), WindowText("0 3 * * *", "1h"), r"\$\.workload\.duration: missing"),
        (WindowText(duration="1h"), WindowText(), r"\$\.workload\.schedule: missing"),
        (WindowText(), WindowText("0 3 * * *", "x"), r"\$\.namespace\.duration: expected"),
        (WindowText("", ""), WindowText("0 3 * * *", "1h"), r"\$\.workload\.schedule: expected"),
    ],
)
def test_a_faulty_window_is_an_error_and_never_a_fall_through(
    workload: WindowText, namespace: WindowText, path: str
) -> None:
    with pytest.raises(InvalidSpec, match=f"^{path}"):
        choose_windows(workload, namespace, [NIGHT])


def test_a_window_reads_as_in_documents() -> None:
    text = b'{"schedule":"0 2 * * *","duration":"4h","timezone":"UTC"}'
    assert msgspec.json.encode(msgspec.json.decode(text, type=Window)) == text
