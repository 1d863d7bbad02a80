"""The values of the five documents: what people want (spec) and what Poise knows (status), one file a kind."""

from __future__ import annotations

from poise.model.capacity_split import CapacitySplit, Pool, Ramp, RampRecord, SplitCounts, SplitWorkload, StartedAction
from poise.model.common import API_VERSION, Budget, Guards, LabelSelector, Metadata, MoveGuards, Window
from poise.model.partition_set import Node, PartitionRow, PartitionSet
from poise.model.replica_division import Cluster, DividedWorkload, DivisionRecord, ReplicaDivision
from poise.model.shard_ring import GroupResource, Instance, KeySource, RingResource, ShardRing
from poise.model.target_pool import Delivery, Endpoint, Pods, PoolMember, Target, TargetPool, Targets

Document = TargetPool | PartitionSet | ShardRing | ReplicaDivision | CapacitySplit

KINDS: dict[str, type[Document]] = {
    "TargetPool": TargetPool,
    "PartitionSet": PartitionSet,
    "ShardRing": ShardRing,
    "ReplicaDivision": ReplicaDivision,
    "CapacitySplit": CapacitySplit,
}

__all__ = [
    "API_VERSION",
    "KINDS",
    "Budget",
    "CapacitySplit",
    "Cluster",
    "Delivery",
    "DividedWorkload",
    "DivisionRecord",
    "Document",
    "Endpoint",
    "GroupResource",
    "Guards",
    "Instance",
    "KeySource",
    "LabelSelector",
    "Metadata",
    "MoveGuards",
    "Node",
    "PartitionRow",
    "PartitionSet",
    "Pods",
    "Pool",
    "PoolMember",
    "Ramp",
    "RampRecord",
    "ReplicaDivision",
    "RingResource",
    "ShardRing",
    "SplitCounts",
    "SplitWorkload",
    "StartedAction",
    "Target",
    "TargetPool",
    "Targets",
    "Window",
]
