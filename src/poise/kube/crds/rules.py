"""The rules of the documents that the API server itself can check, in CEL, each beside the Struct it judges.

They say what `poise.documents.rules` says, with the same result for every document; a test holds both side by side.
Names that must be unique are the keys of their lists, which costs nothing to check.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from poise.kube.crds.status import Condition
from poise.model import (
    Cluster,
    DividedWorkload,
    Endpoint,
    GroupResource,
    Instance,
    Node,
    PartitionRow,
    Pods,
    Pool,
    PoolMember,
    Ramp,
    RingResource,
    ShardRing,
    SplitCounts,
    SplitWorkload,
    Target,
    Targets,
    Window,
)
from poise.model.capacity_split import CapacitySplitSpec
from poise.model.partition_set import PartitionSetSpec
from poise.model.replica_division import ReplicaDivisionSpec
from poise.model.shard_ring import ShardRingSpec
from poise.model.target_pool import TargetPoolSpec


class Rule(NamedTuple):
    """What must hold, and what people read where it does not."""

    says: str
    message: str


# What an entry of a list is known by: no two entries have the same.
LIST_KEYS: dict[type, tuple[str, ...]] = {
    Condition: ("type",),
    **dict.fromkeys((Endpoint, Target, PoolMember, Node, Instance, Cluster), ("name",)),
    **dict.fromkeys((DividedWorkload, SplitWorkload, Pool), ("name",)),
    **dict.fromkeys((GroupResource, RingResource), ("group", "resource")),
    PartitionRow: ("id",),
}
SET_LISTS = {(ShardRingSpec, "objects")}


def given(field: str) -> str:
    """Say that a field is there and not null."""
    return f"has(self.{field})"


def exactly_one(*fields: str) -> Rule:
    """Say that one of several sources is given, and no other."""
    count = " + ".join(f"({given(field)} ? 1 : 0)" for field in fields)
    return Rule(f"{count} == 1", f"expected exactly one of {', '.join(fields)}")


def at_most(low: str, high: str) -> Rule:
    """Say that one field does not exceed another, where both are given."""
    return Rule(f"!{given(low)} || !{given(high)} || self.{low} <= self.{high}", f"{low}: expected at most the {high}")


MOMENT = Rule(
    "self >= timestamp('1970-01-01T00:00:00Z') && self < timestamp('9000-01-01T00:00:00Z')",
    "expected a time from 1970 to 8999",
)
_LABEL = Rule("self.name.size() <= 63", "name: expected at most 63 characters")

RULES: dict[type[msgspec.Struct], tuple[Rule, ...]] = {
    Pods: (exactly_one("endpoints", "statefulSet", "selector"),),
    Targets: (exactly_one("list", "file", "http", "configMap"),),
    TargetPoolSpec: (
        Rule(
            "self.policy != 'hashed' || !has(self.pods.endpoints) || self.pods.endpoints.all(each, !has(each.weight))",
            "pods.endpoints: policy hashed has no weights; use sticky",
        ),
        Rule(
            "!has(self.delivery) || self.delivery.kind == 'pull' || !has(self.pods.endpoints)"
            " || self.pods.endpoints.all(each, has(each.url))",
            "pods.endpoints: url is required: the delivery sends to it",
        ),
    ),
    PartitionSetSpec: (
        Rule("self.marginSeconds < self.leaseSeconds", "marginSeconds: expected less than the leaseSeconds"),
        Rule(
            "self.stopSeconds <= self.marginSeconds + self.graceSeconds",
            "stopSeconds: expected at most marginSeconds + graceSeconds: two could act at once",
        ),
    ),
    PartitionRow: (
        Rule(
            "(!has(self.state) || self.state == 'Unassigned') != has(self.owner)",
            "owner: expected exactly where the state is not Unassigned",
        ),
    ),
    ShardRing: (Rule("self.metadata.name.size() <= 63", "metadata.name: expected at most 63 characters"),),
    Instance: (_LABEL,),
    Cluster: (at_most("min", "max"), at_most("min", "capacity")),
    ReplicaDivisionSpec: (
        Rule(
            "self.strategy != 'DynamicWeight' || self.clusters.all(each, has(each.capacity))",
            "clusters: capacity is required: DynamicWeight divides by it",
        ),
        Rule("self.draw != 'weighted' || self.mix == 0.0", "mix: expected 0: only the exact draw mixes capacities in"),
        Rule(
            "!has(self.workloadSelector) || !has(self.workloads) || self.workloads.size() == 0",
            "expected either workloads or workloadSelector",
        ),
    ),
    Pool: (at_most("min", "max"),),
    Ramp: (
        Rule(
            "(has(self.low) ? self.low : 0.75) <= (has(self.high) ? self.high : 0.9)",
            "low: expected at most the high",
        ),
    ),
    CapacitySplitSpec: (
        Rule(
            "!has(self.pools) || self.pools.size() == 0 || !has(self.workloads)"
            " || self.workloads.all(each, !has(each.spotPercentage) && !has(each.minOnDemand))",
            "workloads: pools take the place of spotPercentage and minOnDemand: remove one of them",
        ),
        Rule(
            "(has(self.pools) && self.pools.size() > 0) || !has(self.workloads)"
            " || self.workloads.all(each, has(each.spotPercentage))",
            "workloads: spotPercentage is required: there are no pools",
        ),
        Rule(
            "!has(self.pools) || self.pools.size() == 0 || !has(self.ramp) || !("
            + " || ".join(f"has(self.ramp.{field.encode_name})" for field in msgspec.structs.fields(Ramp))
            + ")",
            "ramp: a ramp raises spotPercentage, and pools take its place: remove one of them",
        ),
    ),
    Window: (
        Rule(
            r"self.schedule.matches('^\\s*\\S+(\\s+\\S+){4}\\s*$')",
            "schedule: expected 5 fields (minute hour day month weekday)",
        ),
        Rule(
            r"self.duration.matches('^([0-9]{1,9}([.][0-9]{1,9})?[hms]){1,20}$')",
            "duration: expected a duration such as '2h30m'",
        ),
    ),
    SplitCounts: (
        Rule(
            "!has(self.readyOnDemand) || self.readyOnDemand <= (has(self.onDemand) ? self.onDemand : 0)",
            "readyOnDemand: expected at most the onDemand",
        ),
    ),
}
