"""What an auditor judges: reconciles, writes, faults, and what the API showed. All times are of one clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

SLACK_S = 3.0
FOREVER_S = float("inf")


class Reconcile(NamedTuple):
    """One reconcile of one object; one whose process was killed has no end."""

    object: str
    family: str
    instance: str
    process: int
    epoch: int
    start_s: float
    end_s: float | None = None


class Patch(NamedTuple):
    """One write of a reconcile; `version` is what the API server answered, `outcome` written, refused or unknown."""

    object: str
    instance: str
    process: int
    epoch: int
    sent_s: float
    outcome: str
    version: int = 0


class Fault(NamedTuple):
    """What was done, when, and until when it lasted.

    To an instance: kill, freeze, stop; end: it ended by itself. To all: api, leader, brake.
    """

    at_s: float
    kind: str
    instance: str = ""
    process: int = 0
    until_s: float = 0.0


class Process(NamedTuple):
    """One process of an instance, from its start to its end."""

    instance: str
    process: int
    from_s: float
    until_s: float = FOREVER_S


class Sighting(NamedTuple):
    """The labels of an object as an observer saw them change."""

    object: str
    at_s: float
    shard: str | None
    epoch: int | None
    drain: str | None = None


class Final(NamedTuple):
    """One object as the API shows it in the end; `family` is its root."""

    object: str
    family: str
    shard: str | None
    epoch: int | None
    drain: str | None = None


class Terms(NamedTuple):
    """What was promised: D, and how often an owner writes a root, and a child, that it holds.

    `catch_up_s` is what the writes of a takeover take on this machine: once by the sharder, once by the next owner.
    """

    lease_s: float
    period_s: float
    child_period_s: float
    catch_up_s: float = 0.0

    def bound_s(self, period_s: float) -> float:
        """Give how long an object may be without a write."""
        return period_s + 2 * self.lease_s + SLACK_S + self.catch_up_s


class Case(NamedTuple):
    """Everything to judge, between two instants; `wanted` names the owner of each family in the end.

    `stalls`: when the API server was slow to answer somebody who has nothing to do with all this.
    """

    terms: Terms
    from_s: float
    until_s: float
    reconciles: tuple[Reconcile, ...]
    patches: tuple[Patch, ...]
    processes: tuple[Process, ...]
    faults: tuple[Fault, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    finals: tuple[Final, ...] = ()
    wanted: Mapping[str, str] = {}
    stalls: tuple[tuple[float, float], ...] = ()


class Gap(NamedTuple):
    """An object without writes, and how long that may last here."""

    object: str
    from_s: float
    until_s: float
    bound_s: float

    @property
    def length_s(self) -> float:
        """Give how long it lasted."""
        return self.until_s - self.from_s
