"""The laws of the ramp and of the fallback; each is also broken on purpose."""

from __future__ import annotations

from importlib import import_module

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide.fallback import (
    FallbackAct,
    FallbackPolicy,
    FallbackState,
    FallbackStep,
    Probe,
    SpotSeen,
    _judge_probe,
    fall_back,
)
from poise.decide.ramp import Interruption, RampEvent, RampPolicy, RampState, SpotPods, _step, ramp

# The package exports functions of the same names, so the modules are asked for by their full names.
fallback_module = import_module("poise.decide.fallback")
ramp_module = import_module("poise.decide.ramp")

# The ramp

POLICY = RampPolicy(spot_percentage=80)
seconds = st.integers(0, 6 * 3600).map(float) | st.floats(0, 6 * 3600)
ramp_events = st.builds(Interruption, seconds) | st.builds(SpotPods, seconds, st.integers(0, 40))


def tick(events: list[RampEvent], ticks_s: list[float]) -> RampState:
    state: RampState | None = None
    for now_s in ticks_s:
        told = [e for e in events if e.at_s <= now_s and (state is None or e.at_s > state.as_of_s)]
        state = ramp(state, told, now_s, POLICY)
    assert state is not None
    return state


def ticks_do_not_matter(events: list[RampEvent], ticks_s: list[float], end_s: float) -> None:
    told: list[RampEvent] = [SpotPods(0, 5), *(event for event in events if event.at_s <= end_s)]
    often = tick(told, [0.0, *sorted(at_s for at_s in set(ticks_s) if 0 < at_s < end_s), end_s])
    assert often == tick(told, [0.0, end_s]) == tick(told, [end_s])
    assert 1 <= often.percent <= 80
    assert 0 < often.score <= 1


@given(st.lists(ramp_events, max_size=12), st.lists(seconds, max_size=12), seconds.filter(bool))
@settings(max_examples=examples(150), deadline=None)
@example([Interruption(0.0)], [300.0, 600.0, 900.0], 3600.0)
def test_the_ramp_does_not_depend_on_the_spacing_of_ticks(
    events: list[RampEvent], ticks_s: list[float], end_s: float
) -> None:
    ticks_do_not_matter(events, ticks_s, end_s)


