"""The ramp by history: spot adoption starts low and grows while the spot capacity proves stable."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from poise.decide.split import clamp_percentage
from poise.errors import invalid
from poise.inputs import whole
from poise.instants import instant, number, span

# So many half-lives after the last event nothing of it is left; 2 to a higher power would leave the floats.
_FORGOTTEN_HALF_LIVES = 1000.0
_PODS_MAX = 10**9


class RampPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How fast to trust: S = (E + a) / (E + a + k·I), where `prior_pod_hours` is a and `penalty_pod_hours` is k."""

    spot_percentage: int = 100
    initial: int = 10
    step: int = 10
    interval_s: int = 600
    half_life_h: float = 6.0
    prior_pod_hours: float = 24.0
    penalty_pod_hours: float = 4.0
    low: float = 0.75
    high: float = 0.9


class Interruption(msgspec.Struct, frozen=True, tag="interruption"):
    """One spot pod lost its node."""

    at_s: float


class SpotPods(msgspec.Struct, frozen=True, tag="spotPods"):
    """The number of spot pods that run, from this instant on."""

    at_s: float
    pods: int


RampEvent = Interruption | SpotPods


class RampWhy(StrEnum):
    """What the last interval or interruption decided."""

    START = "start"
    STEP_UP = "step up"
    HOLD = "hold"
    HALVED = "halved"
    LOWERED = "target lowered"


class RampState(msgspec.Struct, frozen=True, kw_only=True):
    """The percentage to use now and why, and the history it rests on, as of the last event.

    `pod_hours` and `interruptions` are E and I at `event_s`. No tick touches them: so that the result cannot depend on
    how often it was asked for, not even in the last bit.
    """

    percent: int
    score: float
    why: RampWhy
    start_s: float
    as_of_s: float
    event_s: float
    spot_pods: int = 0
    pod_hours: float = 0.0
    interruptions: float = 0.0


def ramp(state: RampState | None, events: Iterable[RampEvent], now_s: float, policy: RampPolicy) -> RampState:
    """Bring the ramp to now: add `step` at start + k·interval where S >= high, halve at an interruption where S < low.

    Without a state the ramp starts, at the first event or now. Each event is told once, in the call that first covers
    its time; events at the instant of a step count before it. The score counts the interruption itself.
    """
    target = _check_policy(policy)
    told = _check_events(state, events, instant("$.now_s", now_s))
    if state is None:
        state = _start(min([now_s, *(event.at_s for event in told)]), target, policy)
    if state.percent > target:
        state = msgspec.structs.replace(state, percent=target, why=RampWhy.LOWERED)
    done = _steps_until(state, state.as_of_s, policy)
    for event in told:
        before = _steps_before(state, event.at_s, policy)
        state = _take(_step(state, range(done + 1, before + 1), target, policy), event, target, policy)
        done = max(done, before)
    due = range(done + 1, _steps_until(state, now_s, policy) + 1)
    state = _step(state, due, target, policy)
    return msgspec.structs.replace(state, as_of_s=now_s, score=_score(state, now_s, policy))


def next_step_s(state: RampState, policy: RampPolicy) -> float:
    """Give the instant of the next interval, at which the percentage may grow."""
    return state.start_s + (_steps_until(state, state.as_of_s, policy) + 1) * policy.interval_s


def _start(at_s: float, target: int, policy: RampPolicy) -> RampState:
    percent = min(policy.initial, target)
    return RampState(percent=percent, score=1.0, why=RampWhy.START, start_s=at_s, as_of_s=at_s, event_s=at_s)


