"""A small world for partition plans: it writes steps into rows, lets owners answer, and lets time pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from poise.decide.partition_check import check_partitions
from poise.decide.partition_values import (
    Node,
    NodeState,
    Partition,
    PartitionPlan,
    PartitionPolicy,
    PartitionState,
    Step,
)
from poise.decide.partitions import plan_partitions
from poise.model.ownership import RETIREMENT

UNASSIGNED, ASSIGNED = PartitionState.UNASSIGNED, PartitionState.ASSIGNED
REQUESTED, PENDING = PartitionState.REQUESTED_RELEASE, PartitionState.PENDING_RELEASE
ROUNDS_MAX = 1_000


def nodes(names: str, draining: str = "", gone: str = "", **weights: int) -> list[Node]:
    """Make nodes from words: active ones, draining ones, gone ones."""
    listed = [Node(name, weight=weights.get(name, 1)) for name in names.split()]
    listed += [Node(name, NodeState.DRAINING, weight=weights.get(name, 1)) for name in draining.split()]
    return listed + [Node(name, NodeState.GONE, weight=weights.get(name, 1)) for name in gone.split()]


def rows(
    ids: Iterable[int], state: PartitionState, owner: str | None = None, target: str | None = None
) -> list[Partition]:
    """Make rows that differ only in their ids."""
    return [Partition(str(number), state, owner, target, epoch=1 if owner else 0) for number in ids]


def assigned(**counts: int) -> list[Partition]:
    """Give each named node so many partitions, numbered on from 0."""
    listed: list[Partition] = []
    for owner, count in counts.items():
        listed += rows(range(len(listed), len(listed) + count), ASSIGNED, owner)
    return listed


def kinds(plan: PartitionPlan) -> Counter[str]:
    """Count the steps of each kind."""
    return Counter(step.kind for step in plan.steps)


def told(plan: PartitionPlan, kind: str) -> dict[str, tuple[str | None, str | None]]:
    """List the steps of one kind: partition -> (source, target)."""
    return {step.partition: (step.source, step.target) for step in plan.steps if step.kind == kind}


def sound_plan(
    partitions: Sequence[Partition], known: Sequence[Node], policy: PartitionPolicy, now_s: float = 0.0
) -> PartitionPlan:
    """Plan, and let the independent checker judge the plan."""
    plan = plan_partitions(partitions, known, now_s=now_s, policy=policy)
    assert check_partitions(plan, partitions, known, now_s=now_s, policy=policy) == []
    return plan


def write(
    partitions: Iterable[Partition], steps: Iterable[Step], policy: PartitionPolicy, now_s: float
) -> list[Partition]:
    """Write the steps by the transition table; asserts refuse what it does not allow."""
    table = {row.id: row for row in partitions}
    for step in steps:
        row = table.pop(step.partition, None) or Partition(step.partition)
        assert row.owner == step.source
        if step.kind != "retire":
            table[row.id] = _written(step, row, policy, now_s)
    return sorted(table.values(), key=lambda row: int(row.id))


def _written(step: Step, row: Partition, policy: PartitionPolicy, now_s: float) -> Partition:
    match step.kind, row.state:
        case "assign", "Unassigned":
            return Partition(row.id, ASSIGNED, step.target, epoch=row.epoch + 1, confirmed=True)
        case "release", "Assigned":
            reason = RETIREMENT if int(row.id) >= policy.count else step.reason
            deadline_s = now_s + policy.release_s
            return replace(row, state=REQUESTED, target=step.target, deadline_s=deadline_s, reason=reason)
        case "release", "RequestedRelease" | "PendingRelease":
            return replace(row, target=step.target)
        case "cancel", "RequestedRelease":
            return replace(row, state=ASSIGNED, target=None, deadline_s=None, reason="")
        case "unassign", "Assigned" | "RequestedRelease" | "PendingRelease":
            return freed(row, step.target)
        case _:
            raise AssertionError(f"{step.kind} of a row that is {row.state}")


def freed(row: Partition, target: str | None) -> Partition:
    """Take the owner away and keep the target."""
    return Partition(row.id, UNASSIGNED, None, target, row.epoch, offers=row.offers)


def answer(partitions: Iterable[Partition], known: Iterable[Node], *, fused: bool = False) -> list[Partition]:
    """Let every live owner say "released" of what it was asked for; fused, an active target has it at once."""
    states = {node.name: node.state for node in known}

    def answered(row: Partition) -> Partition:
        if row.state not in (REQUESTED, PENDING) or states.get(row.owner or "", NodeState.GONE) == NodeState.GONE:
            return row
        if fused and states.get(row.target or "") == NodeState.ACTIVE:
            return Partition(row.id, ASSIGNED, row.target, epoch=row.epoch + 1, confirmed=True)
        return freed(row, row.target)

    return list(map(answered, partitions))


def fixpoint_faults(before: list[Partition], known: list[Node], policy: PartitionPolicy) -> list[Step]:
    """List what a second plan adds before anybody answers; only what was freed may go on, to be given or retired."""
    first = plan_partitions(before, known, now_s=0.0, policy=policy)
    freed = {step.partition for step in first.steps if step.kind == "unassign"}
    second = plan_partitions(write(before, first.steps, policy, 0.0), known, now_s=0.0, policy=policy)
    onward = ("assign", "retire")
    return [step for step in second.steps if step.partition not in freed or step.kind not in onward]


class Settled:
    """Where a world came to rest, and what it took: releases that were new, and the plans made on the way."""

    def __init__(
        self,
        partitions: Sequence[Partition],
        known: Sequence[Node],
        policy: PartitionPolicy,
        now_s: float = 0.0,
        *,
        fused: bool = False,
    ) -> None:
        """Plan, write, answer and wait, until a plan has no steps and nothing is under way or awaited."""
        self.rows = list(partitions)
        self.releases: Counter[str | None] = Counter()
        self.plans: list[PartitionPlan] = []
        for _ in range(ROUNDS_MAX):
            plan = sound_plan(self.rows, known, policy, now_s)
            self.plans.append(plan)
            states = {row.id: row.state for row in self.rows}
            self.releases.update(
                step.source for step in plan.steps if step.kind == "release" and states[step.partition] == ASSIGNED
            )
            before, self.rows = self.rows, answer(write(self.rows, plan.steps, policy, now_s), known, fused=fused)
            now_s += 1.0
            if not plan.steps and self.rows == before and not _awaits(self.rows, now_s, policy):
                return
        raise AssertionError(f"not settled after {ROUNDS_MAX} rounds")

    def loads(self) -> dict[str | None, int]:
        """Count the rows of each owner."""
        return dict(sorted(Counter(row.owner for row in self.rows).items(), key=str))


def _awaits(partitions: Iterable[Partition], now_s: float, policy: PartitionPolicy) -> bool:
    """Say whether time alone will still change something."""
    moments = [moment for row in partitions for moment in (row.lease_until_s, row.deadline_s) if moment is not None]
    return any(now_s <= moment + policy.lease_s + policy.grace_s for moment in moments)
