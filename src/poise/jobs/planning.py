"""Planning and explaining a document of any kind, offline: as it is, or as a what-if. Nothing is changed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from fractions import Fraction

import msgspec

from poise.decide.explain import Explanation
from poise.jobs import capacity, clusters, partitions, shards, targets
from poise.jobs.entries import DivisionEntry, Planned, Told
from poise.jobs.items import ItemFacts, explain_items, imagine, plan_items
from poise.jobs.waiting import Gate
from poise.jobs.what_if import WhatIf
from poise.model import CapacitySplit, DivisionRecord, Document, PartitionSet, ReplicaDivision, ShardRing, TargetPool
from poise.model.replica_division import ReplicaDivisionStatus


def plan_document(
    document: Document, now: datetime, what_if: WhatIf | None = None, *, draining: Collection[str] = ()
) -> Planned:
    """Plan a document of any kind, as it is or as a what-if; nothing is changed.

    `draining` names members that are drained and of which the status does not say so: a ring's says nothing of drains.
    """
    now_s = now.timestamp()
    match document:
        case TargetPool() | ShardRing():
            return plan_items(_item_facts(document, what_if, draining), Gate(document.spec.guards, now_s))
        case PartitionSet():
            return partitions.plan_set(_set_facts(document, what_if), Gate(document.spec.guards, now_s))
        case ReplicaDivision():
            return _plan_cycles(clusters.imagine(document, what_if) if what_if else document)
        case CapacitySplit():
            return capacity.plan_capacity(capacity.imagine(document, what_if) if what_if else document, now_s)


def explain_document(
    document: Document,
    item: str,
    now: datetime,
    what_if: WhatIf | None = None,
    *,
    draining: Collection[str] = (),
) -> Explanation | Told:
    """Explain one item, partition or workload of a document of any kind."""
    now_s = now.timestamp()
    match document:
        case TargetPool() | ShardRing():
            return explain_items(_item_facts(document, what_if, draining), item)
        case PartitionSet():
            return partitions.explain_set(_set_facts(document, what_if), item, Gate(document.spec.guards, now_s))
        case ReplicaDivision():
            return clusters.explain_clusters(clusters.imagine(document, what_if) if what_if else document, item)
        case CapacitySplit():
            imagined = capacity.imagine(document, what_if) if what_if else document
            return capacity.explain_capacity(imagined, item, now_s)


def _item_facts(document: TargetPool | ShardRing, what_if: WhatIf | None, draining: Collection[str]) -> ItemFacts:
    known = targets.facts(document) if isinstance(document, TargetPool) else shards.facts(document)
    known = msgspec.structs.replace(known, draining=list(dict.fromkeys([*known.draining, *draining])))
    return imagine(known, what_if) if what_if else known


def _set_facts(document: PartitionSet, what_if: WhatIf | None) -> partitions.SetFacts:
    known = partitions.facts(document)
    return partitions.imagine(known, what_if) if what_if else known


def _plan_cycles(document: ReplicaDivision) -> Planned:
    """Plan the next cycle of a division; where movesMax leaves some of the repair to later ones, say what they do."""
    planned = clusters.plan_clusters(document)
    most = document.spec.moves_max
    if not most or not planned.pending:
        return planned
    entry, then = _division_of(planned), _division_of(clusters.plan_clusters(_carried_out(document, planned)))
    moved = sum(each.moved for each in then.divisions.values())
    if not moved:
        return msgspec.structs.replace(planned, notes=[])
    change = f"from {_mixed(_error_of(entry))} to {_mixed(_error_of(then))}"
    cycles = "in the next cycle" if moved <= most else f"in the next cycles, {most} at most in each"
    moves = f"{moved} move{'' if moved == 1 else 's'}"
    note = f"then a repair of {moves} brings the largest error of a total {change} {cycles} (movesMax is {most})"
    return msgspec.structs.replace(planned, notes=[note])


def _carried_out(document: ReplicaDivision, planned: Planned) -> ReplicaDivision:
    """Imagine that a plan was carried out, and that as many replicas may move as there are workloads."""
    spec = document.spec
    weights = {cluster.name: cluster.weight for cluster in spec.clusters}
    done = {
        name: DivisionRecord(sum(each.replicas.values()), weights, spec.strategy, dict(each.replicas))
        for name, each in _division_of(planned).divisions.items()
    }
    wide = msgspec.structs.replace(spec, moves_max=max(spec.moves_max, len(spec.workloads)))
    return msgspec.structs.replace(document, spec=wide, status=ReplicaDivisionStatus(done))


def _division_of(planned: Planned) -> DivisionEntry:
    assert isinstance(planned.entry, DivisionEntry), "a division is planned as one"
    return planned.entry


def _error_of(entry: DivisionEntry) -> Fraction:
    return max((abs(total.replicas - Fraction(total.exact)) for total in entry.totals.values()), default=Fraction(0))


def _mixed(number: Fraction) -> str:
    """Write a fraction as people read it: 36, 10 2/3."""
    whole, rest = divmod(number, 1)
    return f"{whole} {rest}" if whole and rest else str(rest or whole)
