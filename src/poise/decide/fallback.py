"""Fallback and return: what spot cannot place runs on on-demand, and one probe at a time tries spot again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from poise.decide.split import Split
from poise.inputs import whole
from poise.instants import instant, span


class FallbackPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When to give up on spot, and when to try it again: after `probe_after_s`, doubled at each failure."""

    fallback_after_s: int = 300
    probe_after_s: int = 600
    probe_after_max_s: int = 6 * 3600


class Probe(StrEnum):
    """What became of the probe pod; while none was started it is absent."""

    ABSENT = "absent"
    UNSCHEDULABLE = "unschedulable"
    STARTING = "starting"
    READY = "ready"


class SpotSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of the spot side: its wanted count, its pods that find no node (and since when), and the probe."""

    wanted: int
    unschedulable: dict[str, float] = msgspec.field(default_factory=dict)
    probe: Probe = Probe.ABSENT


class FallbackState(msgspec.Struct, frozen=True, kw_only=True):
    """How many spot replicas run on on-demand instead, whom they replaced, and where the probing stands.

    `replaced` keeps the names until they are seen no more: a pod that is slow to end is not replaced twice.
    """

    substitutes: int = 0
    replaced: tuple[str, ...] = ()
    failures: int = 0
    probe_at_s: float | None = None
    probing_since_s: float | None = None


class FallbackStep(StrEnum):
    """What to do. None of them ends a Ready pod before another one is Ready in its place."""

    REPLACE = "replace"  # End a pod that found no node, and start one on on-demand.
    PROBE = "probe"  # Start one more pod, on spot; nothing is ended for it.
    RETURN = "return"  # The probe is Ready and stays: end one substitute on on-demand.
    WITHDRAW = "withdraw"  # End the probe, which found no node.


class FallbackAct(msgspec.Struct, frozen=True):
    """One step with its reason; `pod` names the pod to replace."""

    step: FallbackStep
    reason: str
    pod: str | None = None


class Fallback(msgspec.Struct, frozen=True):
    """The decision: steps to do now, the state to keep, and when to look again (None: when facts change)."""

    state: FallbackState
    acts: list[FallbackAct]
    next_s: float | None


def fall_back(state: FallbackState, seen: SpotSeen, now_s: float, policy: FallbackPolicy) -> Fallback:
    """Replace spot pods unschedulable for longer than `fallback_after_s`, and try spot again with one probe at a time.

    Law: Ready replicas never fall below what they were, since only pods that are not Ready end before others start.
    """
    instant("$.now_s", now_s)
    _check(state, seen, policy)
    acts: list[FallbackAct] = []
    state = _trim(state, seen, acts)
    state = _judge_probe(state, seen, now_s, policy, acts)
    state = _replace_late(state, seen.unschedulable, now_s, policy, acts)
    if state.probe_at_s is not None and now_s >= state.probe_at_s:
        acts.append(FallbackAct(FallbackStep.PROBE, f"{state.substitutes} on on-demand would rather be on spot"))
        state = msgspec.structs.replace(state, probe_at_s=None, probing_since_s=now_s)
    return Fallback(state, acts, _next_s(state, seen, now_s, policy))


def with_substitutes(desired: Split, state: FallbackState) -> Split:
    """Give the split to aim at while substitutes stand in for spot replicas."""
    moved = min(state.substitutes, desired.spot)
    return Split(spot=desired.spot - moved, on_demand=desired.on_demand + moved)


def _judge_probe(
    state: FallbackState, seen: SpotSeen, now_s: float, policy: FallbackPolicy, acts: list[FallbackAct]
) -> FallbackState:
    """Take the probe's answer: Ready ends a substitute and the back-off, too late doubles the back-off."""
    if state.probing_since_s is None:
        return state
    if seen.probe is Probe.READY:
        acts.append(FallbackAct(FallbackStep.RETURN, "the probe is Ready on spot"))
        left = max(0, state.substitutes - 1)
        probe_at_s = now_s if left else None
        return msgspec.structs.replace(state, substitutes=left, failures=0, probe_at_s=probe_at_s, probing_since_s=None)
    late = now_s - state.probing_since_s > policy.fallback_after_s
    if seen.probe is Probe.STARTING or not late:
        return state
    failures = state.failures + 1
    wait_s = _backoff_s(failures, policy)
    acts.append(
        FallbackAct(FallbackStep.WITHDRAW, f"the probe found no spot node, failure {failures}: again in {wait_s} s")
    )
    return msgspec.structs.replace(state, failures=failures, probe_at_s=now_s + wait_s, probing_since_s=None)


