"""Planning and explaining a document of any kind, offline: as it is, or as a what-if. Nothing is changed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from poise.decide.explain import Explanation
from poise.jobs import capacity, clusters, partitions, shards, targets
from poise.jobs.entries import Planned, Told
from poise.jobs.items import ItemFacts, explain_items, imagine, plan_items
from poise.jobs.waiting import Gate
from poise.jobs.what_if import WhatIf
from poise.model import CapacitySplit, Document, PartitionSet, ReplicaDivision, ShardRing, TargetPool


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
            return clusters.plan_clusters(clusters.imagine(document, what_if) if what_if else document)
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
