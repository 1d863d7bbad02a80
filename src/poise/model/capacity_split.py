"""CapacitySplit: replicas of workloads, split over spot and on-demand capacity."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from poise.model.common import (
    ApiVersion,
    Count,
    Guards,
    Metadata,
    Moment,
    Name,
    Part,
    Percent,
    Seconds,
    SomeSeconds,
    Value,
    Weight,
    WorkloadName,
)

PercentText = Annotated[
    str, Meta(pattern=r"^(100|[1-9]?[0-9])%?\Z", description="a percentage from 0 to 100, such as 70 or 70%")
]
MinOnDemand = Annotated[int, Meta(ge=0, le=10_000)]
SomePercent = Annotated[int, Meta(ge=1, le=100)]
Hours = Annotated[float, Meta(gt=0, le=8_784)]
PodHours = Annotated[float, Meta(ge=0, le=1_000_000)]
SomePodHours = Annotated[float, Meta(gt=0, le=1_000_000)]


class SplitWorkload(Value, frozen=True):
    """One workload; the last two fields are its own split where the document has no pools."""

    name: WorkloadName
    replicas: Count
    spot_percentage: Percent | PercentText | None = None
    min_on_demand: MinOnDemand | None = None

    @property
    def spot_percent(self) -> int | None:
        """Give the percentage as a number, also where it was written as text."""
        value = self.spot_percentage
        return int(value.removesuffix("%")) if isinstance(value, str) else value


class Pool(Value, frozen=True):
    """One pool of capacity."""

    name: Name
    weight: Weight = 1
    min: Count = 0
    max: Count | None = None


class Ramp(Value, frozen=True):
    """How spot adoption grows while spot proves stable; None is the default, and where all is None there is no ramp."""

    initial: SomePercent | None = None
    step: SomePercent | None = None
    interval_seconds: SomeSeconds | None = None
    half_life_hours: Hours | None = None
    prior_pod_hours: SomePodHours | None = None
    penalty_pod_hours: PodHours | None = None
    low: Part | None = None
    high: Part | None = None


class CapacityGuards(Guards, frozen=True):
    """The guards of a split."""

    cooldown_seconds: Seconds = 10


class CapacitySplitSpec(Value, frozen=True):
    """What people want of a split."""

    workloads: list[SplitWorkload] = []
    pools: list[Pool] = []
    ramp: Ramp = Ramp()
    guards: CapacityGuards = CapacityGuards()


class StartedAction(Value, frozen=True):
    """One action that the budgets count; without an end it is still in flight."""

    started_at: Moment
    ended_at: Moment | None = None


class RampRecord(Value, frozen=True):
    """How far a ramp has come."""

    percent: Percent
    started_at: Moment
    updated_at: Moment
    pod_hours: PodHours = 0
    interruptions: PodHours = 0


class SplitCounts(Value, frozen=True):
    """One workload as Poise last saw it."""

    spot: Count = 0
    on_demand: Count = 0
    ready_on_demand: Count | None = None
    pools: dict[Name, Count] = {}
    last_action_at: Moment | None = None
    actions: list[StartedAction] = []
    replicas_before: Count | None = None
    replicas_changed_at: Moment | None = None
    ramp: RampRecord | None = None


class CapacitySplitStatus(Value, frozen=True):
    """What Poise knows of a split; `pools_down` are left out of it until they are stable again."""

    workloads: dict[WorkloadName, SplitCounts] = {}
    pools_down: list[Name] = []


class CapacitySplit(Value, frozen=True):
    """Splits replicas over spot and on-demand capacity."""

    metadata: Metadata
    spec: CapacitySplitSpec
    status: CapacitySplitStatus = CapacitySplitStatus()
    api_version: ApiVersion = "poise.dev/v1alpha1"
    kind: Literal["CapacitySplit"] = "CapacitySplit"
