"""The order of safety: what may end a pod, and what may not."""

from __future__ import annotations

import msgspec
import pytest

from poise.errors import InvalidSpec
from poise.move.safety import DisruptionBudget, SafetyFacts, judge_eviction, judge_safety

SAFE = SafetyFacts(now_s=1000, total=10, ready=10, ready_on_demand=4, min_on_demand=3)
CLOSED = DisruptionBudget(name="api", disruptions_allowed=0, current_healthy=9, desired_healthy=9)
OPEN = msgspec.structs.replace(CLOSED, disruptions_allowed=1)


def code(action: str, **changes: object) -> str | None:
    refusal = judge_safety(action, msgspec.structs.replace(SAFE, **changes))
    return None if refusal is None else str(refusal.code)


def test_a_ready_workload_with_room_is_safe() -> None:
    assert code("migrate-to-spot") is None
    assert code("migrate-to-on-demand", disruption_budgets=[OPEN]) is None


@pytest.mark.parametrize("action", ["migrate-to-spot", "scale-down-on-demand"])
def test_on_demand_never_falls_below_its_minimum_in_ready_pods(action: str) -> None:
    assert code(action, ready_on_demand=3) == "minimum"
    assert code(action, ready_on_demand=4) is None
    # A pod that is not Ready takes no Ready one away, and two replicas cannot keep three.
    assert code("scale-down-on-demand", ready_on_demand=3, pod_ready=False) is None
    assert code("scale-down-on-demand", total=2, ready_on_demand=3) is None
    assert code("scale-down-on-demand", total=2, ready_on_demand=2) == "minimum"


def test_spot_may_always_shrink() -> None:
    assert code("scale-down-spot", ready=1, ready_on_demand=0, disruption_budgets=[CLOSED]) is None


def test_no_migration_before_all_are_ready() -> None:
    assert code("migrate-to-spot", ready=9) == "not-ready"
    assert code("scale-down-on-demand", ready=9) is None


def test_a_disruption_budget_must_allow_it() -> None:
    assert code("migrate-to-spot", disruption_budgets=[CLOSED]) == "disruption-budget"
    assert code("migrate-to-spot", disruption_budgets=[OPEN]) is None


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "allowed"),
    [
        ("IfHealthyBudget", 9, 9, True),
        ("IfHealthyBudget", 8, 9, False),
        ("IfHealthyBudget", 0, 0, False),
        ("IfHealthyBudget", 1, 0, True),
        ("AlwaysAllow", 0, 9, True),
    ],
)
def test_a_pod_that_is_not_ready_is_judged_by_its_policy(
    policy: str, healthy: int, desired: int, allowed: bool
) -> None:
    for disruptions_allowed in (0, 5):
        budget = msgspec.structs.replace(
            CLOSED,
            disruptions_allowed=disruptions_allowed,
            current_healthy=healthy,
            desired_healthy=desired,
            unhealthy_pod_eviction_policy=policy,
        )
        assert (judge_eviction([budget], pod_ready=False) is None) is allowed


def test_two_budgets_that_match_one_pod_are_explained() -> None:
    refusal = judge_eviction([OPEN, msgspec.structs.replace(OPEN, name="all")], pod_ready=True)
    assert refusal is not None
    assert refusal.reason == "2 disruption budgets match one pod (all, api): Kubernetes refuses its eviction"
    assert refusal.until is None


def test_no_second_attempt_within_the_back_off_of_a_failed_one() -> None:
    refusal = judge_safety("migrate-to-spot", msgspec.structs.replace(SAFE, failed_s=990, backoff_s=30))
    assert refusal is not None
    assert (refusal.code, str(refusal.until)) == ("back-off", "1970-01-01 00:17:00+00:00")
    assert code("migrate-to-spot", failed_s=970, backoff_s=30) is None


@pytest.mark.parametrize(
    "field", ["now_s", "total", "ready", "ready_on_demand", "min_on_demand", "failed_s", "backoff_s"]
)
def test_faulty_facts_are_refused_with_their_path(field: str) -> None:
    with pytest.raises(InvalidSpec, match=rf"^\$\.{field}: expected >= 0, got -1$"):
        code("migrate-to-spot", **{field: -1})
