"""The laws of the guards: half-open windows, monotone budgets, times that keep their word; each broken on purpose."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import import_module
from zoneinfo import ZoneInfo

import msgspec
import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.model.common import Budget, Window
from poise.move.budgets import Started, _in_scope, allowed_moves
from poise.move.guards import GuardFacts, Refusal, Watched, judge, watch_total
from poise.move.windows import _end, in_window, parse_duration

budgets_module = import_module("poise.move.budgets")
guards_module = import_module("poise.move.guards")
windows_module = import_module("poise.move.windows")
SECOND = timedelta(seconds=1)

# Windows

# Sundays on which clocks change in Europe or America, and one on which they do not; all near the hours that matter.
DAYS = [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)]
moments = st.builds(
    lambda day, minutes, seconds: day + timedelta(minutes=minutes, seconds=seconds),
    st.sampled_from([*DAYS, datetime(2026, 6, 14, tzinfo=UTC)]),
    st.integers(-300, 900),
    st.sampled_from([0, 0, 0, 59]),
)
schedules = st.sampled_from(
    [
        "30 2 * * *",
        "0 2 * * *",
        "*/30 * * * *",
        "0 */2 * * *",
        "0,30 1-3 * * *",
        "0 0 * * 0",
        "15 1 1 * *",
        "5 22 * * *",
    ]
)
durations = st.sampled_from(["1m", "30m", "1h", "90m", "4h", "26h"])
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
window_lists = st.lists(st.builds(Window, schedules, durations, zones), min_size=1, max_size=3)


def starts(window: Window, since: datetime, until: datetime) -> list[datetime]:
    """List the starts as cronsim gives them when it walks forwards from well before."""
    found = []
    for start in CronSim(window.schedule, since.astimezone(ZoneInfo(window.timezone))):
        if start.astimezone(UTC) > until:
            break
        found.append(start.astimezone(UTC))
    return found


def covered(windows: list[Window], moment: datetime) -> bool:
    """Say by the definition whether some start covers an instant: start <= at < start + duration."""
    return any(
        start <= moment < start + timedelta(seconds=parse_duration(window.duration))
        for window in windows
        for start in starts(window, moment - timedelta(days=3), moment)
    )


def windows_keep_their_definition(windows: list[Window], moment: datetime) -> None:
    state = in_window(windows, moment)
    assert state.open is covered(windows, moment)
    if state.closes_at is not None:
        assert in_window(windows, state.closes_at - SECOND).open
        assert not in_window(windows, state.closes_at).open
    if state.opens_at is not None:
        assert moment < state.opens_at
        assert in_window(windows, state.opens_at).open
        assert not in_window(windows, state.opens_at - SECOND).open
        assert not covered(windows, moment + (state.opens_at - moment) / 2)


@given(window_lists, moments)
@settings(max_examples=examples(100), deadline=None)
@example([Window("30 2 * * *", "1h", "Europe/Berlin")], datetime(2026, 10, 25, 1, 10, tzinfo=UTC))
@example([Window("30 2 * * *", "1h", "Europe/Berlin")], datetime(2026, 3, 29, 1, 0, tzinfo=UTC))
def test_windows_are_half_open_and_start_as_the_schedule_says(windows: list[Window], moment: datetime) -> None:
    windows_keep_their_definition(windows, moment)


def test_a_window_that_includes_its_end_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "_end", lambda plain, moment: _end(plain, moment - SECOND))
    with pytest.raises(AssertionError):
        windows_keep_their_definition([Window("0 2 * * *", "4h")], datetime(2026, 6, 14, 6, tzinfo=UTC))


def test_a_search_by_the_clock_on_the_wall_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "_CLOCK_CHANGE", timedelta(0))
    with pytest.raises(AssertionError):
        windows_keep_their_definition(
            [Window("30 2 * * *", "1h", "Europe/Berlin")], datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
        )


# Budgets

NOW_S = 1_800_000_000
entries = st.builds(
    Started,
    st.integers(NOW_S - 700, NOW_S + 5).map(float),
    st.sampled_from(["api", "web"]),
    st.sampled_from(["shop", "other"]),
    st.integers(0, 4),
    st.sampled_from([False, False, True]),
)
ledgers = st.lists(entries, max_size=8)
limits = st.integers(0, 12) | st.integers(0, 100).map(lambda percent: f"{percent}%")
budget_lists = st.lists(
    st.builds(Budget, limits, st.sampled_from([60, 300, 600]), st.sampled_from(["workload", "namespace", "cluster"])),
    min_size=1,
    max_size=3,
)


def allowed(budgets: list[Budget], ledger: list[Started], now_s: float = NOW_S, replicas: int = 19) -> int:
    return allowed_moves(budgets, ledger, now_s, replicas, workload="api", namespace="shop").allowed


def by_definition(budgets: list[Budget], ledger: list[Started]) -> int:
    """Count anew, entry by entry and budget by budget."""
    rooms = []
    for budget in budgets:
        limit = budget.limit if isinstance(budget.limit, int) else (19 * int(budget.limit[:-1]) + 99) // 100
        for entry in ledger:
            same = {"workload": (entry.workload, entry.namespace) == ("api", "shop"), "cluster": True}
            same["namespace"] = entry.namespace == "shop"
            if same[budget.scope] and (entry.in_flight or NOW_S - entry.at_s < budget.window_seconds):
                limit -= entry.count
        rooms.append(max(0, limit))
    return min(rooms)


def budgets_keep_their_laws(budgets: list[Budget], ledger: list[Started], more: Started) -> None:
    now = allowed(budgets, ledger)
    assert now == by_definition(budgets, ledger)
    assert allowed(budgets, [*ledger, more]) <= now, "one more action never allows more"
    assert allowed(budgets[1:], ledger) >= now, "one budget fewer never allows less"
    assert allowed(budgets, ledger, NOW_S + 100) >= now, "time alone never allows less"
    assert allowed(budgets, ledger, replicas=40) >= now, "more replicas never allow less"
    finished = [msgspec.structs.replace(entry, in_flight=False) for entry in ledger]
    assert allowed(budgets, finished) >= now, "an action that ends never allows less"
    refusal_keeps_its_word(budgets, ledger)


def refusal_keeps_its_word(budgets: list[Budget], ledger: list[Started]) -> None:
    allowance = allowed_moves(budgets, ledger, NOW_S, 19, workload="api", namespace="shop")
    assert (allowance.refusal is None) == (allowance.allowed > 0)
    if allowance.refusal is None:
        return
    if allowance.refusal.until is None:
        assert allowed(budgets, ledger, NOW_S + 10**6) == 0
    else:
        until_s = allowance.refusal.until.timestamp()
        assert allowed(budgets, ledger, until_s) > 0
        assert allowed(budgets, ledger, until_s - 1) == 0


@given(budget_lists, ledgers, entries)
@settings(max_examples=examples(200), deadline=None)
def test_budgets_are_monotone_and_tell_when_a_slot_frees(
    budgets: list[Budget], ledger: list[Started], more: Started
) -> None:
    budgets_keep_their_laws(budgets, ledger, more)


ONE_IN_TEN_MINUTES = [Budget(1, 600, "namespace")]
MORE = Started(NOW_S, "api", "shop")


def test_a_budget_that_forgets_what_is_in_flight_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        budgets_module, "_in_scope", lambda *facts: [entry for entry in _in_scope(*facts) if not entry.in_flight]
    )
    with pytest.raises(AssertionError):
        budgets_keep_their_laws(ONE_IN_TEN_MINUTES, [Started(NOW_S - 900, "api", "shop", in_flight=True)], MORE)


def test_a_budget_that_counts_only_its_workload_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        budgets_module,
        "_in_scope",
        lambda _budget, ledger, workload, _namespace: [entry for entry in ledger if entry.workload == workload],
    )
    with pytest.raises(AssertionError):
        budgets_keep_their_laws(ONE_IN_TEN_MINUTES, [Started(NOW_S - 9, "web", "shop")], MORE)


def test_a_refusal_that_frees_with_the_first_entry_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_entry(budget: Budget, _limit: int, _used: int, counted: list[Started]) -> float:
        return min(entry.at_s for entry in counted) + budget.window_seconds

    monkeypatch.setattr(budgets_module, "_frees_s", first_entry)
    ledger = [Started(NOW_S - age_s, "api", "shop") for age_s in (100, 200)]
    with pytest.raises(AssertionError):
        budgets_keep_their_laws(ONE_IN_TEN_MINUTES, ledger, MORE)


# All guards together


@st.composite
def guard_facts(draw: st.DrawFn) -> GuardFacts:
    now_s = draw(moments).timestamp()
    budgets = draw(st.lists(st.builds(Budget, st.integers(1, 3), st.sampled_from([60, 600])), max_size=2))
    ages_s = draw(st.lists(st.integers(0, 700), max_size=4))
    return GuardFacts(
        now_s=now_s,
        windows=draw(st.just([]) | window_lists),
        last_action_s=draw(st.none() | st.integers(0, 20).map(lambda age_s: now_s - age_s)),
        total=draw(st.none() | st.integers(0, 90).map(lambda age_s: Watched(9, now_s - age_s, jumped=True))),
        budgets=budgets,
        ledger=[Started(now_s - age_s) for age_s in ages_s],
        replicas=10,
        restores_minimum=draw(st.booleans()),
    )


def judgement_keeps_its_word(action: str, facts: GuardFacts) -> None:
    refusal = judge(action, facts)
    if refusal is None:
        return
    assert refusal.reason
    assert refusal.until is not None, "a time frees all of these guards"
    until_s = refusal.until.timestamp()
    assert judge(action, msgspec.structs.replace(facts, now_s=until_s)) is None
    if until_s - 1 > facts.now_s:
        assert judge(action, msgspec.structs.replace(facts, now_s=until_s - 1)) is not None


@given(st.sampled_from(["migrate-to-spot", "migrate-to-on-demand", "scale-up-spot"]), guard_facts())
@settings(max_examples=examples(120), deadline=None)
def test_a_refusal_tells_the_first_second_at_which_the_action_is_allowed(action: str, facts: GuardFacts) -> None:
    judgement_keeps_its_word(action, facts)


def test_a_time_that_suits_only_the_first_guard_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_the_first(refusals: list[Refusal], _facts: GuardFacts) -> datetime | None:
        return refusals[0].until

    monkeypatch.setattr(guards_module, "_all_clear", of_the_first)
    facts = GuardFacts(now_s=NOW_S, last_action_s=NOW_S, budgets=[Budget(1, 600)], ledger=[Started(NOW_S)])
    with pytest.raises(AssertionError):
        judgement_keeps_its_word("migrate-to-spot", facts)


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 40)), min_size=1, max_size=12), st.integers(0, 90))
@settings(max_examples=examples(150), deadline=None)
def test_migrations_are_held_exactly_while_a_jump_is_not_yet_stable(
    changes: list[tuple[int, int]], later_s: int
) -> None:
    seen, now_s, total, held_until_s = watch_total(None, 10, NOW_S), NOW_S, 10, 0
    for wait_s, after in changes:
        now_s += wait_s
        seen = watch_total(seen, after, now_s)
        if after != total and (now_s < held_until_s or (total > 0 and abs(after - total) > total / 2)):
            held_until_s = now_s + 60
        total = after
    facts = GuardFacts(now_s=now_s + later_s, total=seen)
    assert (judge("migrate-to-spot", facts) is not None) is (now_s + later_s < held_until_s)


def test_a_hold_that_a_small_change_ends_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards_module, "burst_hold", lambda _seen, _now_s: None)
    seen = watch_total(Watched(10, NOW_S), 20, NOW_S + 1)
    assert not watch_total(seen, 21, NOW_S + 2).jumped
    monkeypatch.undo()
    assert watch_total(seen, 21, NOW_S + 2).jumped
