"""ShardRing: Kubernetes objects (or any keys), held by the instances of one controller."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from poise.model.common import (
    ApiVersion,
    Count,
    ItemName,
    LabelSelector,
    Line,
    Metadata,
    MoveGuards,
    Name,
    Percent,
    Seconds,
    SomeSeconds,
    Tokens,
    Value,
)

JsonPath = Annotated[
    str, Meta(max_length=1024, pattern=r"^\{\.[\x21-\x7e]+\}\Z", description="a JSONPath such as {.spec.tenant}")
]


class GroupResource(Value, frozen=True, kw_only=True):
    """One resource of the Kubernetes API; the group of the core resources is empty."""

    group: Line = ""
    resource: Name


class RingResource(GroupResource, frozen=True):
    """One resource that a ring shares out, with the resources that its objects control."""

    controlled: list[GroupResource] = field(default_factory=list)


class KeySource(Value, frozen=True):
    """Where the key of an object is read: exactly one of the two."""

    label: ItemName | None = None
    json_path: JsonPath | None = None


class RingGuards(MoveGuards, frozen=True):
    """The guards of a ring."""

    moves_in_flight_max: Count | None = 100


class ShardRingSpec(Value, frozen=True, kw_only=True):
    """What people want of a ring."""

    policy: Literal["ring", "balanced"] = "ring"
    resources: list[RingResource] = field(default_factory=list)
    objects: list[ItemName] = field(default_factory=list)
    namespace_selector: LabelSelector = field(default_factory=LabelSelector)
    key: Literal["object", "namespace"] | KeySource = "object"
    tokens: Tokens = 100
    lease_seconds: SomeSeconds = 15
    drain_timeout_seconds: SomeSeconds = 60
    on_drain_timeout: Literal["wait", "force"] = "wait"
    restart_grace_seconds: Seconds = 0
    brake_percent: Percent = 50
    guards: RingGuards = field(default_factory=RingGuards)


class Instance(Value, frozen=True):
    """One instance as Poise last saw it; tokens of None are the ring's."""

    name: Name
    state: Literal["ready", "expired", "uncertain", "dead", "orphaned"] = "ready"
    tokens: Tokens | None = None


class ShardRingStatus(Value, frozen=True):
    """What Poise knows of a ring."""

    instances: list[Instance] = field(default_factory=list)
    assignment: dict[ItemName, Name] = field(default_factory=dict)


class ShardRing(Value, frozen=True, kw_only=True):
    """Shares objects out over the instances of one controller."""

    api_version: ApiVersion = "poise.dev/v1alpha1"
    kind: Literal["ShardRing"] = "ShardRing"
    metadata: Metadata
    spec: ShardRingSpec = field(default_factory=ShardRingSpec)
    status: ShardRingStatus = field(default_factory=ShardRingStatus)
