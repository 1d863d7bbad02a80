"""The rules of the kinds that only count: ReplicaDivision and CapacitySplit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from poise.documents.faults import Faults, at_key
from poise.documents.rules.guards import check_guards
from poise.documents.rules.shared import at_most, in_calendar, unique
from poise.model import CapacitySplit, Ramp, ReplicaDivision, SplitCounts

_LOW, _HIGH = 0.75, 0.9  # The defaults of a ramp, for one that names only one of the two.


def replica_division(division: ReplicaDivision, faults: Faults) -> None:
    """Bounds that leave room; capacities where the strategy divides by them; one source of workloads."""
    spec = division.spec
    unique("$.spec.clusters", [cluster.name for cluster in spec.clusters], faults)
    unique("$.spec.workloads", [workload.name for workload in spec.workloads], faults)
    for place, cluster in enumerate(spec.clusters):
        path = f"$.spec.clusters[{place}]"
        at_most(path, "min", "max", (cluster.min, cluster.max), faults)
        at_most(path, "min", "capacity", (cluster.min, cluster.capacity), faults)
        if spec.strategy == "DynamicWeight" and cluster.capacity is None:
            message = "required field is missing: DynamicWeight divides by capacity"
            faults.rule(f"{path}.capacity", message, "$.spec.strategy")
    if spec.mix and spec.draw == "weighted":
        faults.rule("$.spec.mix", "expected 0: only the exact draw mixes capacities in", "$.spec.draw")
    if spec.workloads and spec.workload_selector is not None:
        faults.rule("$.spec.workloadSelector", "expected either workloads or workloadSelector, got both")


def capacity_split(split: CapacitySplit, faults: Faults) -> None:
    """Either a percentage a workload or pools; a ramp that can rise; counts that agree."""
    spec = split.spec
    unique("$.spec.workloads", [workload.name for workload in spec.workloads], faults)
    unique("$.spec.pools", [pool.name for pool in spec.pools], faults)
    _percentages(split, faults)
    for place, pool in enumerate(spec.pools):
        at_most(f"$.spec.pools[{place}]", "min", "max", (pool.min, pool.max), faults)
    _ramp(spec.ramp, with_pools=bool(spec.pools), faults=faults)
    check_guards(spec.guards, faults)
    pools = split.status.pools.items()
    in_calendar(((f"{at_key('$.status.pools', name)}.since", pool.since) for name, pool in pools), faults)
    for name, seen in split.status.workloads.items():
        _counts(at_key("$.status.workloads", name), seen, faults)


def _percentages(split: CapacitySplit, faults: Faults) -> None:
    for place, workload in enumerate(split.spec.workloads):
        path = f"$.spec.workloads[{place}]"
        given = {"spotPercentage": workload.spot_percentage, "minOnDemand": workload.min_on_demand}
        if split.spec.pools:
            for field, value in given.items():
                if value is not None:
                    faults.rule(f"{path}.{field}", "pools take its place: remove one of them")
        elif workload.spot_percentage is None:
            faults.rule(f"{path}.spotPercentage", "required field is missing: there are no pools", "$.spec.pools")


def _ramp(ramp: Ramp, *, with_pools: bool, faults: Faults) -> None:
    if with_pools and ramp != Ramp():
        faults.rule("$.spec.ramp", "a ramp raises spotPercentage, and pools take its place: remove one of them")
    low = _LOW if ramp.low is None else ramp.low
    high = _HIGH if ramp.high is None else ramp.high
    at_most("$.spec.ramp", "low", "high", (low, high), faults)


def _counts(path: str, seen: SplitCounts, faults: Faults) -> None:
    if seen.ready_on_demand is not None:
        at_most(path, "readyOnDemand", "onDemand", (seen.ready_on_demand, seen.on_demand), faults)
    in_calendar(_moments(path, seen), faults)


def _moments(path: str, seen: SplitCounts) -> Iterator[tuple[str, datetime | None]]:
    yield f"{path}.lastActionAt", seen.last_action_at
    for place, action in enumerate(seen.actions):
        yield f"{path}.actions[{place}].startedAt", action.started_at
    if seen.total is not None:
        yield f"{path}.total.since", seen.total.since
    if seen.ramp is not None:
        yield f"{path}.ramp.startedAt", seen.ramp.started_at
        yield f"{path}.ramp.asOf", seen.ramp.as_of
        yield f"{path}.ramp.eventAt", seen.ramp.event_at
    if seen.fallback is not None:
        yield f"{path}.fallback.probeAt", seen.fallback.probe_at
        yield f"{path}.fallback.probingSince", seen.fallback.probing_since
