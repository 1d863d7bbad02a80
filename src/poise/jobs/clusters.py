"""ReplicaDivision: replicas of workloads over member clusters, by weight."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypedDict

import msgspec

from poise.decide.divide import replay
from poise.decide.division import Division, Record
from poise.decide.division_explain import explain_division, tell_decision
from poise.decide.fleet import Total, divide_fleet, fleet_totals, plan_repair
from poise.decide.fleet_check import check_fleet
from poise.errors import Fault, InvalidSpec
from poise.jobs.entries import DividedEntry, DivisionEntry, Planned, Told, TotalEntry
from poise.jobs.what_if import WhatIf, check_members, check_workloads, refuse
from poise.model import DivisionRecord, ReplicaDivision
from poise.model.replica_division import Cluster


def imagine(document: ReplicaDivision, what_if: WhatIf) -> ReplicaDivision:
    """Give the document of a what-if; a drained cluster is one that is out of the division."""
    spec = document.spec
    refuse(what_if, ["undrain"], "a cluster that is out of a division is not drained: it is added again")
    check_members(what_if, [cluster.name for cluster in spec.clusters], "cluster")
    check_workloads(what_if, [workload.name for workload in spec.workloads])
    if spec.strategy == "DynamicWeight":
        refuse(what_if, ["weights"], "DynamicWeight divides by capacity and knows no weights")
        refuse(what_if, ["add"], "a new cluster has no capacity, so DynamicWeight would give it nothing")
    out = {*what_if.remove, *what_if.drain}
    clusters = [
        msgspec.structs.replace(cluster, weight=what_if.weights.get(cluster.name, cluster.weight))
        for cluster in [*spec.clusters, *(Cluster(name=name) for name in what_if.add)]
        if cluster.name not in out
    ]
    workloads = [
        msgspec.structs.replace(workload, replicas=what_if.replicas.get(workload.name, workload.replicas))
        for workload in spec.workloads
    ]
    changed = msgspec.structs.replace(spec, clusters=clusters, workloads=workloads)
    return msgspec.structs.replace(document, spec=changed)


def plan_clusters(document: ReplicaDivision) -> Planned:
    """Divide every workload; show the totals against their exact shares, and what a repair would do."""
    divisions = divide_document(document)
    nothing = {cluster.name: Total(0, Fraction(0)) for cluster in document.spec.clusters}
    totals = nothing | fleet_totals(divisions)
    entry = DivisionEntry(
        kind=document.kind,
        name=document.metadata.name,
        divisions={name: _entry(division) for name, division in divisions.items()},
        totals={name: TotalEntry(total.replicas, str(total.exact)) for name, total in sorted(totals.items())},
    )
    asked = _Asked(document)
    faults = check_fleet(divisions, asked.workloads, asked.weights, **asked.terms)
    before = document.status.divisions
    pending = any(name not in before or before[name].result != each.replicas for name, each in divisions.items())
    return Planned(entry, faults, pending, notes=_repair_note(document, divisions, totals))


def explain_clusters(document: ReplicaDivision, workload: str) -> Told:
    """Explain how one workload is divided."""
    divisions = divide_document(document)
    if workload not in divisions:
        listed = ", ".join(sorted(divisions)[:8]) or "none"
        raise InvalidSpec(Fault("", f"no workload {workload!r} in {document.metadata.name}; there are {listed}"))
    division = divisions[workload]
    lines = explain_division(division)
    if (most := document.spec.moves_max) and document.spec.strategy != "Duplicated":
        lines.append(f"A repair of the totals may move one replica of it even so: movesMax is {most}.")
    return Told(workload, lines + (_last_decision(document.status.divisions[workload]) if division.kept else []))


def _last_decision(recorded: DivisionRecord) -> list[str]:
    """Tell from a complete record who had won the extra, and by what chance; a shorter record knows of no draw."""
    parts = (recorded.quotas, recorded.seed, recorded.kept, recorded.reason)
    if not recorded.draws or any(part is None for part in parts):
        return []
    record = msgspec.convert(recorded, Record, from_attributes=True)
    try:
        sound = replay(record).record == record
    except InvalidSpec:
        sound = False
    if not sound:
        return ["The record of the last decision is not told: a replay does not give the same."]
    first, *others = tell_decision(record)
    return [f"When it was last decided: {first}", *(f"Then {sentence}" for sentence in others)]


class _Terms(TypedDict):
    """The keyword arguments that planner and checker share."""

    last: dict[str, dict[str, int] | None]
    moves_max: int
    minimum: dict[str, int]
    maximum: dict[str, int]
    capacity: dict[str, int]
    strategy: str
    seed: str
    draw: str
    mix: float
    fair: str


class _Asked:
    """The request of a document in the words of the planner."""

    def __init__(self, document: ReplicaDivision) -> None:
        """Read the request; a last result of another strategy is no last result."""
        spec, clusters = document.spec, document.spec.clusters
        self.workloads = {workload.name: workload.replicas for workload in spec.workloads}
        self.weights = {cluster.name: cluster.weight for cluster in clusters}
        self.terms = _Terms(
            last={
                name: dict(record.result)
                for name, record in document.status.divisions.items()
                if record.strategy == spec.strategy and name in self.workloads
            },
            moves_max=spec.moves_max,
            minimum={cluster.name: cluster.min for cluster in clusters},
            maximum={cluster.name: cluster.max for cluster in clusters if cluster.max is not None},
            capacity={cluster.name: cluster.capacity for cluster in clusters if cluster.capacity is not None},
            strategy=spec.strategy,
            seed=spec.seed,
            draw=spec.draw,
            mix=spec.mix,
            fair=spec.fair,
        )


def divide_document(document: ReplicaDivision) -> dict[str, Division]:
    asked = _Asked(document)
    return divide_fleet(asked.workloads, asked.weights, **asked.terms)


def _entry(division: Division) -> DividedEntry:
    return DividedEntry(
        replicas=division.replicas,
        quota={cluster: str(quota) for cluster, quota in division.quota.items()},
        kept=division.kept,
        moved=division.moved,
        reason=division.reason,
        unplaced=division.unplaced,
    )


def _repair_note(document: ReplicaDivision, divisions: dict[str, Division], totals: Mapping[str, Total]) -> list[str]:
    """Say what a repair of the drift would do, beyond what movesMax let this plan do."""
    if document.spec.fair != "fleet":
        return []
    repair = plan_repair(divisions, len(divisions))
    if not repair.steps:
        return []
    change = f"from {_largest_error(totals)} to {_largest_error(repair.after)}"
    moves = f"{len(repair.steps)} move{'' if len(repair.steps) == 1 else 's'}"
    would = f"a repair of {moves} would bring the largest error of a total {change}"
    return [f"{would} (movesMax is {document.spec.moves_max})"]


def _largest_error(totals: Mapping[str, Total]) -> Fraction:
    return max((abs(total.replicas - total.exact) for total in totals.values()), default=Fraction(0))
