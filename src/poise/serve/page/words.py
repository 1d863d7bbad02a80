"""What the items and the members of each kind are called."""

from __future__ import annotations

ITEMS = {
    "TargetPool": "target",
    "PartitionSet": "partition",
    "ShardRing": "object",
    "ReplicaDivision": "workload",
    "CapacitySplit": "workload",
}
MEMBERS = {
    "TargetPool": "pod",
    "PartitionSet": "worker",
    "ShardRing": "instance",
    "ReplicaDivision": "cluster",
    "CapacitySplit": "pool",
}
# One sentence about each kind, for people who meet it for the first time.
ABOUT = {
    "TargetPool": "telemetry targets on collector pods",
    "PartitionSet": "numbered partitions on workers",
    "ShardRing": "objects on the instances of one controller",
    "ReplicaDivision": "replicas over clusters, by weight",
    "CapacitySplit": "replicas over spot and on-demand",
}
# How a report names a side, and how people do.
_SIDES = {"onDemand": "on-demand"}
# What the picture of each kind shows.
PICTURES = {
    "TargetPool": "Who collects what",
    "PartitionSet": "Who holds what",
    "ShardRing": "Who holds what",
    "ReplicaDivision": "Replicas against their exact share",
    "CapacitySplit": "What runs where, and what comes next",
}


def side_name(place: str) -> str:
    """Name a place of replicas as people do."""
    return _SIDES.get(place, place)
