"""The ramp by history, against its vectors and its own law: the spacing of ticks does not matter."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest

from poise.decide.ramp import Interruption, RampEvent, RampPolicy, RampState, RampWhy, SpotPods, next_step_s, ramp
from poise.errors import InvalidSpec

DATA = json.loads((Path(__file__).parent.parent / "data" / "ramp.json").read_text())
PARAMS = DATA["params"]
POLICY = RampPolicy(spot_percentage=80)
FIVE = SpotPods(0, 5)


def between(events: list[RampEvent], state: RampState | None, now_s: float) -> list[RampEvent]:
    """Tell each event once: those after the last call and up to now."""
    return [event for event in events if event.at_s <= now_s and (state is None or event.at_s > state.as_of_s)]


def test_the_defaults_are_those_of_the_design() -> None:
    spoken = RampPolicy(
        spot_percentage=PARAMS["P"],
        initial=PARAMS["initial"],
        step=PARAMS["step"],
        interval_s=PARAMS["interval_min"] * 60,
        half_life_h=PARAMS["half_life_h"],
        prior_pod_hours=PARAMS["prior_pod_hours"],
        penalty_pod_hours=PARAMS["penalty_pod_hours"],
        low=PARAMS["low"],
        high=PARAMS["high"],
    )
    assert spoken == POLICY
    assert PARAMS["spot_pods"] == FIVE.pods


@pytest.mark.parametrize(("name", "events"), [("no_events", []), ("one_interruption_at_35", [Interruption(35 * 60)])])
def test_every_row_of_the_ramp_vectors(name: str, events: list[RampEvent]) -> None:
    state: RampState | None = None
    for minute, percent, score, why in DATA[name]:
        now_s = minute * 60
        state = ramp(state, between([FIVE, *events], state, now_s), now_s, POLICY)
        assert (minute, state.percent, round(state.score, 4), state.why) == (minute, percent, score, why)
        assert ramp(None, between([FIVE, *events], None, now_s), now_s, POLICY) == state


def test_steps_fall_at_the_start_plus_whole_intervals_and_are_never_reset() -> None:
    state = ramp(None, [SpotPods(1000, 5)], 1000, POLICY)
    assert next_step_s(state, POLICY) == 1600
    state = ramp(state, [Interruption(1300), SpotPods(1301, 4)], 1599, POLICY)
    assert (state.percent, next_step_s(state, POLICY)) == (10, 1600)
    assert ramp(state, [], 1599.5, POLICY).percent == 10
    # Without the interruption the step is taken at 1600, and not 600 s after the call.
    assert ramp(ramp(None, [SpotPods(1000, 5)], 1599, POLICY), [], 1600, POLICY).percent == 20


def test_an_interruption_with_a_low_score_halves_rounded_down_and_never_below_one() -> None:
    state = ramp(None, [FIVE], 4200, POLICY)
    assert state.percent == 80
    lost: list[RampEvent] = [Interruption(4201 + number) for number in range(9)]
    percents = []
    for event in lost:
        state = ramp(state, [event], event.at_s, POLICY)
        percents.append(state.percent)
    # E is about 5.8 pod-hours: (29.8)/(29.8+4·2) = 0.79 still holds, a third interruption makes 0.71.
    assert percents == [80, 80, 40, 20, 10, 5, 2, 1, 1]
    assert state.why is RampWhy.HALVED


def test_the_score_counts_the_interruption_itself() -> None:
    shaky = msgspec.structs.replace(POLICY, low=0.87, high=0.9)
    state = ramp(ramp(None, [FIVE], 1800, shaky), [Interruption(1801)], 1801, shaky)
    assert round(state.score, 2) == 0.87
    assert state.score < 0.87
    assert (state.percent, state.why) == (20, RampWhy.HALVED)


def test_a_score_that_equals_a_limit_meets_it() -> None:
    # Without pods, one interruption makes exactly (0 + 4) / (0 + 4 + 4·1).
    even = RampPolicy(prior_pod_hours=4, penalty_pod_hours=4, low=0.5, high=0.5)
    state = ramp(None, [SpotPods(0, 0), Interruption(600)], 600, even)
    assert (state.score, state.percent, state.why) == (0.5, 20, RampWhy.STEP_UP)
    assert ramp(None, [SpotPods(0, 0), Interruption(1)], 1, even).why is RampWhy.HOLD


def test_steps_fall_at_their_instant_also_where_floats_are_coarse() -> None:
    start_s = 1763251200.1
    policy = RampPolicy(step=1, interval_s=7)
    state = ramp(None, [SpotPods(start_s, 5)], start_s, policy)
    for number in range(1, 91):
        step_s = start_s + number * 7
        state = ramp(state, [], math.nextafter(step_s, 0), policy)
        assert state.percent == 10 + number - 1
        state = ramp(state, [], step_s, policy)
        assert state.percent == 10 + number


def test_an_interruption_at_the_instant_of_a_step_counts_before_it() -> None:
    state = ramp(None, [FIVE, Interruption(600)], 600, POLICY)
    assert (state.percent, state.why) == (10, RampWhy.HOLD)
    assert ramp(ramp(None, [FIVE], 599, POLICY), [Interruption(600)], 600, POLICY) == state


def test_lowering_the_target_clamps_at_once_and_raising_it_climbs_by_steps() -> None:
    state = ramp(None, [FIVE], 4200, POLICY)
    lowered = ramp(state, [], 4201, msgspec.structs.replace(POLICY, spot_percentage=35))
    assert (lowered.percent, lowered.why) == (35, RampWhy.LOWERED)
    raised = ramp(lowered, [], 4202, POLICY)
    assert raised.percent == 35
    assert ramp(raised, [], 4800, POLICY).percent == 45
    assert ramp(raised, [], 99 * 600, POLICY).percent == 80


def test_a_target_below_the_start_and_none_at_all() -> None:
    assert ramp(None, [], 0, RampPolicy(spot_percentage=5)).percent == 5
    off = RampPolicy(spot_percentage=0)
    assert ramp(None, [Interruption(0), Interruption(1)], 9000, off).percent == 0


def test_an_interval_that_is_made_shorter_does_not_pay_out_steps_of_the_past() -> None:
    slow, fast = POLICY, msgspec.structs.replace(POLICY, interval_s=60)
    state = ramp(None, [FIVE], 1199, slow)
    assert state.percent == 20
    assert ramp(state, [], 1199, fast).percent == 20
    assert ramp(state, [], 1200, fast).percent == 30


def test_a_ramp_that_nobody_asked_for_a_century_answers_at_once() -> None:
    policy = RampPolicy(spot_percentage=80, interval_s=1, high=1.0, half_life_h=1e6)
    state = ramp(None, [FIVE, Interruption(1)], 3.2e9, policy)
    assert state.percent == 10
    assert ramp(ramp(None, [FIVE, Interruption(1)], 2, POLICY), [], 3.2e9, POLICY).percent == 80


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1, 1e308, True, "1", None, 10**400])
def test_faulty_times_are_refused(wrong: float) -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.now_s: expected "):
        ramp(None, [], wrong, POLICY)
    with pytest.raises(InvalidSpec, match=r"^\$\.events\[0\]\.at_s: expected "):
        ramp(None, [Interruption(wrong)], 5, POLICY)


@pytest.mark.parametrize("pods", [-1, 1.5, 10**400, 10**9 + 1])
def test_faulty_numbers_of_pods_are_refused(pods: int) -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.events\[0\]\.pods: expected "):
        ramp(None, [SpotPods(0, pods)], 5, POLICY)


def test_events_are_told_once_and_in_time() -> None:
    state = ramp(None, [FIVE], 100, POLICY)
    for late_or_early in (100, 50, 201):
        with pytest.raises(InvalidSpec, match=r"^\$\.events\[0\]\.at_s: expected after the last call and up to now"):
            ramp(state, [Interruption(late_or_early)], 200, POLICY)
    with pytest.raises(InvalidSpec, match=r"^\$\.now_s: expected >= 100"):
        ramp(state, [], 99, POLICY)


@pytest.mark.parametrize(
    "changes",
    [
        {"initial": 101},
        {"initial": -1},
        {"step": 0},
        {"step": 101},
        {"interval_s": 0},
        {"interval_s": 1.5},
        {"half_life_h": 0},
        {"half_life_h": math.nan},
        {"prior_pod_hours": 0},
        {"penalty_pod_hours": -1},
        {"low": 0.95},
        {"high": 1.1},
        {"high": math.inf},
        {"spot_percentage": 0.5},
    ],
    ids=str,
)
def test_faulty_policies_are_refused_with_their_path(changes: dict[str, float]) -> None:
    (field,) = changes
    with pytest.raises(InvalidSpec, match=rf"^\$\.policy\.{field}: expected "):
        ramp(None, [], 0, msgspec.structs.replace(POLICY, **changes))


def test_the_state_and_the_events_survive_the_store() -> None:
    state = ramp(None, [FIVE, Interruption(35)], 700.25, POLICY)
    assert msgspec.json.decode(msgspec.json.encode(state), type=RampState) == state
    events: list[RampEvent] = [FIVE, Interruption(35)]
    assert msgspec.json.decode(msgspec.json.encode(events), type=list[RampEvent]) == events
