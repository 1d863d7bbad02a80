"""CapacitySplit documents: ramp, pools, fallback and guards decide together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from poise.documents import load
from poise.errors import InvalidSpec
from poise.jobs import explain_document, plan_document
from poise.jobs.entries import CapacityEntry, Counts, SplitEntry, Told
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
