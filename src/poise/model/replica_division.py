"""ReplicaDivision: replicas of workloads, divided over member clusters by weight."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from poise.model.common import (
    ApiVersion,
    Count,
    LabelSelector,
    Line,
    Metadata,
    Name,
    Part,
    Sentence,
    Value,
    Weight,
    WorkloadName,
)

Strategy = Literal["StaticWeight", "Duplicated", "DynamicWeight"]
FractionText = Annotated[
    str,
    Meta(
        max_length=700,
        pattern=r"^-?[0-9]{1,320}(/[0-9]{1,320})?\Z",
        description='a fraction as text, such as "7/2"',
    ),
]


class Cluster(Value, frozen=True):
    """One member cluster; a capacity of 0 is a full cluster."""

    name: Name
    weight: Weight = 1
    min: Count = 0
    max: Count | None = None
    capacity: Count | None = None


class DividedWorkload(Value, frozen=True):
    """One workload and how many replicas it has over all clusters."""

    name: WorkloadName
    replicas: Count


class ReplicaDivisionSpec(Value, frozen=True, kw_only=True):
    """What people want of a division."""

    strategy: Strategy = "StaticWeight"
    clusters: list[Cluster]
    workloads: list[DividedWorkload] = field(default_factory=list)
    workload_selector: LabelSelector | None = None
    draw: Literal["exact", "weighted"] = "exact"
    mix: Part = 0
    moves_max: Count = 0
    fair: Literal["fleet", "single"] = "fleet"
    seed: Line = ""


class RecordedDraw(Value, frozen=True):
    """Who got one replica more (or one less) in a draw, by which rule and odds."""

    change: int
    rule: Line
    odds: dict[Name, FractionText]
    winners: list[Name]


class RecordedStep(Value, frozen=True):
    """One replica that a fleet repair moved."""

    source: Name
    target: Name
    reason: Sentence


class DivisionRecord(Value, frozen=True):
    """The last decision on one workload: the four required fields are enough to keep it, all of them to replay it."""

    replicas: Count
    weights: dict[Name, Count]
    strategy: Strategy
    result: dict[Name, Count]
    quotas: dict[Name, FractionText] | None = None
    seed: Line | None = None
    draws: list[RecordedDraw] | None = None
    kept: bool | None = None
    reason: Sentence | None = None
    minimum: dict[Name, Count] = field(default_factory=dict)
    maximum: dict[Name, Count] = field(default_factory=dict)
    capacity: dict[Name, Count] = field(default_factory=dict)
    last: dict[Name, Count] | None = None
    debt: dict[Name, FractionText] | None = None
    draw: Literal["exact", "weighted"] = "exact"
    mix: FractionText = "0"
    step: RecordedStep | None = None


class ReplicaDivisionStatus(Value, frozen=True):
    """What Poise knows of a division."""

    divisions: dict[WorkloadName, DivisionRecord] = field(default_factory=dict)


class ReplicaDivision(Value, frozen=True, kw_only=True):
    """Divides replicas over clusters."""

    api_version: ApiVersion = "poise.dev/v1alpha1"
    kind: Literal["ReplicaDivision"] = "ReplicaDivision"
    metadata: Metadata
    spec: ReplicaDivisionSpec
    status: ReplicaDivisionStatus = field(default_factory=ReplicaDivisionStatus)
