"""What a partition planner may rely on: checked input, and the judgement of one row at one instant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil, inf

import msgspec

from poise.decide.partition_values import (
    OFFERS_MAX,
    MoveBudgets,
    Node,
    NodeState,
    Partition,
    PartitionPolicy,
    PartitionState,
    ReleaseTimeout,
)
from poise.errors import invalid
from poise.inputs import is_utf8, unique_names, whole
from poise.model.ownership import RELEASING, RESTART, RETIREMENT

PARTITIONS_MAX = 100_000
_LARGEST = 10**12  # Seconds, and items owed: far beyond what is real, and exact in a float.
_STATES, _NODE_STATES, _TIMEOUTS = set(PartitionState), set(NodeState), set(ReleaseTimeout)


class Facts(msgspec.Struct, frozen=True):
    """One snapshot: the rows of the set in numeric order, the rows beyond its count, and the nodes."""

    rows: list[Partition]
    beyond: list[Partition]
    nodes: dict[str, Node]
    active: list[str]
    now_s: float
    policy: PartitionPolicy

    def state_of(self, name: str | None) -> NodeState:
        """Look a node up; a name that is not listed is gone."""
        node = self.nodes.get(name) if name is not None else None
        return node.state if node else NodeState.GONE

    def is_active(self, name: str | None) -> bool:
        """Say whether a node may be given something."""
        return self.state_of(name) == NodeState.ACTIVE

    def is_gone(self, name: str | None) -> bool:
        """Say whether a node is named and no longer there."""
        return name is not None and self.state_of(name) == NodeState.GONE

    def is_superseded(self, row: Partition) -> bool:
        """Say whether the owner has registered again since: its earlier process is not renewed."""
        node = self.nodes.get(row.owner or "")
        return node is not None and row.owner_incarnation is not None and row.owner_incarnation < node.incarnation

    def lease_end_s(self, row: Partition) -> float:
        """Say when the owner's right ends; infinity where it is renewed and nobody wrote down until when.

        Under `revoke` a lease is not renewed after the deadline, so it ends at deadline + lease at the latest.
        """
        if row.lease_until_s is not None:
            return row.lease_until_s
        if self.is_gone(row.owner) or self.is_superseded(row):
            return -inf
        revoked = self.policy.on_release_timeout == ReleaseTimeout.REVOKE and row.state in RELEASING
        return row.deadline_s + self.policy.lease_s if revoked and row.deadline_s is not None else inf

    def is_lost(self, row: Partition) -> bool:
        """Say whether a row has an owner that will not renew it: it only waits for the end of lease and grace."""
        if row.owner is None:
            return False
        node = self.nodes.get(row.owner)
        if node is None or node.state == NodeState.GONE:
            return True
        if row.owner_incarnation is not None and row.owner_incarnation < node.incarnation:
            return True
        return self.now_s >= (self.lease_end_s(row) if row.lease_until_s is None else row.lease_until_s)

    def is_due(self, row: Partition) -> bool:
        """Judge T7's guard: now >= lease_until + grace."""
        return self.is_lost(row) and self.now_s >= self.lease_end_s(row) + self.policy.grace_s

    def is_awaited(self, row: Partition) -> bool:
        """Say whether an Unassigned row waits for its inactive target to come back from a restart."""
        if row.reason != RESTART or row.target is None or self.is_active(row.target):
            return False
        return row.deadline_s is not None and self.now_s < row.deadline_s

    def heir(self, row: Partition) -> str | None:
        """Name the target that T5 and T7 leave: the row's own; where none is set, a superseded process's own name."""
        target = None if row.state == PartitionState.ASSIGNED else row.target
        returns = target is None and self.is_superseded(row) and row.reason != RETIREMENT
        return row.owner if returns else target

    def aim(self, row: Partition) -> str | None:
        """Name the active node that a row is reserved for, and counts on, while it has no live owner or loses it."""
        heir = self.heir(row)
        if not self.is_active(heir) or heir is None:
            return None
        free = row.owner is None or self.is_lost(row)
        return None if free and is_barred(row, heir) else heir


def is_barred(row: Partition, node: str) -> bool:
    """Judge the poison guard: offered so often to this node and never confirmed."""
    return row.offers.get(node, 0) >= OFFERS_MAX


def seconds(duration_s: float) -> str:
    """Word a time that is left, rounded up: it is over when nothing is left."""
    return f"{ceil(max(0.0, duration_s))} s"


def read_facts(partitions: Iterable[Partition], nodes: Iterable[Node], now_s: float, policy: PartitionPolicy) -> Facts:
    """Check the input and put it in order; a row that is missing below the count is new and Unassigned."""
    _check_time("$.now_s", now_s)
    _check_policy(policy)
    numbered = _numbered(partitions)
    listed = list(nodes)
    known = dict(sorted(zip(_node_names(listed), listed, strict=True)))
    count = policy.count
    return Facts(
        rows=[numbered.get(number) or Partition(str(number)) for number in range(count)],
        beyond=[numbered[number] for number in sorted(numbered) if number >= count],
        nodes=known,
        active=[name for name, node in known.items() if node.state == NodeState.ACTIVE],
        now_s=now_s,
        policy=policy,
    )


def _numbered(partitions: Iterable[Partition]) -> dict[int, Partition]:
    rows: dict[int, Partition] = {}
    places: dict[int, int] = {}
    for position, row in enumerate(partitions):
        if not _is_plain(row):
            _check_row(f"$.partitions[{position}]", row)
        number = int(row.id)
        if number in rows:
            raise invalid(f"$.partitions[{position}].id", f"duplicate of [{places[number]}]")
        rows[number], places[number] = row, position
    return rows