def _take(state: RampState, event: RampEvent, target: int, policy: RampPolicy) -> RampState:
    """Move the history to the event and add it; halve where an interruption makes the score too low."""
    lost = isinstance(event, Interruption)
    kept = math.exp2(-_half_lives(state, event.at_s, policy))
    limit = _pod_hours_limit(state, policy)
    state = msgspec.structs.replace(
        state,
        event_s=event.at_s,
        spot_pods=event.pods if isinstance(event, SpotPods) else state.spot_pods,
        pod_hours=limit + (state.pod_hours - limit) * kept,
        interruptions=state.interruptions * kept + lost,
    )
    if not lost:
        return state
    if _score(state, event.at_s, policy) >= policy.low:
        return msgspec.structs.replace(state, why=RampWhy.HOLD)
    return msgspec.structs.replace(state, percent=min(max(1, state.percent // 2), target), why=RampWhy.HALVED)


def _step(state: RampState, due: range, target: int, policy: RampPolicy) -> RampState:
    """Take the steps that are due since the last event.

    Between events the score only grows, so the first step that finds it high enough is found by bisection: a ramp
    that nobody asked for a year costs no more than one asked for every minute.
    """
    if not due:
        return state
    refused = bisect_left(due, True, key=lambda k: _score(state, _step_s(state, k, policy), policy) >= policy.high)
    raised = len(due) - refused
    wanted = -(-(target - state.percent) // policy.step)
    percent = min(target, state.percent + raised * policy.step)
    why = RampWhy.STEP_UP if 0 < raised <= wanted else RampWhy.HOLD
    return msgspec.structs.replace(state, percent=percent, why=why)


def _steps_before(state: RampState, at_s: float, policy: RampPolicy) -> int:
    k = _steps_until(state, at_s, policy)
    return k - 1 if k > 0 and _step_s(state, k, policy) == at_s else k


def _steps_until(state: RampState, at_s: float, policy: RampPolicy) -> int:
    """Count the steps at start + k·interval (k >= 1) that are not after an instant."""
    k = int((at_s - state.start_s) // policy.interval_s)
    # A division in floats may be one off; the instants themselves decide.
    while _step_s(state, k + 1, policy) <= at_s:
        k += 1
    while k > 0 and _step_s(state, k, policy) > at_s:
        k -= 1
    return k


def _step_s(state: RampState, k: int, policy: RampPolicy) -> float:
    return state.start_s + k * policy.interval_s


def _half_lives(state: RampState, at_s: float, policy: RampPolicy) -> float:
    return min((at_s - state.event_s) / 3600 / policy.half_life_h, _FORGOTTEN_HALF_LIVES)


def _pod_hours_limit(state: RampState, policy: RampPolicy) -> float:
    """Give what E tends to with this number of pods: the integral of n·2^(-t/h) over all the past."""
    return state.spot_pods * policy.half_life_h / math.log(2)


def _score(state: RampState, at_s: float, policy: RampPolicy) -> float:
    """Judge the history at an instant: S = (E + a) / (E + a + k·I) with E and I decayed by the exact integral.

    Both sides are divided by the decay, which leaves one growing term: rounding keeps the score from falling again.
    """
    limit = _pod_hours_limit(state, policy)
    growth = math.exp2(_half_lives(state, at_s, policy))
    trust = (state.pod_hours - limit) + (limit + policy.prior_pod_hours) * growth
    return 1 / (1 + policy.penalty_pod_hours * state.interruptions / trust)


def _check_policy(policy: RampPolicy) -> int:
    """Check the policy and return its target percentage, clamped."""
    number("$.policy.initial", whole("$.policy.initial", policy.initial), most=100)
    number("$.policy.step", whole("$.policy.step", policy.step, least=1), most=100)
    span("$.policy.interval_s", whole("$.policy.interval_s", policy.interval_s, least=1))
    number("$.policy.half_life_h", policy.half_life_h, least=1e-3, most=1e6)
    number("$.policy.prior_pod_hours", policy.prior_pod_hours, least=1e-3, most=1e9)
    number("$.policy.penalty_pod_hours", policy.penalty_pod_hours, most=1e9)
    number("$.policy.high", policy.high, most=1.0)
    number("$.policy.low", policy.low, most=policy.high)
    return clamp_percentage("$.policy.spot_percentage", policy.spot_percentage)


def _check_events(state: RampState | None, events: Iterable[RampEvent], now_s: float) -> Sequence[RampEvent]:
    """Check the events and sort them by time; one that is told too late, or early, is InvalidSpec."""
    told = list(events)
    for position, event in enumerate(told):
        path = f"$.events[{position}]"
        if not isinstance(event, Interruption | SpotPods):
            raise invalid(path, f"expected an event of the ramp, got {type(event).__name__}")
        instant(f"{path}.at_s", event.at_s)
        if isinstance(event, SpotPods):
            number(f"{path}.pods", whole(f"{path}.pods", event.pods), most=_PODS_MAX)
        if event.at_s > now_s or (state is not None and event.at_s <= state.as_of_s):
            raise invalid(f"{path}.at_s", f"expected after the last call and up to now, got {event.at_s:g}")
    if state is not None and now_s < state.as_of_s:
        raise invalid("$.now_s", f"expected >= {state.as_of_s:g}, where the state stands, got {now_s:g}")
    return sorted(told, key=_when)


def _when(event: RampEvent) -> tuple[float, int]:
    """Order by time; of two counts at one instant the larger one stands, whatever the order of the input."""
    return event.at_s, event.pods if isinstance(event, SpotPods) else -1
