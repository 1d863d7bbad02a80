"""What a plan looks like to people and programs: one entry a document, as `poise plan -o json` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from poise.decide.plan import Certificate


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """The base of everything that is printed: camelCase outside, snake_case inside."""


class Waits(Entry, frozen=True):
    """What holds a move or an action back, and until when; `until` is null where no time would free it."""

    code: str
    until: datetime | None
    reason: str


class PlannedMove(Entry, frozen=True):
    """One move; `step` is said by PartitionSets only."""

    item: str
    source: str | None
    target: str | None
    reason: str
    waits: Waits | None = None
    step: str | UnsetType = UNSET


class Unassigned(Entry, frozen=True):
    """One item that nobody holds, with its reason: it is never silently so."""

    item: str
    reason: str


class ItemsEntry(Entry, frozen=True):
    """The plan of a TargetPool, PartitionSet or ShardRing."""

    kind: str
    name: str
    moves: list[PlannedMove]
    assignment: Mapping[str, str | None]
    unassigned: list[Unassigned]
    loads: Mapping[str, int]
    certificate: Certificate


class DividedEntry(Entry, frozen=True):
    """How one workload is divided; quotas are exact fractions as text."""

    replicas: Mapping[str, int]
    quota: Mapping[str, str]
    kept: bool
    moved: int
    reason: str
    unplaced: int = 0


class TotalEntry(Entry, frozen=True):
    """One cluster's replicas over all workloads against its exact share."""

    replicas: int
    exact: str


class DivisionEntry(Entry, frozen=True):
    """The plan of a ReplicaDivision."""

    kind: str
    name: str
    divisions: Mapping[str, DividedEntry]
    totals: Mapping[str, TotalEntry]


class Counts(Entry, frozen=True):
    """Replicas on each side, or in each pool where the document has pools."""

    spot: int | UnsetType = UNSET
    on_demand: int | UnsetType = UNSET
    pools: Mapping[str, int] | UnsetType = UNSET


class SplitEntry(Entry, frozen=True):
    """Where one workload stands, where it should, and the next single action."""

    current: Counts
    desired: Counts
    action: str
    steps: int
    waits: Waits | None
    reason: str
    unplaced: int | UnsetType = UNSET


class CapacityEntry(Entry, frozen=True):
    """The plan of a CapacitySplit."""

    kind: str
    name: str
    workloads: Mapping[str, SplitEntry]


class ItemsView(msgspec.Struct, frozen=True):
    """What the printed plan of items says beyond its entry."""

    noun: str
    policy: str
    members_before: int
    members_after: int
    loads_before: Mapping[str, int]
    stays: int


class Planned(msgspec.Struct, frozen=True):
    """A document's plan, what the independent checker found wrong with it, and how to show it."""

    entry: ItemsEntry | DivisionEntry | CapacityEntry
    faults: list[str]
    pending: bool
    view: ItemsView | None = None
    notes: list[str] = []


class Told(Entry, frozen=True):
    """The explanation of something that is counted or handed over in phases: sentences."""

    item: str
    because: list[str]
