"""CapacitySplit documents: ramp, pools, fallback and guards decide together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from poise.cli.render import render
from poise.documents import load
from poise.errors import InvalidSpec
from poise.jobs.entries import CapacityEntry, Counts, SplitEntry, Told
from poise.jobs.planning import explain_document, plan_document
from poise.jobs.what_if import WhatIf
from poise.model import CapacitySplit

NOW = datetime(2026, 11, 15, 3, 0, tzinfo=UTC)


def document(spec: str, status: str = "{}") -> CapacitySplit:
    [made] = load(f"{{kind: CapacitySplit, metadata: {{name: x}}, spec: {spec}, status: {status}}}", "test")
    assert isinstance(made, CapacitySplit)
    return made


def entry(made: CapacitySplit, now: datetime = NOW, what_if: WhatIf | None = None) -> SplitEntry:
    planned = plan_document(made, now, what_if)
    assert planned.faults == []
    assert isinstance(planned.entry, CapacityEntry)
    return planned.entry.workloads["api"]


API = "{workloads: [{name: api, replicas: 10, spotPercentage: 80, minOnDemand: 1}]"


def seen(text: str) -> str:
    return f"{{workloads: {{api: {text}}}}}"


def test_without_a_status_everything_is_still_to_start() -> None:
    made = entry(document(API + "}"))
    assert (made.action, made.steps, made.waits) == ("scale-up-on-demand", 10, None)


def test_a_ramp_starts_low_and_says_when_it_may_grow() -> None:
    made = entry(document(API + ", ramp: {initial: 10}}", seen("{onDemand: 10}")))
    assert made.desired == Counts(spot=1, on_demand=9)
    assert made.reason.startswith("ramp at 10% of 80%, may grow at 03:10:00Z")


def test_a_ramp_goes_on_from_its_record() -> None:
    record = (
        "{percent: 10, startedAt: '2026-11-15T02:00:00Z', asOf: '2026-11-15T02:00:00Z', "
        "eventAt: '2026-11-15T02:00:00Z', spotPods: 5}"
    )
    status = seen(f"{{spot: 5, onDemand: 5, ramp: {record}}}")
    made = entry(document(API + ", ramp: {initial: 10}}", status), NOW)
    assert made.desired == Counts(spot=7, on_demand=3), "six intervals of ten minutes: 70 percent"


def test_pools_are_filled_in_the_order_of_their_list() -> None:
    pools = "[{name: on, weight: 2, min: 2}, {name: a, weight: 5}, {name: b, weight: 3}]"
    spec = f"{{workloads: [{{name: api, replicas: 10}}], pools: {pools}}}"
    made = entry(document(spec, seen("{pools: {on: 2, a: 4, b: 3}}")))
    assert made.desired.pools == {"on": 2, "a": 5, "b": 3}
    assert (made.action, made.steps) == ("scale-up-a", 1)


def test_a_pool_that_is_down_gives_its_share_away_and_comes_back_when_stable() -> None:
    spec = "{workloads: [{name: api, replicas: 10}], pools: [{name: on}, {name: a}]}"
    status = "{pools: {a: {up: false, since: '2026-11-15T02:00:00Z'}}}"
    made = entry(document(spec, status))
    assert made.desired.pools == {"on": 10, "a": 0}
    assert made.reason == "a is down"
    back = "{pools: {a: {up: true, since: '2026-11-15T02:59:59Z'}}}"
    assert entry(document(spec, back)).desired.pools == {"on": 10, "a": 0}
    assert entry(document(spec, back), NOW + timedelta(hours=1)).desired.pools == {"on": 5, "a": 5}


def test_a_what_if_drains_adds_and_weighs_pools() -> None:
    made = document("{workloads: [{name: api, replicas: 12}], pools: [{name: on}, {name: a}]}")
    assert entry(made, what_if=WhatIf(drain=["a"])).desired.pools == {"on": 12, "a": 0}
    assert entry(made, what_if=WhatIf(add=["b"])).desired.pools == {"on": 4, "a": 4, "b": 4}
    assert entry(made, what_if=WhatIf(remove=["a"], replicas={"api": 3})).desired.pools == {"on": 3}
    assert entry(made, what_if=WhatIf(weights={"a": 3})).desired.pools == {"on": 3, "a": 9}
    with pytest.raises(InvalidSpec, match="this CapacitySplit has no pools"):
        entry(document(API + "}"), what_if=WhatIf(add=["b"]))


def test_substitutes_run_on_on_demand_until_spot_has_room() -> None:
    made = entry(document(API + "}", seen("{spot: 6, onDemand: 4, fallback: {substitutes: 2}}")))
    assert (made.desired, made.action) == (Counts(spot=6, on_demand=4), "none")


def test_a_cooldown_and_a_jump_of_the_total_hold_a_migration_back() -> None:
    cooling = entry(document(API + "}", seen("{spot: 5, onDemand: 5, lastActionAt: '2026-11-15T02:59:55Z'}")))
    assert cooling.waits is not None
    assert (cooling.waits.code, cooling.waits.until) == ("cooldown", NOW + timedelta(seconds=5))
    jumped = "{spot: 5, onDemand: 5, total: {replicas: 4, since: '2026-11-15T01:00:00Z'}}"
    held = entry(document(API + "}", seen(jumped)))
    assert held.waits is not None
    assert (held.waits.code, held.waits.until) == ("burst-hold", NOW + timedelta(seconds=60))


def test_actions_in_the_window_use_the_budget_up() -> None:
    spec = API + ", guards: {budgets: [{limit: 20%, windowSeconds: 600}]}}"
    status = seen("{spot: 5, onDemand: 5, actions: [{startedAt: '2026-11-15T02:55:00Z', count: 2}]}")
    made = entry(document(spec, status))
    assert made.waits is not None
    assert (made.waits.code, made.waits.until) == ("budget", NOW + timedelta(minutes=5))


def test_no_migration_while_a_replica_is_not_ready() -> None:
    made = entry(document(API + "}", seen("{spot: 5, onDemand: 5, readyOnDemand: 4}")))
    assert made.waits is not None
    assert made.waits.code == "not-ready"


def test_explanations_name_the_pool_and_the_term() -> None:
    pooled = document("{workloads: [{name: api, replicas: 12}], pools: [{name: on}, {name: a}]}")
    told = explain_document(pooled, "api", NOW)
    assert isinstance(told, Told)
    assert told.because[0].startswith("on: 6: its share is 6")


UNMET = "the minimum cannot be met: 3 for a minimum of 5 on on-demand"


@pytest.mark.parametrize(
    ("replicas", "minimum", "counts", "reason"),
    [
        (10, 1, "spot: 8, onDemand: 2", "as it should be: the percentage decides"),
        (10, 5, "spot: 5, onDemand: 5", "as it should be: the minimum on on-demand decides"),
        (0, 0, "spot: 0", "as it should be: there are no replicas"),
        (3, 5, "onDemand: 3", f"{UNMET}; all replicas are on on-demand"),
        (3, 5, "onDemand: 2", f"{UNMET}; the total is too low, and on-demand grows before spot"),
    ],
)
def test_each_term_has_its_phrase_and_an_unmet_minimum_comes_first(
    replicas: int, minimum: int, counts: str, reason: str
) -> None:
    workload = f"{{name: api, replicas: {replicas}, spotPercentage: 80, minOnDemand: {minimum}}}"
    assert entry(document(f"{{workloads: [{workload}]}}", seen(f"{{{counts}}}"))).reason == reason


CLOSED = "guards: {windows: [{schedule: '0 5 * * *', duration: 1h}]}"
POOLS = "{workloads: [{name: api, replicas: 6}], pools: [{name: on, min: 2}, {name: a}], " + CLOSED + "}"


def told(made: CapacitySplit) -> list[str]:
    explained = explain_document(made, "api", NOW)
    assert isinstance(explained, Told)
    return explained.because


def test_pools_explain_the_next_action_its_steps_and_what_it_waits_for() -> None:
    made = document(POOLS, seen("{pools: {on: 2, a: 4}}"))
    assert told(made)[2:] == [
        "Now on 2, a 4.",
        "Next: migrate-to-on: the total is right, and it is the first in the list that has too few.",
        "1 step to the goal.",
        "It waits until 2026-11-15T05:00:00Z (window): outside of its windows, next: 0 5 * * * UTC for 1h.",
    ]
    assert told(document(POOLS, seen("{pools: {on: 3, a: 3}}")))[2:] == [
        "Next: none: every pool has what it should have."
    ]


@pytest.mark.parametrize(
    ("pools", "action", "waits"),
    [
        ("{on: 1, a: 5}", "migrate-to-on", False),
        ("{on: 1, a: 3}", "scale-up-on", False),
        ("{on: 2, a: 4}", "migrate-to-on", True),
        ("{on: 3, a: 2}", "scale-up-a", True),
        ("{on: 1, a: 9}", "scale-down-a", True),
    ],
)
def test_restoring_the_minimum_of_a_pool_passes_windows(pools: str, action: str, waits: bool) -> None:
    made = entry(document(POOLS, seen(f"{{pools: {pools}}}")))
    assert (made.action, made.waits is not None) == (action, waits)


def test_a_pool_that_is_no_longer_listed_stays_visible_while_it_holds_replicas() -> None:
    made = document(POOLS, seen("{pools: {on: 3, a: 1, old: 2, empty: 0}}"))
    assert entry(made).current.pools == {"on": 3, "a": 1, "old": 2}
    assert entry(made).reason == "old is no longer listed"
    assert "old: 0: it is no longer listed." in told(made)
    assert "old 2->0" in render(plan_document(made, NOW), everything=False)
