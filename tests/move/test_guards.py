"""One action under all guards, the order in which they are asked, and what passes them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import msgspec
import pytest

from poise.errors import InvalidSpec
from poise.move.guards import (
    Budget,
    GuardFacts,
    Pause,
    Refusal,
    Started,
    Watched,
    Window,
    burst_hold,
    cooldown,
    judge,
    watch_total,
)

# Sunday, 15 November 2026, 01:00:00 UTC.
NOW_S = 1794704400.0
NIGHT = Window("0 2 * * *", "4h")
OPEN = GuardFacts(now_s=NOW_S, replicas=10)
CLOSED = GuardFacts(
    now_s=NOW_S,
    pause=Pause.MOVES,
    windows=[NIGHT],
    cooldown_s=10,
    last_action_s=NOW_S - 4,
    total=Watched(20, NOW_S - 10, jumped=True),
    budgets=[Budget(1, 600)],
    ledger=[Started(NOW_S - 100)],
    replicas=20,
)


def clock(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-15T{text}").replace(tzinfo=UTC)


def refused(action: str, facts: GuardFacts) -> Refusal:
    refusal = judge(action, facts)
    assert refusal is not None
    return refusal


def test_nothing_refuses_without_guards() -> None:
    assert judge("migrate-to-spot", OPEN) is None
    assert judge("none", CLOSED) is None


def test_the_order_is_pause_window_cooldown_burst_hold_budget() -> None:
    facts, codes = CLOSED, []
    for field in ("pause", "windows", "last_action_s", "total", "budgets"):
        codes.append(str(refused("migrate-to-spot", facts).code))
        facts = msgspec.structs.replace(facts, **{field: getattr(OPEN, field)})
    assert codes == ["pause", "window", "cooldown", "burst-hold", "budget"]
    assert judge("migrate-to-spot", facts) is None


def test_every_reason_is_told_and_the_time_suits_all_guards() -> None:
    facts = msgspec.structs.replace(CLOSED, pause=Pause.OFF)
    refusal = refused("migrate-to-spot", facts)
    assert refusal.until == clock("02:00")
    assert refusal.reason.split("; ") == [
        "outside of its windows, next: 0 2 * * * UTC for 4h",
        "cooldown of 10 s after the last action",
        "the total jumped, to 20, and is not yet stable for 60 s",
        "1 of 1 in 600 s started or in flight in the workload",
    ]


def test_a_wait_that_ends_after_the_window_closed_lasts_until_the_next_one() -> None:
    facts = GuardFacts(now_s=NOW_S + 5 * 3600 - 5, windows=[NIGHT], last_action_s=NOW_S + 5 * 3600 - 6)
    refusal = refused("migrate-to-spot", facts)
    assert (refusal.code, refusal.until) == ("cooldown", datetime(2026, 11, 16, 2, tzinfo=UTC))


def test_no_time_frees_a_pause() -> None:
    assert refused("migrate-to-spot", CLOSED).until is None


def test_what_restores_the_minimum_passes_windows_and_a_pause_of_moves() -> None:
    restoring = GuardFacts(now_s=NOW_S, windows=[NIGHT], pause=Pause.MOVES, restores_minimum=True)
    assert judge("migrate-to-on-demand", restoring) is None
    assert refused("migrate-to-on-demand", msgspec.structs.replace(restoring, pause=Pause.ALL)).code == "pause"
    assert refused("migrate-to-on-demand", msgspec.structs.replace(restoring, restores_minimum=False)).code == "pause"
    waiting = msgspec.structs.replace(restoring, last_action_s=NOW_S - 1)
    refusal = refused("migrate-to-on-demand", waiting)
    assert (refusal.code, refusal.until) == ("cooldown", clock("01:00:09"))


def test_only_migrations_are_held_after_a_burst() -> None:
    facts = GuardFacts(now_s=NOW_S, total=Watched(20, NOW_S - 10, jumped=True))
    assert refused("migrate-to-spot", facts).code == "burst-hold"
    assert refused("migrate-to-on-demand", facts).code == "burst-hold"
    assert judge("scale-up-on-demand", facts) is None


def test_the_cooldown_ends_at_its_time() -> None:
    assert cooldown(None, 10, NOW_S) is None
    refusal = cooldown(NOW_S, 10, NOW_S + 9.5)
    assert refusal is not None
    assert (refusal.code, refusal.until) == ("cooldown", clock("01:00:10"))
    assert cooldown(NOW_S, 10, NOW_S + 10) is None
    assert cooldown(NOW_S, 0, NOW_S) is None


def test_the_default_cooldown_is_ten_seconds() -> None:
    assert refused("scale-up-spot", GuardFacts(now_s=NOW_S, last_action_s=NOW_S - 9)).code == "cooldown"
    assert judge("scale-up-spot", GuardFacts(now_s=NOW_S, last_action_s=NOW_S - 10)) is None


@pytest.mark.parametrize(
    ("before", "after", "held"),
    [(10, 16, True), (10, 15, False), (10, 5, False), (10, 4, True), (10, 0, True), (0, 50, False), (1, 2, True)],
)
def test_a_jump_by_more_than_half_holds_migrations(before: int, after: int, held: bool) -> None:
    seen = watch_total(watch_total(None, before, NOW_S - 100), after, NOW_S)
    assert (burst_hold(seen, NOW_S) is not None) is held


def test_the_hold_lasts_until_the_total_is_stable_for_60_s() -> None:
    seen = watch_total(Watched(10, NOW_S - 100), 20, NOW_S)
    refusal = burst_hold(seen, NOW_S + 59)
    assert refusal is not None
    assert refusal.until == clock("01:01:00")
    assert burst_hold(seen, NOW_S + 60) is None
    # A small change while it is held starts the 60 s again; afterwards it does not.
    moved = watch_total(seen, 21, NOW_S + 30)
    assert burst_hold(moved, NOW_S + 89) is not None
    assert burst_hold(moved, NOW_S + 90) is None
    assert burst_hold(watch_total(seen, 21, NOW_S + 60), NOW_S + 61) is None


def test_a_total_that_did_not_change_leaves_nothing_to_write() -> None:
    seen = Watched(10, NOW_S - 100, jumped=True)
    assert watch_total(seen, 10, NOW_S) is seen


def test_what_was_watched_survives_the_store() -> None:
    seen = watch_total(Watched(10, NOW_S - 100), 20, NOW_S)
    assert msgspec.json.decode(msgspec.json.encode(seen), type=Watched) == seen


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, 1e308])
def test_faulty_times_are_refused_with_their_path(wrong: float) -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.now_s: expected "):
        cooldown(1, 10, wrong)
    with pytest.raises(InvalidSpec, match=r"^\$\.last_action_s: expected "):
        cooldown(wrong, 10, NOW_S)
    with pytest.raises(InvalidSpec, match=r"^\$\.cooldown_s: expected "):
        cooldown(1, wrong, NOW_S)
    with pytest.raises(InvalidSpec, match=r"^\$\.now_s: expected "):
        watch_total(None, 1, wrong)
    with pytest.raises(InvalidSpec, match=r"^\$\.now_s: expected "):
        burst_hold(None, wrong)


def test_a_faulty_total_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.total: expected >= 0, got -1$"):
        watch_total(None, -1, NOW_S)


def test_a_faulty_window_is_shown_even_where_windows_do_not_count() -> None:
    facts = GuardFacts(now_s=NOW_S, windows=[Window("0 2 * * *", "soon")], restores_minimum=True)
    with pytest.raises(InvalidSpec, match=r"^\$\.windows\[0\]\.duration: expected a duration"):
        judge("migrate-to-on-demand", facts)
