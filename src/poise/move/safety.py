"""Is it safe to take this pod away now? The order of safety, for the actions that end a pod."""

from __future__ import annotations

from typing import Literal

import msgspec

from poise.inputs import whole
from poise.instants import first_second, instant, span
from poise.move.refusal import Code, Refusal

_LOWERS_ON_DEMAND = ("migrate-to-spot", "scale-down-on-demand")


class DisruptionBudget(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of a PodDisruptionBudget that matches the pod."""

    name: str
    disruptions_allowed: int
    current_healthy: int
    desired_healthy: int
    unhealthy_pod_eviction_policy: Literal["IfHealthyBudget", "AlwaysAllow"] = "IfHealthyBudget"


class SafetyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of the workload and of the pod that the action would end; counts of Ready replicas, not of pods.

    `failed_s` and `backoff_s` tell of the last attempt on that side, if it failed.
    """

    now_s: float
    total: int
    ready: int
    ready_on_demand: int
    min_on_demand: int
    pod_ready: bool = True
    disruption_budgets: list[DisruptionBudget] = msgspec.field(default_factory=list)
    failed_s: float | None = None
    backoff_s: float = 0


def judge_safety(action: str, facts: SafetyFacts) -> Refusal | None:
    """Refuse an action that is not safe: never on-demand below its minimum, counted in Ready pods, and no migration
    unless all is Ready, the disruption budgets allow it, and no attempt on that side failed within its back-off.
    """
    _check(facts)
    judgements = [_judge_minimum(facts)] if action in _LOWERS_ON_DEMAND else []
    if action.startswith("migrate-"):
        judgements += [
            _judge_ready(facts),
            judge_eviction(facts.disruption_budgets, pod_ready=facts.pod_ready),
            _judge_backoff(facts),
        ]
    return next((refusal for refusal in judgements if refusal is not None), None)


def judge_eviction(budgets: list[DisruptionBudget], *, pod_ready: bool) -> Refusal | None:
    """Ask the disruption budgets that match a pod, as Kubernetes does; two that match one pod refuse every eviction."""
    if len(budgets) > 1:
        names = ", ".join(sorted(budget.name for budget in budgets))
        reason = f"{len(budgets)} disruption budgets match one pod ({names}): Kubernetes refuses its eviction"
        return Refusal(Code.DISRUPTION_BUDGET, None, reason)
    for budget in budgets:
        if not (_allows_ready(budget) if pod_ready else _allows_unready(budget)):
            state = f"{budget.current_healthy} healthy of {budget.desired_healthy} wanted"
            return Refusal(Code.DISRUPTION_BUDGET, None, f"disruption budget {budget.name} allows none now: {state}")
    return None


def _allows_ready(budget: DisruptionBudget) -> bool:
    return budget.disruptions_allowed > 0


def _allows_unready(budget: DisruptionBudget) -> bool:
    """Judge a pod that is not Ready by the policy for such pods: taking it away costs no healthy one."""
    if budget.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return budget.current_healthy >= max(1, budget.desired_healthy)


def _judge_minimum(facts: SafetyFacts) -> Refusal | None:
    least = min(facts.min_on_demand, facts.total)
    if facts.ready_on_demand - facts.pod_ready >= least:
        return None
    reason = f"{facts.ready_on_demand} Ready on on-demand, and the minimum is {least}"
    return Refusal(Code.MINIMUM, None, reason)


def _judge_ready(facts: SafetyFacts) -> Refusal | None:
    if facts.ready >= facts.total:
        return None
    return Refusal(
        Code.NOT_READY, None, f"{facts.ready} of {facts.total} replicas are Ready: no migration before all are"
    )


def _judge_backoff(facts: SafetyFacts) -> Refusal | None:
    if facts.failed_s is None or facts.now_s >= facts.failed_s + facts.backoff_s:
        return None
    reason = f"the last attempt on this side failed, back-off of {facts.backoff_s:g} s"
    return Refusal(Code.BACKOFF, first_second(facts.failed_s + facts.backoff_s), reason)


def _check(facts: SafetyFacts) -> None:
    instant("$.now_s", facts.now_s)
    for field in ("total", "ready", "ready_on_demand", "min_on_demand"):
        whole(f"$.{field}", getattr(facts, field))
    span("$.backoff_s", facts.backoff_s)
    if facts.failed_s is not None:
        instant("$.failed_s", facts.failed_s)
