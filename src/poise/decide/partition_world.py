"""The partition checker's own reading of rows, nodes and the transition table; the planner does not use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import inf

import xxhash
from msgspec.structs import replace

from poise.decide.partition_values import Node, Partition, PartitionPolicy, PartitionState, Step

FREE, HELD = PartitionState.UNASSIGNED, PartitionState.ASSIGNED
ASKED, LETTING_GO = PartitionState.REQUESTED_RELEASE, PartitionState.PENDING_RELEASE
_OFFERS_MAX = 3


class World:
    """Rows and nodes at one instant, with what the transition table says of a single row."""

    def __init__(
        self, partitions: Iterable[Partition], nodes: Iterable[Node], now_s: float, policy: PartitionPolicy
    ) -> None:
        self.now_s, self.policy = now_s, policy
        self.nodes = {node.name: node for node in nodes}
        self.active = sorted(name for name, node in self.nodes.items() if node.state == "active")
        known = {row.id: row for row in partitions}
        names = map(str, range(policy.count))
        self.rows = {name: known.get(name) or Partition(name) for name in names} | known
        self._alive: dict[str, tuple[Partition, bool]] = {}  # Every law asks this of every row.

    def written(self, steps: Sequence[Step]) -> World:
        """Write the steps as the transition table says, before anybody answers; without any it stays the same world."""
        if not steps:
            return self
        rows = dict(self.rows)
        for step in steps:
            row = rows.pop(step.partition)
            if step.kind != "retire":
                rows[row.id] = self._write(step, row)
        return World(rows.values(), self.nodes.values(), self.now_s, self.policy)

    def _write(self, step: Step, row: Partition) -> Partition:
        match step.kind:
            case "assign":
                return Partition(row.id, HELD, step.target, epoch=row.epoch + 1, offers=row.offers)
            case "cancel":
                return replace(row, state=HELD, target=None, deadline_s=None)
            case "unassign":
                return replace(row, state=FREE, owner=None, target=step.target, lease_until_s=None)
            case _:
                deadline_s = self.now_s + self.policy.release_s if row.state == HELD else row.deadline_s
                asked = ASKED if row.state == HELD else row.state
                return replace(row, state=asked, target=step.target, deadline_s=deadline_s)

    @cached_property
    def inside(self) -> list[Partition]:
        """The rows that the set should have."""
        return [row for row in self.rows.values() if int(row.id) < self.policy.count]

    @cached_property
    def beyond(self) -> list[Partition]:
        """The rows that the set should not have."""
        return [row for row in self.rows.values() if int(row.id) >= self.policy.count]

    def state(self, name: str | None) -> str:
        """Tell active, draining, gone, or none."""
        if name is None:
            return "none"
        return self.nodes[name].state if name in self.nodes else "gone"

    def older(self, row: Partition) -> bool:
        """Say whether the row belongs to an earlier process of its owner."""
        mine, node = row.owner_incarnation, self.nodes.get(row.owner or "")
        return mine is not None and node is not None and mine < node.incarnation

    def end_s(self, row: Partition) -> float:
        """Say when the lease ends; infinity where it is renewed without a known end."""
        if row.lease_until_s is not None:
            return row.lease_until_s
        if self.state(row.owner) == "gone" or self.older(row):
            return -inf
        if self.policy.on_release_timeout == "wait" or row.deadline_s is None or row.state == HELD:
            return inf
        return row.deadline_s + self.policy.lease_s

    def alive(self, row: Partition) -> bool:
        """Say whether the owner is there and keeps its lease."""
        asked, answer = self._alive.get(row.id, (None, False))
        if asked is not row:
            answer = self._keeps(row)
            self._alive[row.id] = row, answer
        return answer

    def _keeps(self, row: Partition) -> bool:
        there = row.owner in self.nodes and self.state(row.owner) != "gone" and not self.older(row)
        return there and self.now_s < self.end_s(row)

    def over(self, row: Partition) -> bool:
        """Say whether lease and grace have ended."""
        return row.owner is not None and not self.alive(row) and self.now_s >= self.end_s(row) + self.policy.grace_s

    def refused(self, row: Partition, name: str | None) -> bool:
        """Say whether a node never confirmed this row."""
        return row.offers.get(name or "", 0) >= _OFFERS_MAX

    def kept_target(self, row: Partition) -> str | None:
        """Name the target that a row keeps when its owner is taken away."""
        if row.state != HELD and row.target is not None:
            return row.target
        return row.owner if self.older(row) and row.reason != "retire" else None

    def meant_for(self, row: Partition) -> str | None:
        """Name the active node that a row without a lasting owner is reserved for."""
        lasting, meant = row.owner is not None and self.alive(row), self.kept_target(row)
        if (row.state == HELD and lasting) or self.state(meant) != "active":
            return None
        return None if not lasting and self.refused(row, meant) else meant

    def goes_back(self, row: Partition) -> bool:
        """Say whether a request is superseded and not acknowledged, and its owner stays."""
        if row.state != ASKED or not self.alive(row) or self.state(row.owner) != "active":
            return False
        return self.state(row.target) in ("gone", "draining") or (row.target is None and row.reason == "retire")

    def firm_on(self, row: Partition) -> str | None:
        """Name who gets rid of a row only by a release: who holds it, may take it back, or has it reserved."""
        if row.owner is None or not self.alive(row):
            return None
        return row.owner if row.state == HELD or self.goes_back(row) else self.meant_for(row)

    def firm(self) -> Counter[str | None]:
        """Count the firm rows of every node; the answer is the caller's to change."""
        return Counter(self._firm)

    @cached_property
    def _firm(self) -> Counter[str | None]:
        return Counter(map(self.firm_on, self.inside))

    def meant(self) -> Counter[str | None]:
        """Count the rows without a live owner that are meant for a node; the answer is the caller's to change."""
        return Counter(self._meant)

    @cached_property
    def _meant(self) -> Counter[str | None]:
        return Counter(self.meant_for(row) for row in self.inside if row.owner is None or not self.alive(row))

    def loads(self, quotas: Mapping[str, int], firm: Mapping[str | None, int]) -> dict[str, int]:
        """Count projected loads: what is firm, and what is meant for a node as far as its quota reaches."""
        meant = self.meant()
        return {name: firm[name] + min(meant[name], max(0, quota - firm[name])) for name, quota in quotas.items()}

    def in_flight(self) -> tuple[int, Counter[str | None], Counter[str | None]]:
        """Count what live owners let go of: in the cluster, by source, by target; a retirement arrives nowhere."""
        moving = [row for row in self.rows.values() if row.state in (ASKED, LETTING_GO) and self.alive(row)]
        aimed = [row.target for row in moving if int(row.id) < self.policy.count]
        return len(moving), Counter(row.owner for row in moving), Counter(aimed)

    def shares(self) -> dict[str, Fraction]:
        """Share the count by weight; where nobody has a weight all are equal."""
        weights = {name: self.policy.weights.get(name, self.nodes[name].weight) for name in self.active}
        if not any(weights.values()):
            weights = dict.fromkeys(weights, 1)
        return {name: Fraction(self.policy.count * weight, sum(weights.values())) for name, weight in weights.items()}

    def awaited(self, row: Partition) -> bool:
        """Say whether a row waits for a node that restarts."""
        waits = row.state == FREE and row.reason == "restart" and self.state(row.target) in ("draining", "gone")
        return waits and row.deadline_s is not None and self.now_s < row.deadline_s


def score_again(item: str, member: str) -> int:
    """Score one pair by the published formula."""
    x = xxhash.xxh3_64_intdigest(item.encode()) ^ xxhash.xxh3_64_intdigest(member.encode())
    x = x * 0x9E3779B97F4A7C15 % 2**64
    return (x ^ (x >> 32)) * 0xD6E8FEB86659FD93 % 2**64
