"""Fallback to on-demand and the return to spot, step by step."""

from __future__ import annotations

import math

import msgspec
import pytest

from poise.decide.fallback import (
    Fallback,
    FallbackPolicy,
    FallbackState,
    FallbackStep,
    Probe,
    SpotSeen,
    fall_back,
    with_substitutes,
)
from poise.decide.split import Split
from poise.errors import InvalidSpec

POLICY = FallbackPolicy(fallback_after_s=300, probe_after_s=600, probe_after_max_s=3000)
FRESH = FallbackState()


def names(decision: Fallback) -> list[str]:
    return [f"{act.step}{':' + act.pod if act.pod else ''}" for act in decision.acts]


def test_a_spot_pod_is_replaced_when_it_waited_longer_than_the_limit() -> None:
    seen = SpotSeen(wanted=3, unschedulable={"api-b": 1000, "api-a": 1200})
    at_the_limit = fall_back(FRESH, seen, 1300, POLICY)
    assert (names(at_the_limit), at_the_limit.next_s) == ([], 1301)
    after = fall_back(at_the_limit.state, seen, 1301, POLICY)
    assert names(after) == ["replace:api-b"]
    assert after.acts[0].reason == "unschedulable on spot for longer than 300 s"
    assert (after.state.substitutes, after.state.probe_at_s, after.next_s) == (1, 1901, 1501)


def test_a_pod_that_is_slow_to_end_is_not_replaced_twice() -> None:
    seen = SpotSeen(wanted=3, unschedulable={"api-a": 0})
    first = fall_back(FRESH, seen, 400, POLICY)
    again = fall_back(first.state, seen, 401, POLICY)
    assert (names(first), names(again)) == (["replace:api-a"], [])
    assert again.state == first.state
    gone = fall_back(again.state, SpotSeen(wanted=3), 402, POLICY)
    assert (gone.state.replaced, gone.state.substitutes) == ((), 1)


def test_one_probe_at_a_time_with_doubling_back_off() -> None:
    state = FallbackState(substitutes=2, probe_at_s=600)
    now_s, waits = 600.0, []
    for _ in range(5):
        probing = fall_back(state, SpotSeen(wanted=5), now_s, POLICY)
        assert names(probing) == ["probe"]
        seen = SpotSeen(wanted=5, probe=Probe.UNSCHEDULABLE)
        assert names(fall_back(probing.state, seen, now_s + 300, POLICY)) == []
        failed = fall_back(probing.state, seen, now_s + 301, POLICY)
        assert names(failed) == ["withdraw"]
        assert failed.next_s is not None
        waits.append(failed.next_s - now_s - 301)
        state, now_s = failed.state, failed.next_s
    assert waits == [1200, 2400, 3000, 3000, 3000]


def test_another_replaced_pod_neither_doubles_nor_delays_the_probe() -> None:
    late = SpotSeen(wanted=5, unschedulable={"api-c": 0})
    probing = fall_back(FallbackState(substitutes=1, probing_since_s=400), late, 500, POLICY)
    assert (names(probing), probing.state.probe_at_s, probing.state.probing_since_s) == (["replace:api-c"], None, 400)
    waiting = fall_back(FallbackState(substitutes=1, probe_at_s=650), late, 500, POLICY)
    assert (names(waiting), waiting.state.probe_at_s) == (["replace:api-c"], 650)


def test_the_back_off_stays_at_its_most_whatever_the_number_of_failures() -> None:
    state = FallbackState(substitutes=1, failures=10**9, probing_since_s=0)
    failed = fall_back(state, SpotSeen(wanted=1), 301, POLICY)
    assert failed.state.probe_at_s == 301 + 3000


def test_a_ready_probe_stays_ends_one_substitute_and_the_back_off() -> None:
    state = FallbackState(substitutes=2, failures=3, probing_since_s=1000)
    back = fall_back(state, SpotSeen(wanted=5, probe=Probe.READY), 1100, POLICY)
    assert names(back) == ["return", "probe"]
    assert back.state == FallbackState(substitutes=1, probing_since_s=1100)
    last = fall_back(back.state, SpotSeen(wanted=5, probe=Probe.READY), 1200, POLICY)
    assert names(last) == ["return"]
    assert (last.state, last.next_s) == (FRESH, None)


def test_a_probe_that_has_a_node_is_given_time_to_start() -> None:
    state = FallbackState(substitutes=1, probing_since_s=0)
    assert names(fall_back(state, SpotSeen(wanted=1, probe=Probe.STARTING), 5000, POLICY)) == []


def test_substitutes_that_are_no_longer_wanted_on_spot_are_forgotten() -> None:
    state = FallbackState(substitutes=3, probing_since_s=0)
    assert fall_back(state, SpotSeen(wanted=2), 10, POLICY).state.substitutes == 2
    none_left = fall_back(state, SpotSeen(wanted=0, probe=Probe.READY), 10, POLICY)
    assert (names(none_left), none_left.state) == (["withdraw"], FRESH)


def test_nothing_to_do_changes_nothing() -> None:
    decision = fall_back(FRESH, SpotSeen(wanted=3), 10, POLICY)
    assert decision == Fallback(FRESH, [], None)


def test_the_split_to_aim_at_while_substitutes_stand_in() -> None:
    desired = Split(spot=7, on_demand=3)
    assert with_substitutes(desired, FallbackState(substitutes=2)) == Split(spot=5, on_demand=5)
    assert with_substitutes(desired, FallbackState(substitutes=9)) == Split(spot=0, on_demand=10)


def test_the_steps_have_plain_names() -> None:
    assert [str(step) for step in FallbackStep] == ["replace", "probe", "return", "withdraw"]


def test_the_state_survives_the_store() -> None:
    state = FallbackState(substitutes=2, replaced=("a",), failures=1, probe_at_s=1.5)
    assert msgspec.json.decode(msgspec.json.encode(state), type=FallbackState) == state


@pytest.mark.parametrize(
    ("policy", "seen", "now_s", "path"),
    [
        (FallbackPolicy(fallback_after_s=-1), SpotSeen(wanted=1), 0, r"\$\.policy\.fallback_after_s"),
        (FallbackPolicy(probe_after_s=0), SpotSeen(wanted=1), 0, r"\$\.policy\.probe_after_s"),
        (FallbackPolicy(probe_after_max_s=1), SpotSeen(wanted=1), 0, r"\$\.policy\.probe_after_max_s"),
        (POLICY, SpotSeen(wanted=-1), 0, r"\$\.seen\.wanted"),
        (POLICY, SpotSeen(wanted=1, unschedulable={"a": math.nan}), 0, r"\$\.seen\.unschedulable\['a'\]"),
        (POLICY, SpotSeen(wanted=1), math.inf, r"\$\.now_s"),
    ],
)
def test_faulty_facts_are_refused_with_their_path(
    policy: FallbackPolicy, seen: SpotSeen, now_s: float, path: str
) -> None:
    with pytest.raises(InvalidSpec, match=f"^{path}: expected "):
        fall_back(FRESH, seen, now_s, policy)
