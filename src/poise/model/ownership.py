"""Who owns what: the rows that stores keep, and what members say and hear. One type from the core to the wire."""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import Literal

import msgspec

from poise.model.partition_set import PartitionGuards

GENERATION = 2**32  # Epoch = generation·2^32 + counter.
RESTART = "restart"  # The reason of a row that waits for its member to come back.
RETIREMENT = "retire"  # The reason of a row that is given up because the set shrank.


class OwnerState(StrEnum):
    """Who may work on an item. The reservation of a release is its target."""

    UNASSIGNED = "Unassigned"
    ASSIGNED = "Assigned"
    REQUESTED_RELEASE = "RequestedRelease"
    PENDING_RELEASE = "PendingRelease"


OWNED = (OwnerState.ASSIGNED, OwnerState.REQUESTED_RELEASE, OwnerState.PENDING_RELEASE)
RELEASING = (OwnerState.REQUESTED_RELEASE, OwnerState.PENDING_RELEASE)


# There are thousands of these, and none can lead back to itself: the collector of cycles need not look at them.
class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One item of a set. There is one owner field: an owner that exists twice cannot be written down.

    `granted_s` is the longest lease that was promised at this epoch. `revision` grows at every transition, not at a
    renewal. `offers` counts the grants that a member never confirmed. `retiring`: its ring no longer lists it.
    """

    id: str
    state: OwnerState = OwnerState.UNASSIGNED
    confirmed: bool = False
    owner: str | None = None
    owner_incarnation: int | None = None
    target: str | None = None
    epoch: int = 0
    lease_until_s: float = 0.0
    granted_s: float = 0.0
    deadline_s: float | None = None
    offers: dict[str, int] = {}
    since_s: float = 0.0
    reason: str = ""
    plan: int = 0
    retiring: bool = False
    revision: int = 0


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a set; never deleted, so that its incarnations only grow."""

    name: str
    incarnation: int = 0
    process: str = ""
    lease_until_s: float = 0.0
    weight: int = 1
    seq: int = 0
    leaving: Literal["stop", "restart"] | None = None
    draining: bool = False


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a set promises its members: the lengths of leases, and what happens when a release takes too long.

    Where items are not `leased` (collectors go on collecting while nobody speaks for them) a grant has no end, and is
    over as soon as its member counts as gone. Members stop acting `margin_s` before a lease ends, and take `stop_s`.
    """

    lease_s: float = 10.0
    grace_s: float = 2.0
    release_s: float = 30.0
    restart_grace_s: float = 0.0
    revoke: bool = True
    leased: bool = True
    margin_s: float = 1.0
    stop_s: float = 1.0

    @property
    def grant_s(self) -> float:
        """The length of a grant."""
        return self.lease_s if self.leased else inf


class SetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One set: which items, which generation of epochs, and until when nothing may be granted.

    A PartitionSet has the items "0" … "count - 1"; the other kinds have what their rows name. `started` is the
    ledger of its guards: when the moves began that a cooldown or a budget still counts. `halted` is a pause that also
    holds recovery back. A set that was deleted has `ended` when its last item is a tombstone; nobody plans it.
    """

    name: str
    kind: Literal["PartitionSet", "ShardRing", "TargetPool", "ReplicaDivision", "CapacitySplit"] = "PartitionSet"
    count: int = 0
    policy: Literal["ring", "balanced", "sticky", "hashed"] = "balanced"
    tokens: int = 100
    brake_percent: int = 50
    brake_released_s: float = 0.0
    braked: bool = False
    terms: Terms = Terms()
    guards: PartitionGuards = PartitionGuards()
    weights: dict[str, int] = {}
    capacity: dict[str, int] = {}
    started: tuple[float, ...] = ()
    generation: int = 0
    quarantine_until_s: float = 0.0
    granted_max_s: float = 0.0
    paused: bool = False
    halted: bool = False
    ended: bool = False
    revision: int = 0


def is_wanted(job: SetRow, row: Row) -> bool:
    """Say whether a set still has this item; one that it has no longer is given up."""
    return not row.retiring and (job.kind != "PartitionSet" or int(row.id) < job.count)


class SetTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a set promises its members, as a server tells it: the lengths of leases, and how often to speak."""

    lease_s: float
    grace_s: float
    period_s: float
    release_s: float = 30.0
    restart_grace_s: float = 0.0
    revoke: bool = True
    margin_s: float = 1.0
    stop_s: float = 1.0

    def terms(self) -> Terms:
        """Give the promises as a member checks them."""
        return Terms(
            lease_s=self.lease_s,
            grace_s=self.grace_s,
            release_s=self.release_s,
            restart_grace_s=self.restart_grace_s,
            revoke=self.revoke,
            margin_s=self.margin_s,
            stop_s=self.stop_s,
        )


class Registered(SetTerms, frozen=True, kw_only=True):
    """What a process gets when it registers: its incarnation, and what the set promises."""

    incarnation: int


class LeaderRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who may plan: a term that grows with every election."""

    term: int = 0
    holder: str = ""
    lease_until_s: float = 0.0


class Word(StrEnum):
    """What a member says of an item that it knows."""

    HELD = "held"
    RELEASING = "releasing"
    RELEASED = "released"


class Hold(msgspec.Struct, frozen=True):
    """One sentence of a heartbeat."""

    item: str
    epoch: int
    state: Word


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a member says: who it is, in which order, and what it holds. Absence of an item means nothing."""

    process: str
    incarnation: int
    seq: int
    holds: tuple[Hold, ...] = ()
    weight: int = 1
    leaving: Literal["stop", "restart"] | None = None


class Granted(msgspec.Struct, frozen=True):
    """An item that the member may act on, for `lease_s` from the moment the heartbeat was sent, less its margin."""

    item: str
    epoch: int
    lease_s: float


class Release(msgspec.Struct, frozen=True):
    """An item that the member must let go of within `deadline_s`; until then it may finish, while its lease lasts."""

    item: str
    epoch: int
    lease_s: float
    deadline_s: float


class Reply(msgspec.Struct, frozen=True):
    """Everything the member may hold or must release; what is not named here is not held."""

    incarnation: int
    seq: int
    granted: tuple[Granted, ...] = ()
    release: tuple[Release, ...] = ()


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the journal: a transition of one item (or of the set itself, where the item is empty)."""

    set: str
    item: str
    transition: str
    member: str | None
    epoch: int
    at_s: float
    reason: str
    term: int = 0
    number: int = 0  # Given by the store; it grows within a set.
    version: int = 0  # Given by the store; it grows with every change of any set.
