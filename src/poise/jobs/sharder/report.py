"""What the sharder of one ring tells: enough for its status, its Events and its metrics, and nothing an object."""

from __future__ import annotations

import msgspec

from poise.jobs.sharder.orders import Paused
from poise.observe.leases import Health


class InstanceSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One instance by its Lease; `note` says what is odd about it, such as a holder that is somebody else.

    `drained`: people want it to hold nothing, while it runs.
    """

    name: str
    state: Health
    tokens: int
    objects: int
    note: str = ""
    drained: bool = False


class RingReport(msgspec.Struct, frozen=True, kw_only=True):
    """One ring as its sharder sees it now.

    `synced`: every mirror has been listed once. `faults` are sentences for people: a resource that does not exist or
    may not be listed, with the missing right. `vanished` names those for whom the brake holds; without any it is open.
    `clear`: no root has a shard label and nothing is left to write, so that a ring that is being removed may end.
    `withheld` counts the roots that a pause keeps where they are, `waiting` the objects whose owner is not there.
    """

    synced: bool = False
    faults: tuple[str, ...] = ()
    instances: tuple[InstanceSeen, ...] = ()
    roots: int = 0
    children: int = 0
    unassigned: int = 0
    waiting: int = 0
    drains: int = 0
    oldest_drain_s: float | None = None
    overdue: int = 0
    delayed: int = 0
    in_flight: int = 0
    vanished: tuple[str, ...] = ()
    clear: bool = False
    paused: Paused = ""
    withheld: int = 0


class RingCounts(msgspec.Struct, kw_only=True):
    """What the sharder of one ring has done since this process began; only ever grows."""

    passes: int = 0
    watch_events: int = 0
    writes: dict[str, int] = msgspec.field(default_factory=dict)
    conflicts: int = 0
    failures: int = 0
    lease_writes: dict[str, int] = msgspec.field(default_factory=dict)

    def wrote(self, kind: str) -> None:
        """Count one label patch of a step of this kind."""
        self.writes[kind] = self.writes.get(kind, 0) + 1

    @property
    def label_writes(self) -> int:
        """All label patches."""
        return sum(self.writes.values())
