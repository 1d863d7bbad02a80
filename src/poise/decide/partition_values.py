"""The values of the partition planner: rows, nodes and policy go in, steps and their proof come out."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

import msgspec

from poise.decide.plan import Certificate
from poise.model.ownership import OwnerState

OFFERS_MAX = 3  # Offered so often to one node and never confirmed, a partition is not offered to that node again.


PartitionState = OwnerState


class NodeState(StrEnum):
    """What a node can do: take and hold, only let go, or nothing."""

    ACTIVE = "active"
    DRAINING = "draining"
    GONE = "gone"


class ReleaseTimeout(StrEnum):
    """What happens to an owner that is alive and does not let go by the deadline."""

    REVOKE = "revoke"
    WAIT = "wait"


class StepKind(StrEnum):
    """The writes a plan may ask for."""

    ASSIGN = "assign"
    RELEASE = "release"
    CANCEL = "cancel"
    UNASSIGN = "unassign"
    RETIRE = "retire"


# There are thousands of these, and none can lead back to itself: the collector of cycles need not look at them.
class Partition(msgspec.Struct, frozen=True, gc=False):
    """One row: who holds a partition, and for whom it is reserved while it is released.

    Without `lease_until_s` the lease of an owner that is gone has ended, and that of a live one has not.
    `offers` counts, for each node, the grants since the last one that was confirmed.
    """

    id: str
    state: PartitionState = PartitionState.UNASSIGNED
    owner: str | None = None
    target: str | None = None
    epoch: int = 0
    owner_incarnation: int | None = None
    confirmed: bool = False
    lease_until_s: float | None = None
    deadline_s: float | None = None
    offers: dict[str, int] = {}
    reason: str = ""


class Node(msgspec.Struct, frozen=True):
    """One worker node; `weight` is what it says of itself."""

    name: str
    state: NodeState = NodeState.ACTIVE
    incarnation: int = 0
    weight: int = 1


class MoveBudgets(msgspec.Struct, frozen=True):
    """How many releases may be under way at once; None is no limit."""

    moves_in_flight_max: int | None = 8
    per_source_max: int | None = 4
    per_target_max: int | None = 4


class PartitionPolicy(msgspec.Struct, frozen=True):
    """What people want of a set; `weights` go over what a node says of itself.

    `debt` is what each node is owed by the other sets of the cluster: the sum of their plans' `owed`.
    """

    count: int
    lease_s: float = 10
    grace_s: float = 2
    release_s: float = 30
    on_release_timeout: ReleaseTimeout = ReleaseTimeout.REVOKE
    budgets: MoveBudgets = MoveBudgets()
    weights: dict[str, int] = {}
    debt: dict[str, int | Fraction | float] = {}
    seed: str = ""


class Step(msgspec.Struct, frozen=True, gc=False):
    """One compare-and-set write. A `release` of a row that is releasing already replaces only its target."""

    kind: StepKind
    partition: str
    source: str | None
    target: str | None
    reason: str


class WaitingMove(msgspec.Struct, frozen=True, gc=False):
    """A move that is needed and cannot begin now.

    `code` says what holds it back: `budget`, `no-active-node`, `arrival` (the source does not have it yet), or
    `refused` (the nodes with room never confirmed it). `reason` says the same in words, `why` what the move is for.
    """

    partition: str
    source: str
    target: str | None
    reason: str
    code: str
    why: str = ""


class PartitionPlan(msgspec.Struct, frozen=True):
    """What to write now, what waits, and where everything ends if nothing else happens.

    `loads` is projected: Assigned + reserved once the steps are written. `held` is real: all that a node owns now.
    `unowned` says why a partition has no live owner once the steps are written, `notices` what people should look at.
    `owed` is share - quota of each active node.
    """

    steps: list[Step]
    moves_waiting: list[WaitingMove]
    quotas: dict[str, int]
    loads: dict[str, int]
    held: dict[str, int]
    assignment: dict[str, str | None]
    certificate: Certificate
    unowned: dict[str, str]
    notices: dict[str, str]
    owed: dict[str, Fraction]
