"""TargetPool: telemetry targets, held by collector pods."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from poise.model.common import (
    ApiVersion,
    Capacity,
    Count,
    ItemName,
    LabelSelector,
    Line,
    Metadata,
    MoveGuards,
    Name,
    Percent,
    Port,
    SomeSeconds,
    Url,
    Value,
    Weight,
)


class Endpoint(Value, frozen=True):
    """One pod with its address. A weight of None counts as 1, a capacity of None is the pool's."""

    name: Name
    url: Url | None = None
    weight: Weight | None = None
    capacity: Capacity | None = None


class StatefulSetPods(Value, frozen=True):
    """The pods of a StatefulSet."""

    name: Name
    port: Port = 7890


class SelectorPods(LabelSelector, frozen=True):
    """The pods with certain labels."""

    port: Port = 7890


class Pods(Value, frozen=True):
    """Where the pods come from: exactly one of the three."""

    endpoints: list[Endpoint] | None = None
    stateful_set: StatefulSetPods | None = None
    selector: SelectorPods | None = None


class Target(Value, frozen=True):
    """One target; `config` goes to the collector as it is, with credentials as references only."""

    name: ItemName
    address: Line | None = None
    labels: dict[ItemName, Line] = field(default_factory=dict)
    config: dict[str, object] = field(default_factory=dict)


class HttpTargets(Value, frozen=True):
    """A list of targets that is polled."""

    url: Url
    interval_seconds: SomeSeconds = 60


class ConfigMapTargets(Value, frozen=True):
    """A list of targets in a ConfigMap."""

    name: Name


class Targets(Value, frozen=True):
    """Where the targets come from: exactly one of the four. `listed` is `list` in documents."""

    listed: list[Target] | None = field(default=None, name="list")
    file: Line | None = None
    http: HttpTargets | None = None
    config_map: ConfigMapTargets | None = None


class Delivery(Value, frozen=True):
    """How a pod learns what it holds; subscriptions and outputs go to the collector as they are."""

    kind: Literal["gnmic", "http", "pull"]
    subscriptions: dict[ItemName, dict[str, object]] = field(default_factory=dict)
    outputs: dict[ItemName, dict[str, object]] = field(default_factory=dict)


class PoolGuards(MoveGuards, frozen=True):
    """The guards of a pool."""

    moves_in_flight_max: Count | None = 50


class TargetPoolSpec(Value, frozen=True, kw_only=True):
    """What people want of a pool."""

    policy: Literal["sticky", "hashed"] = "sticky"
    capacity: Capacity | None = None
    pods: Pods
    targets: Targets
    drop_max_percent: Percent = 30
    gone_after_seconds: SomeSeconds = 30
    delivery: Delivery | None = None
    guards: PoolGuards = field(default_factory=PoolGuards)


class PoolMember(Value, frozen=True):
    """One pod as Poise last saw it."""

    name: Name
    state: Literal["ready", "draining", "gone"] = "ready"


class TargetPoolStatus(Value, frozen=True):
    """What Poise knows of a pool."""

    members: list[PoolMember] = field(default_factory=list)
    assignment: dict[ItemName, Name] = field(default_factory=dict)


class TargetPool(Value, frozen=True, kw_only=True):
    """Shares targets out over collector pods."""

    api_version: ApiVersion = "poise.dev/v1alpha1"
    kind: Literal["TargetPool"] = "TargetPool"
    metadata: Metadata
    spec: TargetPoolSpec
    status: TargetPoolStatus = field(default_factory=TargetPoolStatus)