def test_steps_that_start_anew_at_every_tick_break_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def since_last(state: RampState, at_s: float, policy: RampPolicy) -> int:
        return int((at_s - state.as_of_s) // policy.interval_s)

    monkeypatch.setattr(ramp_module, "_steps_until", since_last)
    with pytest.raises(AssertionError):
        ticks_do_not_matter([], [300.0, 899.0, 1500.0], 1800.0)


def test_a_history_that_moves_with_the_ticks_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def euler(state: RampState, due: range, target: int, policy: RampPolicy) -> RampState:
        moved = _step(state, due, target, policy)
        return msgspec.structs.replace(moved, interruptions=moved.interruptions * 0.99)

    monkeypatch.setattr(ramp_module, "_step", euler)
    with pytest.raises(AssertionError):
        ticks_do_not_matter([Interruption(60.0)], [300.0, 899.0, 1500.0], 1800.0)


@given(st.lists(ramp_events, max_size=8))
@settings(max_examples=examples(30), deadline=None)
def test_the_score_is_the_integral_of_the_decayed_history(events: list[RampEvent]) -> None:
    end_s, width_s = 7 * 3600.0, 20.0
    state = tick([SpotPods(0, 5), *events], [end_s])
    counts = sorted([(0.0, 5), *((e.at_s, e.pods) for e in events if isinstance(e, SpotPods))])
    pod_hours = 0.0
    for at_s in (width_s * (place + 0.5) for place in range(int(end_s / width_s))):
        pods = next(n for since_s, n in reversed(counts) if since_s <= at_s)
        pod_hours += pods * width_s / 3600 * 0.5 ** ((end_s - at_s) / 3600 / 6)
    lost = sum(0.5 ** ((end_s - e.at_s) / 3600 / 6) for e in events if isinstance(e, Interruption))
    wanted = (pod_hours + 24) / (pod_hours + 24 + 4 * lost)
    assert state.score == pytest.approx(wanted, abs=0.005)


@given(st.lists(ramp_events, max_size=12), st.data())
@settings(max_examples=examples(80), deadline=None)
def test_the_order_in_which_events_are_told_does_not_matter(events: list[RampEvent], data: st.DataObject) -> None:
    told = [SpotPods(0, 5), *events]
    assert ramp(None, told, 30000, POLICY) == ramp(None, data.draw(st.permutations(told)), 30000, POLICY)


# Fallback and return

RETRY = FallbackPolicy(fallback_after_s=3, probe_after_s=2, probe_after_max_s=16)


class World:
    """Pods on both sides, with spot nodes that come and go; nothing is interrupted, so only a step can lower Ready."""

    def __init__(self, spot: int, on_demand: int) -> None:
        self.state = FallbackState()
        self.wanted = spot
        self.waiting = {f"spot-{number}": 0.0 for number in range(spot)}
        self.spot = 0
        self.on_demand = on_demand
        self.starting_on_demand = 0
        self.probe = Probe.ABSENT

    def ready(self) -> int:
        """Count the replicas that serve; the probe does so only when it has become one of them."""
        return self.spot + self.on_demand

    def turn(self, now_s: float, nodes: int) -> None:
        """Let the world go on for a second: nodes appear, and what has a node becomes Ready."""
        for name in sorted(self.waiting)[:nodes]:
            del self.waiting[name]
            self.spot += 1
        self.on_demand += self.starting_on_demand
        self.starting_on_demand = 0
        if self.probe is Probe.STARTING:
            self.probe = Probe.READY
        elif self.probe is Probe.UNSCHEDULABLE and nodes:
            self.probe = Probe.STARTING
        seen = SpotSeen(wanted=self.wanted, unschedulable=dict(self.waiting), probe=self.probe)
        decision = fall_back(self.state, seen, now_s, RETRY)
        for act in decision.acts:
            self.do(act.step, act.pod)
        self.state = decision.state

    def do(self, step: FallbackStep, pod: str | None) -> None:
        """Carry a step out, as its words say."""
        if step is FallbackStep.REPLACE:
            assert pod is not None
            del self.waiting[pod]
            self.starting_on_demand += 1
        elif step is FallbackStep.PROBE:
            assert self.probe is Probe.ABSENT, "one probe at a time"
            self.probe = Probe.UNSCHEDULABLE
        elif step is FallbackStep.WITHDRAW:
            self.probe = Probe.ABSENT
        else:
            self.spot += self.probe is Probe.READY
            self.on_demand -= 1
            self.probe = Probe.ABSENT


def ready_never_falls(nodes: list[int]) -> None:
    world = World(spot=3, on_demand=2)
    before = world.ready()
    for now_s, found in enumerate([*nodes, *[1] * 40]):
        world.turn(float(now_s), found)
        assert world.ready() >= before, f"Ready fell from {before} to {world.ready()} at {now_s} s"
        assert len(world.waiting) + world.spot + world.on_demand + world.starting_on_demand == 5
        before = world.ready()
    assert (world.spot, world.on_demand, world.state) == (3, 2, FallbackState())


@given(st.lists(st.integers(0, 1), max_size=60))
@settings(max_examples=examples(150), deadline=None)
def test_ready_never_falls_and_all_return_to_spot(nodes: list[int]) -> None:
    ready_never_falls(nodes)


def test_a_return_before_the_probe_is_ready_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(
        state: FallbackState, seen: SpotSeen, now_s: float, policy: FallbackPolicy, acts: list[FallbackAct]
    ) -> FallbackState:
        if seen.probe is Probe.STARTING:
            seen = msgspec.structs.replace(seen, probe=Probe.READY)
        return _judge_probe(state, seen, now_s, policy, acts)

    monkeypatch.setattr(fallback_module, "_judge_probe", hasty)
    with pytest.raises(AssertionError, match="Ready fell"):
        ready_never_falls([0] * 10)
