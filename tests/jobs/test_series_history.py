"""The laws of a small history: bounded, in order, made of real points, and what is wrong does not vanish from it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.jobs import history
from poise.jobs.history import (
    AHEAD_MAX_S,
    BYTES_MAX,
    POINTS_MAX,
    History,
    Number,
    Point,
    bounded,
    columns_of,
    read_history,
    thinned,
    with_point,
    write_history,
)

NUMBERS = st.integers(0, 10**9) | st.floats(0, 1e9, allow_nan=False).map(lambda number: round(number, 2))
VALUES = st.dictionaries(st.sampled_from(["unowned", "moves", "loadMin", "loadMean", "loadMax"]), NUMBERS, min_size=1)


@st.composite
def histories(draw: st.DrawFn, most: int = 900) -> list[Point]:
    """Draw points in the order of time, many of them alike."""
    count = draw(st.integers(0, most))
    palette = draw(st.lists(VALUES, min_size=1, max_size=12))
    steps = draw(st.lists(st.integers(1, 5_000), min_size=1, max_size=20))
    times = [1_700_000_000]
    for place in range(count):
        times.append(times[-1] + steps[place % len(steps)])
    return [Point(at_s, palette[(place * place) % len(palette)]) for place, at_s in enumerate(times[1:])]


def broken_laws(before: list[Point], after: tuple[Point, ...]) -> list[str]:
    """Name every law that a bounded history breaks, by looking at it from outside."""
    faults = []
    if len(after) > POINTS_MAX:
        faults.append("too many points")
    if [point.at_s for point in after] != sorted({point.at_s for point in after}):
        faults.append("out of order")
    if not {point.at_s: point for point in before}.items() >= {point.at_s: point for point in after}.items():
        faults.append("a point that was none")
    if before and (not after or after[0] != before[0] or after[-1] != before[-1]):
        faults.append("an end is missing")
    worst = max((point.values.get("unowned", 0) for point in before), default=0)
    if worst > max((point.values.get("unowned", 0) for point in after), default=0):
        faults.append("the worst has vanished")
    if tuple(before[-POINTS_MAX // 4 :]) != after[-POINTS_MAX // 4 :] and len(before) >= POINTS_MAX // 4:
        faults.append("what is new was thinned")
    return faults


@settings(max_examples=examples(80), deadline=None)
@given(histories())
def test_a_bounded_history_keeps_every_law(points: list[Point]) -> None:
    assert broken_laws(points, bounded(points)) == []


@settings(max_examples=examples(20), deadline=None)
@given(histories(most=60), st.integers(2, 14))
def test_points_that_come_one_by_one_keep_the_laws_too(points: list[Point], rounds: int) -> None:
    seen: list[Point] = []
    kept: tuple[Point, ...] = ()
    for turn in range(rounds):
        for point in points:
            later = msgspec.structs.replace(point, at_s=point.at_s + turn * 10**7)
            seen.append(later)
            kept = bounded([*kept, later])
    assert broken_laws(seen, kept) == []


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (list, "too many points"),
        (lambda points: list(points[len(points) // 2 :]), "an end is missing"),
        (lambda points: [*points[: len(points) // 2 : 2], *points[len(points) // 2 :]], "the worst has vanished"),
        (lambda points: [*points[:10], *points[-10:]], "what is new was thinned"),
        (lambda points: [points[0], *reversed(points[200:-1]), points[-1]], "out of order"),
    ],
)
def test_a_thinning_that_breaks_a_law_is_found(monkeypatch: pytest.MonkeyPatch, broken: object, fault: str) -> None:
    points = [Point(place, {"unowned": 9 if place == 41 else 0, "moves": place}) for place in range(POINTS_MAX + 1)]
    assert broken_laws(points, bounded(points)) == []
    monkeypatch.setattr(history, "thinned", broken)
    if fault == "too many points":
        monkeypatch.setattr(history, "POINTS_MAX", 10**6)
    assert fault in broken_laws(points, bounded(points))


@settings(max_examples=examples(60), deadline=None)
@given(histories(), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_history_is_read_as_it_was_written_and_never_too_long(points: list[Point], moves: int, line: int) -> None:
    text = write_history(History(bounded(points), moves, line))
    assert len(text.encode()) <= BYTES_MAX
    after = read_history(text)
    assert (after.moves, after.line) == (moves, line)
    assert broken_laws(points, after.points) in ([], ["what is new was thinned"])
    if len(text) < BYTES_MAX // 2:
        assert after.points == bounded(points)


def test_without_a_limit_of_bytes_the_text_grows_past_it(monkeypatch: pytest.MonkeyPatch) -> None:
    points = bounded([Point(place * 10, dict.fromkeys("abcdefgh", 10**8 + place)) for place in range(500)])
    assert len(write_history(History(points))) <= BYTES_MAX
    monkeypatch.setattr(history, "BYTES_MAX", 10**9)
    assert len(write_history(History(points))) > BYTES_MAX


@pytest.mark.parametrize(
    "text", [None, "", "{}", "[1", '{"line":1,"moves":2,"steps":[1,2],"columns":{"a":[1]}}', '{"line":"x"}']
)
def test_a_text_that_nobody_wrote_is_an_empty_history(text: str | None) -> None:
    assert read_history(text) == History()


def add(kept: History, at_s: int, **values: Number) -> History:
    return with_point(kept, at_s, values)


def test_the_same_value_again_is_no_point() -> None:
    first = add(History(), 100, unowned=1)
    assert add(first, 200, unowned=1) == first
    assert [point.at_s for point in add(first, 200, unowned=2).points] == [100, 200]


def test_time_never_runs_backwards_and_a_wrong_clock_is_forgotten() -> None:
    kept = add(add(History(), 1_000, unowned=0), 400, unowned=1)
    assert [point.at_s for point in kept.points] == [1_000, 1_001], "another server's clock may be behind"
    ahead = add(kept, 1_002 + AHEAD_MAX_S * 2, unowned=2)
    mended = add(ahead, 1_010, unowned=3)
    assert [(point.at_s, point.values["unowned"]) for point in mended.points] == [(1_000, 0), (1_001, 1), (1_010, 3)]


def test_a_name_that_was_not_counted_is_none_in_its_column() -> None:
    points = [Point(1, {"unowned": 0}), Point(2, {"unowned": 1, "loadMax": 4})]
    assert columns_of(points) == {"unowned": [0, 1], "loadMax": [None, 4]}


def test_thinning_leaves_about_half_of_the_older_half() -> None:
    points = [Point(place, {"unowned": place % 3}) for place in range(POINTS_MAX)]
    left = thinned(points)
    assert POINTS_MAX * 0.7 <= len(left) <= POINTS_MAX * 0.8
    assert left[-POINTS_MAX // 2 :] == points[-POINTS_MAX // 2 :]
