"""The rules that reach across fields, one function a kind; each notes every rule that a document breaks."""

from __future__ import annotations

from poise.documents.faults import Faults
from poise.documents.rules.counts import capacity_split, replica_division
from poise.documents.rules.items import partition_set, shard_ring, target_pool
from poise.model import CapacitySplit, Document, PartitionSet, ReplicaDivision, ShardRing, TargetPool


def check_rules(document: Document, faults: Faults) -> None:
    """Judge a document whose structure is known."""
    match document:
        case TargetPool():
            target_pool(document, faults)
        case PartitionSet():
            partition_set(document, faults)
        case ShardRing():
            shard_ring(document, faults)
        case ReplicaDivision():
            replica_division(document, faults)
        case CapacitySplit():
            capacity_split(document, faults)