def _is_plain(row: Partition) -> bool:
    """Pass at once what most rows are: held, with everything as a store writes it. Any other row is looked at closely.

    Ten thousand rows are checked in every cycle, so this is where a plan's time would go.
    """
    return (
        type(row) is Partition
        and row.state is PartitionState.ASSIGNED
        and type(row.id) is type(row.owner) is str
        and row.owner != ""
        and row.id.isascii()
        and row.id.isdigit()
        and len(row.id) < 10
        and (row.id[0] != "0" or row.id == "0")
        and row.target is None
        and type(row.epoch) is type(row.owner_incarnation) is int
        and row.epoch >= 0
        and row.owner_incarnation >= 0
        and type(row.lease_until_s) is float
        and abs(row.lease_until_s) <= _LARGEST
        and row.deadline_s is None
        and type(row.offers) is dict
        and not row.offers
    )


def _check_row(path: str, row: Partition) -> None:
    if not isinstance(row, Partition):
        raise invalid(path, f"expected a Partition, got {type(row).__name__}")
    text = row.id
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 and str(int(text)) == text):
        raise invalid(f"{path}.id", f"expected a number such as '7', got {text!r:.40}")
    _check_choice(f"{path}.state", row.state, _STATES)
    for field, name in (("owner", row.owner), ("target", row.target)):
        if name is not None and not (isinstance(name, str) and name):
            raise invalid(f"{path}.{field}", f"expected the name of a node, got {name!r:.40}")
    if (row.owner is None) != (row.state == PartitionState.UNASSIGNED):
        raise invalid(f"{path}.owner", f"expected {'an' if row.owner is None else 'no'} owner while {row.state}")
    whole(f"{path}.epoch", row.epoch)
    if row.owner_incarnation is not None:
        whole(f"{path}.owner_incarnation", row.owner_incarnation)
    for field, moment in (("lease_until_s", row.lease_until_s), ("deadline_s", row.deadline_s)):
        if moment is not None:
            _check_time(f"{path}.{field}", moment)
    if row.offers or type(row.offers) is not dict:
        _check_wholes(f"{path}.offers", row.offers)


def _node_names(nodes: list[Node]) -> list[str]:
    for position, node in enumerate(nodes):
        path = f"$.nodes[{position}]"
        if not isinstance(node, Node):
            raise invalid(path, f"expected a Node, got {type(node).__name__}")
        _check_choice(f"{path}.state", node.state, _NODE_STATES)
        whole(f"{path}.incarnation", node.incarnation)
        whole(f"{path}.weight", node.weight)
    return unique_names("$.nodes", [node.name for node in nodes])


def _check_policy(policy: PartitionPolicy) -> None:
    if not isinstance(policy, PartitionPolicy):
        raise invalid("$.policy", f"expected a PartitionPolicy, got {type(policy).__name__}")
    if whole("$.policy.count", policy.count) > PARTITIONS_MAX:
        raise invalid("$.policy.count", f"expected <= {PARTITIONS_MAX}, got {policy.count}")
    for field in ("lease_s", "grace_s", "release_s"):
        duration_s: float = getattr(policy, field)
        _check_time(f"$.policy.{field}", duration_s)
        if duration_s < 0:
            raise invalid(f"$.policy.{field}", f"expected >= 0, got {duration_s}")
    _check_choice("$.policy.on_release_timeout", policy.on_release_timeout, _TIMEOUTS)
    if not isinstance(policy.budgets, MoveBudgets):
        raise invalid("$.policy.budgets", f"expected MoveBudgets, got {type(policy.budgets).__name__}")
    for field in ("moves_in_flight_max", "per_source_max", "per_target_max"):
        if (limit := getattr(policy.budgets, field)) is not None:
            whole(f"$.policy.budgets.{field}", limit)
    _check_wholes("$.policy.weights", policy.weights)
    _check_debt(policy.debt)
    if not isinstance(policy.seed, str) or not is_utf8(policy.seed):
        raise invalid("$.policy.seed", f"expected text that UTF-8 can hold, got {policy.seed!r:.40}")


def _check_debt(debt: Mapping[str, int | Fraction | float]) -> None:
    if not isinstance(debt, Mapping):
        raise invalid("$.policy.debt", f"expected a mapping of names, got {type(debt).__name__}")
    for name, owed in debt.items():
        if isinstance(owed, bool) or not isinstance(owed, int | Fraction | float) or not -_LARGEST <= owed <= _LARGEST:
            raise invalid(f"$.policy.debt[{name!r}]", f"expected a number, got {owed!r:.40}")


def _check_time(path: str, moment: float) -> None:
    if type(moment) not in (int, float) or not abs(moment) <= _LARGEST:  # NaN is not <= anything.
        raise invalid(path, f"expected seconds, got {moment!r:.40}")


def _check_choice(path: str, value: str, choices: Iterable[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise invalid(path, f"expected one of {', '.join(sorted(choices))}, got {value!r:.40}")


def _check_wholes(path: str, numbers: Mapping[str, int]) -> None:
    if not isinstance(numbers, Mapping):
        raise invalid(path, f"expected a mapping of names, got {type(numbers).__name__}")
    for name, number in numbers.items():
        whole(f"{path}[{name!r}]", number)
