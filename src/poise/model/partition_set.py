"""PartitionSet: numbered partitions of a task list, held by worker nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from poise.model.common import (
    ApiVersion,
    Count,
    Metadata,
    Moment,
    MoveGuards,
    Name,
    Seconds,
    Sentence,
    Serial,
    SomeSeconds,
    Value,
    Weight,
)

PARTITIONS_MAX = 100_000
PartitionId = Annotated[
    str, Meta(pattern=r"^(0|[1-9][0-9]{0,4})\Z", description='a number from "0" to "99999", as text')
]


class PartitionGuards(MoveGuards, frozen=True):
    """The guards of a set."""

    moves_in_flight_max: Count | None = 8
    per_source_max: Count | None = 4
    per_target_max: Count | None = 4


class PartitionSetSpec(Value, frozen=True, kw_only=True):
    """What people want of a set."""

    partitions: Annotated[int, Meta(ge=0, le=PARTITIONS_MAX)]
    lease_seconds: SomeSeconds = 10
    grace_seconds: Seconds = 2
    release_seconds: SomeSeconds = 30
    on_release_timeout: Literal["revoke", "wait"] = "revoke"
    margin_seconds: Seconds = 1
    stop_seconds: Seconds = 1
    restart_grace_seconds: Seconds = 0
    weights: dict[Name, Weight] = field(default_factory=dict)
    guards: PartitionGuards = field(default_factory=PartitionGuards)


class Node(Value, frozen=True):
    """One worker node as Poise last saw it; `weight` is what it says of itself."""

    name: Name
    state: Literal["active", "draining", "gone"] = "active"
    incarnation: Serial = 0
    weight: Weight = 1


# There are thousands of these, and none can lead back to itself: the collector of cycles need not look at them.
class PartitionRow(Value, frozen=True, gc=False):
    """One partition as the store has it; `target` is whom it is reserved for, `offers` what nodes did not confirm."""

    id: PartitionId
    state: Literal["Unassigned", "Assigned", "RequestedRelease", "PendingRelease"] = "Unassigned"
    owner: Name | None = None
    target: Name | None = None
    epoch: Serial = 0
    confirmed: bool = False
    owner_incarnation: Serial | None = None
    lease_until: Moment | None = None
    deadline: Moment | None = None
    since: Moment | None = None
    offers: dict[Name, Count] = field(default_factory=dict)
    reason: Sentence = ""


class PartitionSetStatus(Value, frozen=True):
    """What Poise knows of a set."""

    nodes: list[Node] = field(default_factory=list)
    partitions: list[PartitionRow] = field(default_factory=list)


class PartitionSet(Value, frozen=True, kw_only=True):
    """Shares partitions out over worker nodes."""

    api_version: ApiVersion = "poise.dev/v1alpha1"
    kind: Literal["PartitionSet"] = "PartitionSet"
    metadata: Metadata
    spec: PartitionSetSpec
    status: PartitionSetStatus = field(default_factory=PartitionSetStatus)