def _replace_late(
    state: FallbackState, waiting: Mapping[str, float], now_s: float, policy: FallbackPolicy, acts: list[FallbackAct]
) -> FallbackState:
    state = msgspec.structs.replace(state, replaced=tuple(name for name in state.replaced if name in waiting))
    overdue = {name for name, since_s in waiting.items() if now_s - since_s > policy.fallback_after_s}
    late = sorted(overdue.difference(state.replaced))
    if not late:
        return state
    reason = f"unschedulable on spot for longer than {policy.fallback_after_s} s"
    acts += [FallbackAct(FallbackStep.REPLACE, reason, name) for name in late]
    probe_at_s = state.probe_at_s
    if probe_at_s is None and state.probing_since_s is None:
        probe_at_s = now_s + _backoff_s(state.failures, policy)
    return msgspec.structs.replace(
        state,
        substitutes=state.substitutes + len(late),
        replaced=(*state.replaced, *late),
        probe_at_s=probe_at_s,
    )


def _trim(state: FallbackState, seen: SpotSeen, acts: list[FallbackAct]) -> FallbackState:
    """Forget the substitutes that are no longer wanted on spot; without any there is nothing to probe for."""
    if state.substitutes > seen.wanted:
        state = msgspec.structs.replace(state, substitutes=seen.wanted)
    if state.substitutes:
        return state
    if state.probing_since_s is not None:
        acts.append(FallbackAct(FallbackStep.WITHDRAW, "no replica is wanted back on spot"))
    return FallbackState(replaced=state.replaced)


def _backoff_s(failures: int, policy: FallbackPolicy) -> int:
    """Double the wait at each failure, up to its most; 2 to the 40th is beyond every most."""
    return min(policy.probe_after_s << min(failures, 40), policy.probe_after_max_s)


def _next_s(state: FallbackState, seen: SpotSeen, now_s: float, policy: FallbackPolicy) -> float | None:
    """Give the first whole second at which a wait is over; "longer than" begins after the limit."""
    pending = [since_s for name, since_s in seen.unschedulable.items() if name not in state.replaced]
    if state.probing_since_s is not None:
        pending.append(state.probing_since_s)
    ends = [math.floor(since_s + policy.fallback_after_s) + 1.0 for since_s in pending]
    if state.probe_at_s is not None:
        ends.append(state.probe_at_s)
    return min((end for end in ends if end > now_s), default=None)


def _check(state: FallbackState, seen: SpotSeen, policy: FallbackPolicy) -> None:
    span("$.policy.fallback_after_s", whole("$.policy.fallback_after_s", policy.fallback_after_s))
    span("$.policy.probe_after_s", whole("$.policy.probe_after_s", policy.probe_after_s, least=1))
    most = whole("$.policy.probe_after_max_s", policy.probe_after_max_s, least=policy.probe_after_s)
    span("$.policy.probe_after_max_s", most)
    whole("$.state.substitutes", state.substitutes)
    whole("$.state.failures", state.failures)
    whole("$.seen.wanted", seen.wanted)
    for name, since_s in seen.unschedulable.items():
        instant(f"$.seen.unschedulable[{name!r}]", since_s)
