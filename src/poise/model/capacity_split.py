"""CapacitySplit: replicas of workloads, split over spot and on-demand capacity."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from poise.model.common import (
    ApiVersion,
    Count,
    Guards,
    ItemName,
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
Hours = Annotated[float, Meta(ge=0.001, le=8_784)]
PodHours = Annotated[float, Meta(ge=0, le=1_000_000)]
SomePodHours = Annotated[float, Meta(ge=0.001, le=1_000_000)]
History = Annotated[float, Meta(ge=0, le=1e15)]


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

    initial: Percent | None = None
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


class CapacitySplitSpec(Value, frozen=True, kw_only=True):
    """What people want of a split."""

    workloads: list[SplitWorkload] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)
    ramp: Ramp = Ramp()
    guards: CapacityGuards = field(default_factory=CapacityGuards)


class StartedAction(Value, frozen=True):
    """Actions that started together, which the budgets count."""

    started_at: Moment
    count: Count = 1
    in_flight: bool = False


class TotalSeen(Value, frozen=True):
    """The replicas of a workload, since when they are so many, and whether a jump led here."""

    replicas: Count
    since: Moment
    jumped: bool = False


class FallbackRecord(Value, frozen=True):
    """Spot replicas that run on on-demand instead, whom they replaced, and where the probing stands."""

    substitutes: Count = 0
    replaced: list[ItemName] = field(default_factory=list)
    failures: Count = 0
    probe_at: Moment | None = None
    probing_since: Moment | None = None


class RampRecord(Value, frozen=True):
    """How far a ramp has come, and the decayed history that it rests on, as of the last event."""

    percent: Percent
    started_at: Moment
    as_of: Moment
    event_at: Moment
    score: Part = 1
    why: Literal["start", "step up", "hold", "halved", "target lowered"] = "start"
    spot_pods: Count = 0
    pod_hours: History = 0
    interruptions: History = 0


class SplitCounts(Value, frozen=True):
    """One workload as Poise last saw it; `pools` counts its replicas where the document has pools.

    `interrupted` is said by whoever reports: so many spot replicas were taken away since the report before.
    """

    spot: Count = 0
    on_demand: Count = 0
    ready_on_demand: Count | None = None
    interrupted: Count = 0
    pools: dict[Name, Count] = field(default_factory=dict)
    last_action_at: Moment | None = None
    actions: list[StartedAction] = field(default_factory=list)
    total: TotalSeen | None = None
    ramp: RampRecord | None = None
    fallback: FallbackRecord | None = None


class PoolSeen(Value, frozen=True):
    """Whether a pool works, and since when it has been so."""

    up: bool
    since: Moment


class CapacitySplitStatus(Value, frozen=True):
    """What Poise knows of a split."""

    workloads: dict[WorkloadName, SplitCounts] = field(default_factory=dict)
    pools: dict[Name, PoolSeen] = field(default_factory=dict)


class CapacitySplit(Value, frozen=True, kw_only=True):
    """Splits replicas over spot and on-demand capacity."""

    api_version: ApiVersion = "poise.dev/v1alpha1"
    kind: Literal["CapacitySplit"] = "CapacitySplit"
    metadata: Metadata
    spec: CapacitySplitSpec
    status: CapacitySplitStatus = field(default_factory=CapacitySplitStatus)
